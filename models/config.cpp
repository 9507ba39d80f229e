#include "models/config.h"

#include <cmath>
#include <map>

#include "core/check.h"

namespace gradus {
namespace {

GptConfig llama(GptConfig c) {
  c.norm = NormKind::rms;
  c.position = PositionKind::rope;
  c.activation = Activation::swiglu;
  c.tied = c.bias = false;
  return c;
}

const std::map<std::string, GptConfig>& presets() {
  static const std::map<std::string, GptConfig> all = {
      {"gpt2-124m", {.layers = 12, .width = 768, .heads = 12}},
      {"gpt2-350m", {.layers = 24, .width = 1024, .heads = 16}},
      {"llama-1.1b", llama({.layers = 22,
                            .width = 2048,
                            .heads = 32,
                            .kv_heads = 4,
                            .ffn = 5632,
                            .vocab = 32000,
                            .max_length = 2048})},
      // For bytes on a CPU: 0.8, 3.2 and 0.8 million parameters.
      {"gpt-tiny", {.layers = 4, .width = 128, .heads = 4, .vocab = 256, .max_length = 256}},
      {"gpt-small", {.layers = 4, .width = 256, .heads = 8, .vocab = 256, .max_length = 256}},
      {"llama-tiny", llama({.layers = 4,
                            .width = 128,
                            .heads = 4,
                            .kv_heads = 2,
                            .ffn = 352,
                            .vocab = 256,
                            .max_length = 256})},
  };
  return all;
}

}  // namespace

double GptConfig::residual_deviation() const { return deviation / std::sqrt(2.0 * double(layers)); }

void GptConfig::check_valid() const {
  check(layers > 0 && width > 0 && heads > 0 && vocab > 0 && max_length > 0 && kv_heads >= 0 &&
            ffn >= 0,
        "a model needs positive sizes, got layers ", layers, ", width ", width, ", heads ", heads,
        ", kv_heads ", kv_heads, ", ffn ", ffn, ", vocab ", vocab, ", max_length ", max_length);
  check(width % heads == 0, "width ", width, " does not divide into ", heads, " heads; ",
        width / heads * heads, " or ", (width / heads + 1) * heads, " would");
  check(heads % key_value_heads() == 0, "heads that share keys and values form equal groups, but ",
        heads, " do not divide into ", kv_heads);
  check(position != PositionKind::rope || head_size() % 2 == 0,
        "rotary positions turn pairs of entries, so the size of a head must be even, got ",
        head_size());
  check(dropout >= 0 && dropout <= 1, "dropout is a probability, got ", dropout);
  check(epsilon > 0 && rope_base > 0 && deviation >= 0,
        "epsilon and rope_base must be positive, the "
        "deviation not negative; got ",
        epsilon, ", ", rope_base, " and ", deviation);
}

GptConfig GptConfig::preset(const std::string& name) {
  auto it = presets().find(name);
  if (it != presets().end()) return it->second;
  std::string known;
  for (const std::string& n : preset_names()) known += (known.empty() ? "" : ", ") + n;
  fail("no model is called ", name, "; there are ", known);
}

std::vector<std::string> GptConfig::preset_names() {
  std::vector<std::string> names;
  for (const auto& [name, config] : presets()) names.push_back(name);
  return names;
}

}  // namespace gradus
