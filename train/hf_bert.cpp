// BERT at Hugging Face [Devlin et al. 2019], with both of its heads (BertForPreTraining). Queries, keys
// and values are three matrices: ours are one, by head. The word table is the output matrix, too.
#include "train/hf_family.h"
#include "train/model_config.h"
#include "train/presets.h"

namespace gradus::train {
namespace {

constexpr int64_t kMostLayers = 1000, kMostHeads = 1024, kSegments = 2;

Settings settings(const HfConfig& c) {
  c.must_be("hidden_act", {"gelu"});
  c.must_be("is_decoder", {false});
  c.must_be("add_cross_attention", {false});
  c.must_be("position_embedding_type", {"absolute"});
  c.must_be("type_vocab_size", {kSegments});
  c.must_be("tie_word_embeddings", {true});
  Settings s = preset("gpt2-124m");
  s.model = s.family = "bert";
  s.vocabulary = c.size("vocab_size"), s.length = c.size("max_position_embeddings");
  s.layers = c.size("num_hidden_layers", kMostLayers);
  s.width = c.size("hidden_size"), s.heads = s.kv_heads = c.size("num_attention_heads", kMostHeads);
  s.ffn = c.size("intermediate_size");
  s.norm_epsilon = c.number("layer_norm_eps");
  s.tied = true;
  s.dropout = c.number_or("hidden_dropout_prob", 0.1);
  c.must_be("attention_probs_dropout_prob", {s.dropout});
  bert_config_of(s).check_valid();
  return s;
}

nlohmann::json config(const Settings& s) {
  return {{"hidden_act", "gelu"},
          {"type_vocab_size", kSegments},
          {"vocab_size", s.vocabulary},
          {"max_position_embeddings", s.length},
          {"num_hidden_layers", s.layers},
          {"hidden_size", s.width},
          {"num_attention_heads", s.heads},
          {"intermediate_size", s.ffn},
          {"layer_norm_eps", s.norm_epsilon},
          {"hidden_dropout_prob", s.dropout},
          {"attention_probs_dropout_prob", s.dropout},
          {"tie_word_embeddings", true}};
}

// The weight (out, in) and the bias (out) of a linear layer.
void add_linear(HfLayout& l, const std::string& ours, const std::string& theirs, int64_t out,
                int64_t in, const char* keys) {
  l.same(ours + ".weight", theirs + ".weight", {out, in}, keys);
  l.same(ours + ".bias", theirs + ".bias", {out}, keys);
}

void add_norm(HfLayout& l, const std::string& ours, const std::string& theirs, int64_t width) {
  l.same(ours + ".weight", theirs + ".weight", {width}, "hidden_size");
  l.same(ours + ".bias", theirs + ".bias", {width}, "hidden_size");
}

void add_block(HfLayout& l, const Settings& s, int64_t layer) {
  const int64_t C = s.width, F = s.ffn;
  const std::string ours = "blocks." + std::to_string(layer) + ".";
  const std::string theirs = "bert.encoder.layer." + std::to_string(layer) + ".";
  const auto qkv = [&](const std::string& end) {
    const std::string self = theirs + "attention.self.";
    return grouped_rows(s, {self + "query" + end}, {self + "key" + end}, {self + "value" + end});
  };
  l.stacked(ours + "attention.qkv.weight", {3 * C, C}, qkv(".weight"), "hidden_size");
  l.stacked(ours + "attention.qkv.bias", {3 * C}, qkv(".bias"), "hidden_size");
  add_linear(l, ours + "attention.out", theirs + "attention.output.dense", C, C, "hidden_size");
  add_norm(l, ours + "norm1", theirs + "attention.output.LayerNorm", C);
  add_linear(l, ours + "up", theirs + "intermediate.dense", F, C, "intermediate_size, hidden_size");
  add_linear(l, ours + "down", theirs + "output.dense", C, F, "intermediate_size, hidden_size");
  add_norm(l, ours + "norm2", theirs + "output.LayerNorm", C);
}

std::vector<HfParameter> parameters(const Settings& s) {
  const int64_t C = s.width;
  const std::string embeddings = "bert.embeddings.", head = "cls.predictions.";
  HfLayout l;
  l.same("words.weight", embeddings + "word_embeddings.weight", {s.vocabulary, C},
         "vocab_size, hidden_size");
  l.same("positions.weight", embeddings + "position_embeddings.weight", {s.length, C},
         "max_position_embeddings, hidden_size");
  l.same("types.weight", embeddings + "token_type_embeddings.weight", {kSegments, C},
         "type_vocab_size, hidden_size");
  add_norm(l, "norm", embeddings + "LayerNorm", C);
  for (int64_t layer = 0; layer < s.layers; ++layer) add_block(l, s, layer);
  add_linear(l, "pooler", "bert.pooler.dense", C, C, "hidden_size");
  add_linear(l, "head", head + "transform.dense", C, C, "hidden_size");
  add_norm(l, "head_norm", head + "transform.LayerNorm", C);
  l.same("head_bias", head + "bias", {s.vocabulary}, "vocab_size");
  add_linear(l, "next", "cls.seq_relationship", kSegments, C, "hidden_size");
  return l.take();
}

std::vector<HfCopy> copies(const Settings&) {
  return {{"cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"},
          {"cls.predictions.decoder.bias", "cls.predictions.bias"}};
}

}  // namespace

const HfFamily kHfBert = {"bert", "BertForPreTraining", "bert.", {".position_ids"}, settings,
                          config, parameters,           copies};

}  // namespace gradus::train
