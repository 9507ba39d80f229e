#include "train/language_model.h"

#include "ops/ops.h"

namespace gradus::train {

ModelSize model_size(const Settings& s) {
  return {.layers = s.layers,
          .width = s.width,
          .context = s.length,
          .vocabulary = s.vocabulary,
          .heads = s.heads,
          .kv_heads = s.kv_heads,
          .mlp_width = s.ffn,
          .gated_mlp = s.family == "llama"};
}

DType dtype_of(const Settings& s) {
  for (DType t : {DType::f64, DType::bf16, DType::f16})
    if (s.dtype == name_of(t)) return t;
  return DType::f32;
}

LanguageModel::LanguageModel(const Settings& s, Device device, const parallel::Communicator& tp)
    : device(device), dtype(train::dtype_of(s)) {
  if (is_bert(s)) {
    bert = std::make_unique<Bert>(bert_config_of(s), parallel::TensorParallel{tp, s.sp});
    bert->recompute_blocks = s.recompute;
  } else {
    gpt = std::make_unique<Gpt>(config_of(s), parallel::TensorParallel{tp, s.sp});
    gpt->recompute_blocks = s.recompute;
  }
  nn::name_parameters(module());
}

nn::Module& LanguageModel::module() const {
  if (bert) return *bert;
  return *gpt;
}

// Parameters come in the order of the fields, blocks in a row: outside of blocks, a parameter has the
// depth of the one before it.
std::map<std::string, int64_t> LanguageModel::depths() const {
  std::map<TensorImpl*, int64_t> in_blocks;
  const auto list = [&](auto& blocks) {
    for (size_t i = 0; i < blocks.size(); ++i)
      for (const nn::Parameter& p : blocks[i].parameters()) in_blocks[p.impl()] = int64_t(i) + 1;
  };
  bert ? list(bert->blocks) : list(gpt->blocks);
  std::map<std::string, int64_t> depths;
  int64_t depth = 0;
  for (const auto& [name, parameter] : module().named_parameters()) {
    const auto found = in_blocks.find(parameter.impl());
    depths[name] = depth = found == in_blocks.end() ? depth : found->second;
  }
  return depths;
}

void LanguageModel::initialize(uint64_t seed) {
  nn::initialize(module(), seed);
  place();
}

void LanguageModel::place() {
  module().cast(dtype);
  module().to(device);
}

Tensor LanguageModel::ids(std::span<const int32_t> values, int64_t rows) const {
  const Tensor host = empty({rows, int64_t(values.size()) / rows}, DType::i32);
  std::copy(values.begin(), values.end(), host.data<int32_t>());
  return to(host, device);
}

}  // namespace gradus::train
