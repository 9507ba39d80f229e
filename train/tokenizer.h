#pragma once
// Between a text and the ids of a model. Three kinds:
//
//   bytes      every byte is a token: 256 ids, nothing to learn
//   pieces     frequent pieces of words, learned from a text: train/piece_tokenizer.h
//   numbers    the ids as they are, for a model of a token file, whose tokenizer is not here
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "train/settings.h"

namespace gradus::train {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  virtual int64_t vocabulary() const = 0;  // ids are 0 … vocabulary − 1
  /// Error when the text cannot be told by the ids.
  virtual std::vector<int32_t> encode(const std::string& text) const = 0;
  /// What one token adds to a text. Bytes come as they are: see printable().
  virtual std::string decode(int32_t id) const = 0;
  std::string decode(const std::vector<int32_t>& ids) const;
  /// Keeps in `directory` what tokenizer_of() will need.
  virtual void save(const std::string& directory) const { (void)directory; }
};

class ByteTokenizer final : public Tokenizer {
 public:
  int64_t vocabulary() const override { return 256; }
  std::vector<int32_t> encode(const std::string& text) const override;
  std::string decode(int32_t id) const override { return {char(id)}; }
};

class NumberTokenizer final : public Tokenizer {
 public:
  explicit NumberTokenizer(int64_t vocabulary) : vocabulary_(vocabulary) {}
  int64_t vocabulary() const override { return vocabulary_; }
  /// "17 4" → {17, 4}. Error when a word is no id.
  std::vector<int32_t> encode(const std::string& text) const override;
  std::string decode(int32_t id) const override { return std::to_string(id) + " "; }

 private:
  int64_t vocabulary_;
};

/// Where a run keeps the tokenizer that it learned.
inline constexpr const char* kTokenizerFile = "tokenizer.model";

/// The tokenizer of a run in `directory` that has these settings. Error when its file is missing or
/// damaged, or has not as many tokens as the model.
std::unique_ptr<Tokenizer> tokenizer_of(const Settings& settings, const std::string& directory);

/// For people: a control character that is neither tab nor new line becomes '?'.
std::string printable(std::string text);

}  // namespace gradus::train
