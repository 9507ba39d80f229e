#pragma once
// A file mapped into memory, read-only: a corpus larger than memory is paged in as it is read.
#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace gradus::train {

class MappedFile {
 public:
  /// Error with the path and the system's message when it is not a readable, non-empty, regular file.
  explicit MappedFile(const std::string& path);
  std::span<const std::byte> bytes() const { return {data_.get(), size_}; }

 private:
  std::shared_ptr<const std::byte> data_;  // unmapped with its last owner
  size_t size_ = 0;
};

}  // namespace gradus::train
