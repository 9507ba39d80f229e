#pragma once
// Hugging Face's file of tensors:
//
//   8 bytes    N, the length of the header, little-endian
//   N bytes    JSON: {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, …,
//                     "__metadata__": {"format": "pt"}}
//   the rest   the tensors, row-major, little-endian, one after the other: each byte belongs to one
//
// A file comes from elsewhere, so nothing in it is believed: whatever does not fit is an Error that
// names the tensor and both sides.
#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/shape.h"
#include "train/mapped_file.h"

namespace gradus::train {

struct SafetensorsEntry {
  std::string type;            // theirs: "F32"
  std::optional<DType> dtype;  // ours; none for a type that gradus does not compute in
  Shape shape;
  int64_t begin = 0, end = 0;  // bytes, counted from the end of the header
};

struct SafetensorsHeader {
  std::map<std::string, SafetensorsEntry> tensors;
  int64_t data = 0;  // the first byte after the header
};

/// Reads the header and checks it against the length of the file. Error, beginning with `path`.
SafetensorsHeader parse_safetensors(std::span<const std::byte> file, const std::string& path);

class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);

  const std::string& path() const { return path_; }
  const std::map<std::string, SafetensorsEntry>& tensors() const { return header_.tensors; }
  /// Its bytes, in the mapped file. Error when there is no such tensor.
  std::span<const std::byte> bytes(const std::string& name) const;

 private:
  std::string path_;
  MappedFile file_;
  SafetensorsHeader header_;
};

struct SafetensorsOutput {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
};

/// Writes a file. `bytes_of(i)` gives the elements of tensor i, contiguous, and is asked for one tensor
/// after the other. Error when the file exists or the bytes are not as many as the shape says.
void write_safetensors(const std::string& path, std::span<const SafetensorsOutput> tensors,
                       const std::function<std::vector<std::byte>(size_t i)>& bytes_of);

}  // namespace gradus::train
