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
  return s.dtype == "bf16" ? DType::bf16 : s.dtype == "f16" ? DType::f16 : DType::f32;
}

LanguageModel::LanguageModel(const Settings& s, Device device)
    : device(device), dtype(train::dtype_of(s)) {
  if (is_bert(s)) {
    bert = std::make_unique<Bert>(bert_config_of(s));
    bert->recompute_blocks = s.recompute;
  } else {
    gpt = std::make_unique<Gpt>(config_of(s));
    gpt->recompute_blocks = s.recompute;
  }
  nn::name_parameters(module());
}

nn::Module& LanguageModel::module() const {
  if (bert) return *bert;
  return *gpt;
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
