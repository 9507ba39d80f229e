#pragma once
// A directory of its own for each test, and the text of the Error that a call throws.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "core/check.h"

namespace gradus::train {

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    // In memory where there is such a place: a disk takes milliseconds for each sync of a save.
    const bool memory = ::access("/dev/shm", W_OK) == 0;
    const std::string base = memory ? "/dev/shm" : std::filesystem::temp_directory_path().string();
    std::string name = base + "/gradus_test_XXXXXX";
    check(::mkdtemp(name.data()) != nullptr, "cannot make ", name);
    path_ = name;
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

inline std::string write_text(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

inline std::string read_text(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

template <class T>
std::string write_values(const std::string& path, const std::vector<T>& values) {
  const auto* bytes = reinterpret_cast<const char*>(values.data());
  return write_text(path, {bytes, bytes + values.size() * sizeof(T)});
}

/// The text of the Error that `f` throws; "no error" when it throws none.
template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

/// True when `text` holds all `parts`, for EXPECT_TRUE(holds(…)) << text.
inline bool holds(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts)
    if (text.find(part) == std::string::npos) return false;
  return true;
}

}  // namespace gradus::train
