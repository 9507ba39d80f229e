#pragma once
// The language model of a run: a GPT or a BERT with the sizes of its settings, in one type and on one
// device.
#include <map>
#include <memory>
#include <span>

#include "models/bert.h"
#include "models/gpt.h"
#include "parallel/communicator.h"
#include "train/flops.h"
#include "train/model_config.h"
#include "train/settings.h"

namespace gradus::train {

/// What FLOPs are counted from.
ModelSize model_size(const Settings& settings);

/// The type of parameters and activations.
DType dtype_of(const Settings& settings);

struct LanguageModel {
  std::unique_ptr<Gpt> gpt;    // one of these two
  std::unique_ptr<Bert> bert;  // where the family is bert
  Device device;
  DType dtype;

  nn::Module& module() const;
  /// The layer of each parameter: 0 of what comes before the blocks, 1 … L in them, L of what follows.
  std::map<std::string, int64_t> depths() const;

  /// Its parameters have no values yet, and lie in f32 on the CPU.
  /// This rank's part of it, where it is cut over the ranks of `tp`.
  LanguageModel(const Settings& settings, Device device, const parallel::Communicator& tp = {});

  /// Draws first values, and moves to the device in the model's type.
  void initialize(uint64_t seed);
  /// Moves without values: a checkpoint will bring them.
  void place();

  /// Ids as a tensor (rows, values / rows) on the device.
  Tensor ids(std::span<const int32_t> values, int64_t rows) const;
};

}  // namespace gradus::train
