#pragma once
// How much arithmetic a training step is, and what fraction of a device's peak that makes (MFU).
//
// A matrix with n elements takes part in n multiply-adds a token: 2n FLOPs forward, and twice that
// backward (one product for the input's gradient, one for the weight's): 6n. Attention multiplies
// each query with T keys and the weights with T values, 2 · 2TC FLOPs a layer and token forward, hence
//
//   FLOPs a token = 6N + 12 L T C        all T keys counted (as in the PaLM paper)
//                   6N +  6 L T C        causal: on average a query sees half of them
//
//   N  elements of all matrices: per layer q and o (C²), k and v (C · heads' share), the MLP's two
//      (three in SwiGLU), and the output projection. An embedding lookup multiplies nothing; biases,
//      norms and whatever recomputation repeats are not counted.
//
// [Chowdhery et al. 2022, appendix B]
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace gradus::train {

struct ModelSize {
  int64_t layers = 0, width = 0, context = 0, vocabulary = 0;  // L, C, T, V
  int64_t heads = 1, kv_heads = 1;  // fewer key-value heads than heads: grouped-query attention
  int64_t mlp_width = 0;            // GPT-2: 4C
  bool gated_mlp = false;           // SwiGLU: three matrices
};

/// N.
int64_t matrix_parameters(const ModelSize& model);

enum class AttentionCount { full, causal };

double flops_per_token(const ModelSize& model, AttentionCount count);

/// The formula with its values, by both conventions, in two lines.
std::string explain_flops(const ModelSize& model);

/// Arithmetic of the matrix products: bf16 (or f16) and tf32 on tensor cores, f32 without.
enum class Precision { bf16, tf32, f32 };

/// Dense peak FLOP/s from the manufacturer's data sheet, for the device's exact name. Absent when it
/// is not in the table: a similar name (a MIG slice, a laptop part) has another peak.
std::optional<double> peak_flops(std::string_view device_name, Precision precision);

}  // namespace gradus::train
