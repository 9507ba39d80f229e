// Llama at Hugging Face [Touvron et al. 2023]. Queries, keys and values are three matrices, gate and up
// are two: ours stand above each other, by group of heads, and gate first.
//
// Rotary positions turn pairs of channels of a head. Meta's own files pair the neighbours (2i, 2i + 1),
// those at Hugging Face have the rows of q and k permuted so that the pairs are (i, i + d/2). That is
// the order of rope() here (RopeKind::half), so their rows are taken as they are.
#include "train/hf_family.h"
#include "train/model_config.h"
#include "train/presets.h"

namespace gradus::train {
namespace {

constexpr int64_t kMostLayers = 1000, kMostHeads = 1024;

// Since version 5 of transformers the base stands below rope_parameters. Scaled positions (Llama 3.1)
// are others.
double rope_base(const HfConfig& c) {
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    c.below(key).must_be("rope_type", {"default"});
    c.below(key).must_be("type", {"default"});
  }
  return c.below("rope_parameters").number_or("rope_theta", c.number_or("rope_theta", 10000));
}

Settings settings(const HfConfig& c) {
  c.must_be("hidden_act", {"silu"});
  c.must_be("attention_bias", {false});
  c.must_be("mlp_bias", {false});
  c.must_be("attention_dropout", {0});
  Settings s = preset("llama-1.1b");
  s.model = s.family = "llama";
  s.vocabulary = c.size("vocab_size"), s.length = c.size("max_position_embeddings");
  s.layers = c.size("num_hidden_layers", kMostLayers);
  s.width = c.size("hidden_size"), s.heads = c.size("num_attention_heads", kMostHeads);
  s.kv_heads = c.size_or("num_key_value_heads", s.heads);
  s.ffn = c.size("intermediate_size");
  c.must_be("head_dim", {s.width / s.heads});
  s.norm_epsilon = c.number("rms_norm_eps");
  s.rope_base = rope_base(c);
  s.tied = c.flag_or("tie_word_embeddings", false);
  s.dropout = 0;
  config_of(s).check_valid();
  return s;
}

// rope_theta in both places: for readers before and since version 5.
nlohmann::json config(const Settings& s) {
  return {{"hidden_act", "silu"},
          {"vocab_size", s.vocabulary},
          {"max_position_embeddings", s.length},
          {"num_hidden_layers", s.layers},
          {"hidden_size", s.width},
          {"num_attention_heads", s.heads},
          {"num_key_value_heads", s.kv_heads},
          {"head_dim", s.width / s.heads},
          {"intermediate_size", s.ffn},
          {"rms_norm_eps", s.norm_epsilon},
          {"rope_theta", s.rope_base},
          {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", s.rope_base}}},
          {"attention_bias", false},
          {"mlp_bias", false},
          {"tie_word_embeddings", s.tied}};
}

void add_block(HfLayout& l, const Settings& s, int64_t layer) {
  const int64_t C = s.width, F = s.ffn, rows = (s.heads + 2 * s.kv_heads) * (C / s.heads);
  const std::string ours = "blocks." + std::to_string(layer) + ".";
  const std::string theirs = "model.layers." + std::to_string(layer) + ".";
  l.same(ours + "norm1.weight", theirs + "input_layernorm.weight", {C}, "hidden_size");
  l.stacked(
      ours + "attention.qkv.weight", {rows, C},
      grouped_rows(s, {theirs + "self_attn.q_proj.weight"}, {theirs + "self_attn.k_proj.weight"},
                   {theirs + "self_attn.v_proj.weight"}),
      "hidden_size, num_attention_heads, num_key_value_heads");
  l.same(ours + "attention.out.weight", theirs + "self_attn.o_proj.weight", {C, C}, "hidden_size");
  l.same(ours + "norm2.weight", theirs + "post_attention_layernorm.weight", {C}, "hidden_size");
  l.stacked(ours + "mlp.up.weight", {2 * F, C},
            {{theirs + "mlp.gate_proj.weight", 0, 0, F}, {theirs + "mlp.up_proj.weight", 0, F, F}},
            "hidden_size, intermediate_size");
  l.same(ours + "mlp.down.weight", theirs + "mlp.down_proj.weight", {C, F},
         "hidden_size, intermediate_size");
}

std::vector<HfParameter> parameters(const Settings& s) {
  const int64_t C = s.width;
  HfLayout l;
  l.same("tokens.weight", "model.embed_tokens.weight", {s.vocabulary, C},
         "vocab_size, hidden_size");
  for (int64_t layer = 0; layer < s.layers; ++layer) add_block(l, s, layer);
  l.same("norm.weight", "model.norm.weight", {C}, "hidden_size");
  if (!s.tied) l.same("head", "lm_head.weight", {s.vocabulary, C}, "vocab_size, hidden_size");
  return l.take();
}

std::vector<HfCopy> copies(const Settings& s) {
  if (!s.tied) return {};
  return {{"lm_head.weight", "model.embed_tokens.weight"}};
}

}  // namespace

const HfFamily kHfLlama = {
    "llama", "LlamaForCausalLM", "model.", {".rotary_emb.inv_freq"}, settings,
    config,  parameters,         copies};

}  // namespace gradus::train
