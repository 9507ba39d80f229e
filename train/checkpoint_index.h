#pragma once
// What is in a checkpoint. On disk it is a directory:
//
//   step_00000100/
//     index.json      format version, step, score, the caller's "meta", and for every tensor its type,
//                     its global shape and the boxes it is stored in: file, first byte, bytes, hash
//     index.xxh128    hash of index.json, in the form that `xxh128sum -c` checks
//     rank_0.bin …    the boxes' elements, row-major, each box aligned to 64 bytes
//
// Tensors are in parameter space: whole, unpadded shapes and layer numbers of the whole model. Nothing
// in it says how the run was laid out, so any layout can read it. Hashes are XXH3, 128 bits.
#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "train/box.h"

namespace gradus::train {

inline constexpr int kCheckpointFormat = 1;
inline constexpr const char* kIndexFile = "index.json";
inline constexpr const char* kIndexHashFile = "index.xxh128";

/// One box of a tensor and where its elements are.
struct StoredBox {
  Box box;
  std::string file;
  int64_t first_byte = 0, bytes = 0;
  std::string hash;  // of these bytes, 32 hexadecimal digits
};

struct StoredTensor {
  DType dtype = DType::f32;
  Shape shape;  // global
  std::vector<StoredBox> boxes;
};

using StoredTensors = std::map<std::string, StoredTensor>;

struct CheckpointIndex {
  int64_t step = 0;
  std::optional<double> score;                 // validation loss: lower is better
  std::shared_ptr<const nlohmann::json> meta;  // whatever the caller stored
  StoredTensors tensors;
};

/// Adds the tensors that another rank wrote. Error when one has another type or shape here.
void merge(StoredTensors& into, const StoredTensors& other);

std::string to_text(const CheckpointIndex& index);

/// Error, beginning with `path`, when `text` is no index of this format.
CheckpointIndex parse_index(const std::string& text, const std::string& path);

/// A copy of `meta` to put into an index.
std::shared_ptr<const nlohmann::json> share(const nlohmann::json& meta);

}  // namespace gradus::train
