#pragma once
// What a transformer is made of. One set of choices serves GPT-2 and Llama:
//
//                 GPT-2                        Llama
//   norm          layer norm with bias         RMS norm
//   positions     a learned vector for each    rotary: queries and keys are turned
//   MLP           GELU (tanh form), 4C wide    SwiGLU
//   heads         each its own keys, values    a group shares them
//   output        the token table, tied        a matrix of its own
#include <cstdint>
#include <string>
#include <vector>

namespace gradus {

enum class NormKind { layer, rms };
enum class PositionKind { learned, rope };
enum class Activation { gelu_tanh, swiglu };

struct GptConfig {
  int64_t layers = 12, width = 768, heads = 12;
  int64_t kv_heads = 0;  // heads that have keys and values of their own; 0: all
  int64_t ffn = 0;       // inner width of the MLP; 0: four times the width
  int64_t vocab = 50257;
  int64_t max_length = 1024;  // tokens
  double dropout = 0;
  NormKind norm = NormKind::layer;
  PositionKind position = PositionKind::learned;
  Activation activation = Activation::gelu_tanh;
  bool tied = true;       // the token table is the output matrix, too
  bool bias = true;       // in linear layers and layer norms
  double epsilon = 1e-5;  // in norms
  double rope_base = 10000;
  double deviation = 0.02;  // of the initial weights

  int64_t head_size() const { return width / heads; }
  int64_t key_value_heads() const { return kv_heads ? kv_heads : heads; }
  int64_t inner_width() const { return ffn ? ffn : 4 * width; }
  /// Each of the 2 · layers branches adds to the residual stream; this keeps the variance of the sum.
  double residual_deviation() const;

  /// Error if the numbers do not fit together; it says which and what would.
  void check_valid() const;

  /// A configuration by name: gpt2-124m, gpt2-350m, llama-1.1b, and small ones for one CPU.
  static GptConfig preset(const std::string& name);
  static std::vector<std::string> preset_names();
};

}  // namespace gradus
