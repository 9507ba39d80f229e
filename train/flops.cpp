#include "train/flops.h"

#include "core/check.h"
#include "train/units.h"

namespace gradus::train {
namespace {

struct Peak {
  std::string_view name;
  double bf16, tf32, f32;  // TFLOP/s, dense
};

// NVIDIA's data sheets; where they give figures "with sparsity", half of those.
constexpr Peak kPeaks[] = {
    {"NVIDIA H200", 989.5, 494.5, 67},
    {"NVIDIA H100 80GB HBM3", 989.5, 494.5, 67},
    {"NVIDIA H100 PCIe", 756, 378, 51},
    {"NVIDIA A100-SXM4-40GB", 312, 156, 19.5},
    {"NVIDIA A100-SXM4-80GB", 312, 156, 19.5},
    {"NVIDIA A100-PCIE-40GB", 312, 156, 19.5},
    {"NVIDIA A100 80GB PCIe", 312, 156, 19.5},
    {"NVIDIA A40", 149.7, 74.8, 37.4},
    {"NVIDIA A10", 125, 62.5, 31.2},
    {"NVIDIA L40S", 362, 183, 91.6},
    {"NVIDIA L4", 121, 60, 30.3},
    {"NVIDIA GeForce RTX 3090", 71, 35.6, 35.6},
    {"NVIDIA GeForce RTX 4090", 165.2, 82.6, 82.6},
};

int64_t attention_multiply_adds(const ModelSize& m) { return m.layers * m.context * m.width; }

std::string term(const char* name, int64_t value) { return name + with_commas(value); }

}  // namespace

int64_t matrix_parameters(const ModelSize& m) {
  check(m.heads > 0 && m.width % m.heads == 0, "width ", m.width, " does not divide into ", m.heads,
        " heads");
  const int64_t kv_width = m.width / m.heads * m.kv_heads;
  const int64_t attention = 2 * m.width * m.width + 2 * m.width * kv_width;
  const int64_t mlp = (m.gated_mlp ? 3 : 2) * m.width * m.mlp_width;
  return m.layers * (attention + mlp) + m.width * m.vocabulary;
}

double flops_per_token(const ModelSize& m, AttentionCount count) {
  const double attention = count == AttentionCount::full ? 12 : 6;
  return 6 * double(matrix_parameters(m)) + attention * double(attention_multiply_adds(m));
}

std::string explain_flops(const ModelSize& m) {
  const std::string sizes = term("N = ", matrix_parameters(m)) + term(", L = ", m.layers) +
                            term(", T = ", m.context) + term(", C = ", m.width);
  const auto total = [&](AttentionCount c) { return with_commas(int64_t(flops_per_token(m, c))); };
  return "FLOPs a token, full attention: 6N + 12LTC = " + total(AttentionCount::full) + "  (" +
         sizes + ")\nFLOPs a token, causal:         6N +  6LTC = " + total(AttentionCount::causal);
}

std::optional<double> peak_flops(std::string_view device_name, Precision precision) {
  for (const Peak& peak : kPeaks) {
    if (peak.name != device_name) continue;
    const double tera = precision == Precision::bf16   ? peak.bf16
                        : precision == Precision::tf32 ? peak.tf32
                                                       : peak.f32;
    return tera * 1e12;
  }
  return std::nullopt;
}

}  // namespace gradus::train
