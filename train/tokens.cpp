#include "train/tokens.h"

#include <glob.h>

#include <algorithm>
#include <filesystem>

#include "core/check.h"

namespace gradus::train {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail_missing(const std::string& path) {
  std::error_code ignored;
  const fs::path directory = fs::absolute(path, ignored).parent_path();
  const bool bin = fs::path(path).extension() == ".bin";
  fail("no file matches ", path, "; searched ", directory.string(),
       fs::is_directory(directory, ignored) ? "" : " (which does not exist)", "; make it with ",
       bin ? "llm.c's dev/data/*.py or nanoGPT's data/*/prepare.py"
           : "a command such as: bible -f gen1:1-rev22:21 > bible.txt  (Debian's bible-kjv)");
}

std::vector<std::string> matches(const std::string& path) {
  std::error_code ignored;
  if (fs::exists(path, ignored)) return {path};  // also when the name holds a '*'
  glob_t found{};
  const int status = ::glob(path.c_str(), GLOB_TILDE, nullptr, &found);
  std::vector<std::string> paths(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  if (status != 0 || paths.empty()) fail_missing(path);
  return paths;
}

}  // namespace

Tokens::Tokens(const std::string& path) : path_(path), starts_{0} {
  for (const std::string& file : matches(path)) {
    files_.emplace_back(file);
    starts_.push_back(starts_.back() + files_.back().size());
    check(files_.back().format() == format(),
          "files of one set differ in format: ", files_.front().path(), " (", name_of(format()),
          ") and ", file, " (", name_of(files_.back().format()), ")");
  }
}

Tokens::Tokens(const std::string& path, std::vector<int32_t> ids)
    : path_(path), ids_(std::move(ids)), starts_{int64_t(ids_.size())} {}

void Tokens::copy(int64_t first, int64_t count, int32_t* out) const {
  check(first >= 0 && count >= 0 && first + count <= size(), "tokens [", first, ", ", first + count,
        ") asked of ", path_, ", which has ", size());
  if (files_.empty()) {
    std::copy_n(ids_.begin() + first, count, out);
    return;
  }
  size_t file =
      size_t(std::upper_bound(starts_.begin(), starts_.end(), first) - starts_.begin()) - 1;
  for (; count > 0; ++file) {
    const int64_t here = std::min(count, starts_[file + 1] - first);
    files_[file].copy(first - starts_[file], here, out);
    first += here, out += here, count -= here;
  }
}

void Tokens::check_ids(int64_t vocabulary) const {
  if (is_text() && vocabulary >= 256) return;  // a byte cannot be larger
  for (const TokenFile& file : files_) {
    const int64_t bad = file.find_id_outside(vocabulary);
    check(bad < 0, "", file.path(), ": token ", bad, " has id ", bad < 0 ? 0 : file.id(bad),
          ", but the model's vocabulary is ", vocabulary, " (ids 0 to ", vocabulary - 1,
          "); use a larger vocabulary or the data it was made for");
  }
}

}  // namespace gradus::train
