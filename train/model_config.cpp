#include "train/model_config.h"

#include "core/check.h"

namespace gradus::train {

GptConfig config_of(const Settings& s) {
  check(s.family == "gpt2" || s.family == "llama", "a model of the family '", s.family,
        "' is no GPT: it predicts no next token");
  GptConfig c;
  c.layers = s.layers, c.width = s.width, c.heads = s.heads, c.kv_heads = s.kv_heads;
  c.ffn = s.ffn, c.vocab = s.vocabulary, c.max_length = s.length, c.dropout = s.dropout;
  c.epsilon = s.norm_epsilon, c.rope_base = s.rope_base, c.tied = s.tied;
  if (s.family == "gpt2") return c;
  c.norm = NormKind::rms, c.position = PositionKind::rope, c.activation = Activation::swiglu;
  c.bias = false;
  return c;
}

BertConfig bert_config_of(const Settings& s) {
  return {.layers = s.layers,
          .width = s.width,
          .heads = s.heads,
          .ffn = s.ffn,
          .vocab = s.vocabulary,
          .max_length = s.length,
          .types = 2,
          .dropout = s.dropout,
          .epsilon = s.norm_epsilon};
}

}  // namespace gradus::train
