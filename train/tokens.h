#pragma once
// The token stream of a training or validation set: one file, or several that a pattern names
// (fineweb_train_*.bin), one after the other in the order of their names; or what a tokenizer made of
// such a text.
#include <cstdint>
#include <string>
#include <vector>

#include "train/token_file.h"

namespace gradus::train {

class Tokens {
 public:
  /// `path` names a file or is a shell pattern. Error when nothing matches (it names the directory
  /// searched and a command that makes the data), or when the files differ in format.
  explicit Tokens(const std::string& path);
  /// The ids of the text at `path`, in memory.
  Tokens(const std::string& path, std::vector<int32_t> ids);

  const std::string& path() const { return path_; }  // as given
  TokenFormat format() const {
    return files_.empty() ? TokenFormat::pieces : files_.front().format();
  }
  bool is_text() const { return format() == TokenFormat::text; }
  int64_t size() const { return starts_.back(); }

  /// Writes the ids [first, first + count) to `out`. Error when they are not all there.
  void copy(int64_t first, int64_t count, int32_t* out) const;

  /// Error naming file, position and id when an id is not below `vocabulary`. Reads everything once.
  void check_ids(int64_t vocabulary) const;

 private:
  std::string path_;
  std::vector<TokenFile> files_;
  std::vector<int32_t> ids_;     // where there are no files
  std::vector<int64_t> starts_;  // position of each file's first token; last: the size
};

}  // namespace gradus::train
