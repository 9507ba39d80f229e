#pragma once
// A small model as the tests of checkpoints save and load it.
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "tests/train/helpers.h"
#include "train/checkpoint_directory.h"
#include "train/checkpoint_reader.h"
#include "train/checkpoint_writer.h"
#include "train/hash.h"

namespace gradus::train {

/// Three tensors whose values all differ, and differ from step to step.
struct SmallModel {
  std::vector<float> weight = std::vector<float>(40);     // (8, 5)
  std::vector<uint16_t> bias = std::vector<uint16_t>(7);  // (7), bf16
  std::vector<double> scale = std::vector<double>(1);     // ()

  static SmallModel at(int64_t step) {
    SmallModel m;
    std::iota(m.weight.begin(), m.weight.end(), float(100 * step));
    std::iota(m.bias.begin(), m.bias.end(), uint16_t(step));
    m.scale[0] = 1.0 / double(step);
    return m;
  }
  bool operator==(const SmallModel&) const = default;

  std::vector<WantedBox> wanted() {
    return {{"weight", DType::f32, {8, 5}, whole_box({8, 5}), weight.data()},
            {"bias", DType::bf16, {7}, whole_box({7}), bias.data()},
            {"scale", DType::f64, {}, whole_box({}), scale.data()}};
  }
  void add_to(CheckpointWriter& writer) const {
    writer.add("weight", DType::f32, {8, 5}, weight.data());
    writer.add("bias", DType::bf16, {7}, bias.data());
    writer.add("scale", DType::f64, {}, scale.data());
  }
};

inline std::string save(const std::string& directory, int64_t step,
                        std::optional<double> score = {}, Disk disk = {}) {
  CheckpointWriter writer(directory, step, std::move(disk));
  SmallModel::at(step).add_to(writer);
  return writer.publish({{"name", "small"}, {"consumed", 32 * step}}, score);
}

/// What is at `path`, loaded with every check.
inline SmallModel load(const std::string& path) {
  SmallModel m;
  CheckpointReader(path).load(m.wanted());
  return m;
}

}  // namespace gradus::train
