#pragma once
// A tokenizer that is learned from a text: its tokens are frequent pieces of words.
//
//   BPE      begins with single characters and joins, again and again, the most frequent pair of
//            neighbours into a new token [Sennrich et al. 2016]
//   unigram  begins with many candidates and drops, again and again, those without which the text
//            would be least less probable [Kudo 2018]
//
// The learning is done by SentencePiece [Kudo & Richardson 2018]. A space is part of the token that
// it stands before, and no text is normalised: decode(encode(x)) = x.
//
//   " In the beginning"  ─▶  ▁In  ▁the  ▁beg  inning          ▁ marks the beginning of a word
#include "train/tokenizer.h"

namespace sentencepiece {
class SentencePieceProcessor;
}

namespace gradus::train {

struct PieceTraining {
  std::string kind = "bpe";  // or unigram
  int64_t vocabulary = 2048;
  /// A character that is not in the vocabulary becomes its bytes, for which 256 ids are kept; without,
  /// it becomes [UNK].
  bool bytes = true;
};

class PieceTokenizer final : public Tokenizer {
 public:
  /// Ids of the special tokens in a tokenizer that was learned here.
  enum Special : int32_t { kPad, kUnknown, kClassify, kSeparate, kMask, kSpecials };

  /// Learns from `lines`, by one thread: the same lines give the same tokenizer. Error when they have
  /// too few pieces for the vocabulary, or more characters than it; both numbers are said.
  static PieceTokenizer learn(const std::vector<std::string>& lines, const PieceTraining& training);
  /// Any model of SentencePiece. Error when the file is none.
  static PieceTokenizer load(const std::string& path);
  void save(const std::string& directory) const override;

  PieceTokenizer(PieceTokenizer&&) noexcept;
  ~PieceTokenizer() override;

  int64_t vocabulary() const override;
  /// Error when the text is not UTF-8: it says at which byte.
  std::vector<int32_t> encode(const std::string& text) const override;
  std::string decode(int32_t id) const override;
  using Tokenizer::decode;

  std::string piece(int32_t id) const;  // "▁the"
  /// Does the token begin a word?
  bool begins_word(int32_t id) const;
  /// Error naming both numbers when a model with `vocabulary` tokens cannot go with this.
  void check_vocabulary(int64_t vocabulary) const;
  /// Error naming the file when it lacks one of BERT's special tokens, or has it at another id.
  void check_specials() const;

 private:
  PieceTokenizer(std::string model, std::string path);

  std::string model_;  // serialized
  std::string path_;   // for messages
  std::unique_ptr<sentencepiece::SentencePieceProcessor> processor_;
};

}  // namespace gradus::train
