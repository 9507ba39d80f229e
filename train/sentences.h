#pragma once
// A text as documents of sentences, the form in which BERT's data come: a sentence a line, an empty
// line between documents. A Bible with a reference before every verse is recognised:
//
//   Ge1:1 In the beginning God created …      ─▶   document "Ge1", sentence "In the beginning God …"
//
// The reference is taken off, or it would tell which sentences belong together.
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "train/piece_tokenizer.h"

namespace gradus::train {

struct Sentences {
  std::vector<std::string> lines;
  std::vector<int64_t> documents{0};  // where each begins, in lines; last: their number
};
Sentences read_sentences(const std::string& text);

/// The tokens of some documents.
class EncodedSentences {
 public:
  /// Each sentence with a space before it, so that its first word has the same token as elsewhere.
  EncodedSentences(const Sentences& sentences, const PieceTokenizer& tokenizer);

  int64_t sentences() const { return int64_t(starts_.size()) - 1; }
  int64_t documents() const { return int64_t(documents_.size()) - 1; }
  int64_t tokens() const { return int64_t(ids_.size()); }
  const std::vector<int32_t>& ids() const { return ids_; }

  /// Tokens of sentences [first, last), which follow one another.
  std::span<const int32_t> tokens_of(int64_t first, int64_t last) const;
  int64_t document_of(int64_t sentence) const;
  /// The sentences [first, second) of a document.
  std::pair<int64_t, int64_t> range_of(int64_t document) const;

 private:
  std::vector<int32_t> ids_;
  std::vector<int64_t> starts_;     // of sentences, in ids; last: their number
  std::vector<int64_t> documents_;  // of documents, in sentences; last: their number
};

/// {training, validation}: documents ⌊k / fraction⌋ … are held out, spread evenly over the text.
std::pair<Sentences, Sentences> split(const Sentences& all, double fraction);

}  // namespace gradus::train
