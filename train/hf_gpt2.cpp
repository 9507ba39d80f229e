// GPT-2 at Hugging Face [Radford et al. 2019]. Its linear layers are called Conv1D and store their matrix
// as (in, out), so that y = x W: ours is the transpose. Queries, keys and values are one matrix, first
// all queries, then all keys, then all values: ours go by head.
#include "core/check.h"
#include "train/hf_family.h"
#include "train/model_config.h"
#include "train/presets.h"

namespace gradus::train {
namespace {

constexpr int64_t kMostLayers = 1000, kMostHeads = 1024;

Settings settings(const HfConfig& c) {
  c.must_be("activation_function", {"gelu_new", "gelu_pytorch_tanh"});
  c.must_be("scale_attn_weights", {true});
  c.must_be("scale_attn_by_inverse_layer_idx", {false});
  c.must_be("add_cross_attention", {false});
  Settings s = preset("gpt2-124m");
  s.model = s.family = "gpt2";
  s.vocabulary = c.size("vocab_size"), s.length = c.size("n_positions");
  s.layers = c.size("n_layer", kMostLayers);
  s.width = c.size("n_embd"), s.heads = s.kv_heads = c.size("n_head", kMostHeads);
  s.ffn = c.size_or("n_inner", 4 * s.width);
  s.norm_epsilon = c.number("layer_norm_epsilon");
  s.tied = c.flag_or("tie_word_embeddings", true);
  s.dropout = c.number_or("resid_pdrop", 0.1);
  for (const char* key : {"embd_pdrop", "attn_pdrop"}) c.must_be(key, {s.dropout});
  config_of(s).check_valid();
  return s;
}

nlohmann::json config(const Settings& s) {
  return {{"activation_function", "gelu_new"},
          {"vocab_size", s.vocabulary},
          {"n_positions", s.length},
          {"n_layer", s.layers},
          {"n_embd", s.width},
          {"n_head", s.heads},
          {"n_inner", s.ffn},
          {"layer_norm_epsilon", s.norm_epsilon},
          {"tie_word_embeddings", s.tied},
          {"resid_pdrop", s.dropout},
          {"embd_pdrop", s.dropout},
          {"attn_pdrop", s.dropout}};
}

void add_block(HfLayout& l, const Settings& s, int64_t layer) {
  const int64_t C = s.width, F = s.ffn;
  const std::string ours = "blocks." + std::to_string(layer) + ".";
  const std::string theirs = "transformer.h." + std::to_string(layer) + ".";
  const auto same = [&](const char* a, const char* b, int64_t size, const char* keys) {
    l.same(ours + a, theirs + b, {size}, keys);
  };
  const auto qkv = [&](const char* b) {
    const std::string name = theirs + b;
    return grouped_rows(s, {name, 0}, {name, C}, {name, 2 * C});
  };
  same("norm1.weight", "ln_1.weight", C, "n_embd");
  same("norm1.bias", "ln_1.bias", C, "n_embd");
  l.stacked(ours + "attention.qkv.weight", {3 * C, C}, qkv("attn.c_attn.weight"), "n_embd")
      .transposed = true;
  l.stacked(ours + "attention.qkv.bias", {3 * C}, qkv("attn.c_attn.bias"), "n_embd");
  l.transposed(ours + "attention.out.weight", theirs + "attn.c_proj.weight", {C, C}, "n_embd");
  same("attention.out.bias", "attn.c_proj.bias", C, "n_embd");
  same("norm2.weight", "ln_2.weight", C, "n_embd");
  same("norm2.bias", "ln_2.bias", C, "n_embd");
  l.transposed(ours + "mlp.up.weight", theirs + "mlp.c_fc.weight", {F, C}, "n_embd, n_inner");
  same("mlp.up.bias", "mlp.c_fc.bias", F, "n_inner");
  l.transposed(ours + "mlp.down.weight", theirs + "mlp.c_proj.weight", {C, F}, "n_embd, n_inner");
  same("mlp.down.bias", "mlp.c_proj.bias", C, "n_embd");
}

std::vector<HfParameter> parameters(const Settings& s) {
  check(s.kv_heads == s.heads,
        "in a gpt2 of Hugging Face each head has keys and values of its own; ", "here ", s.heads,
        " heads share ", s.kv_heads, ", as in their llama");
  const int64_t C = s.width;
  HfLayout l;
  l.same("tokens.weight", "transformer.wte.weight", {s.vocabulary, C}, "vocab_size, n_embd");
  l.same("positions", "transformer.wpe.weight", {s.length, C}, "n_positions, n_embd");
  for (int64_t layer = 0; layer < s.layers; ++layer) add_block(l, s, layer);
  l.same("norm.weight", "transformer.ln_f.weight", {C}, "n_embd");
  l.same("norm.bias", "transformer.ln_f.bias", {C}, "n_embd");
  if (!s.tied) l.same("head", "lm_head.weight", {s.vocabulary, C}, "vocab_size, n_embd");
  return l.take();
}

std::vector<HfCopy> copies(const Settings& s) {
  if (!s.tied) return {};
  return {{"lm_head.weight", "transformer.wte.weight"}};
}

}  // namespace

// attn.bias and attn.masked_bias are the causal mask.
const HfFamily kHfGpt2 = {
    "gpt2", "GPT2LMHeadModel", "transformer.", {".attn.bias", ".attn.masked_bias"}, settings,
    config, parameters,        copies};

}  // namespace gradus::train
