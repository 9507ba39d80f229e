#include "train/presets.h"

#include <algorithm>

#include "core/check.h"
#include "train/language_model.h"

namespace gradus::train {
namespace {

// How a model is trained unless something else is asked for.
struct Recipe {
  const char* model;
  int64_t length, batch, steps;
  double lr;
};

// Minutes on two CPU cores; minutes on a GPU; the batch that one GPU holds of a larger model.
constexpr Recipe kRecipes[] = {
    {"gpt-tiny", 128, 16, 1400, 2e-3},   {"llama-tiny", 128, 16, 1400, 3e-3},
    {"gpt-small", 256, 64, 1500, 1e-3},  {"bert-tiny", 64, 32, 6000, 2e-3},
    {"bert-base", 512, 64, 20000, 2e-4},
};
constexpr Recipe kLargeRecipe{"", 1024, 8, 20000, 6e-4};

Recipe recipe_of(const std::string& model) {
  const auto* found = std::find_if(std::begin(kRecipes), std::end(kRecipes),
                                   [&](const Recipe& r) { return r.model == model; });
  return found == std::end(kRecipes) ? kLargeRecipe : *found;
}

void set_gpt(Settings& s) {
  const GptConfig config = GptConfig::preset(s.model);
  s.family = config.activation == Activation::swiglu ? "llama" : "gpt2";
  s.layers = config.layers, s.width = config.width, s.heads = config.heads;
  s.norm_epsilon = config.epsilon, s.rope_base = config.rope_base, s.tied = config.tied;
  s.kv_heads = config.key_value_heads(), s.ffn = config.inner_width();
  s.tokenizer = "bytes";
  s.weight_decay = 0.1, s.beta2 = 0.99;
  s.eval_tokens = 65536;
}

// The square of the gradient is remembered for a shorter time than usual: with β₂ = 0.999 the first
// steps of a post-norm encoder are unstable [Liu et al. 2019].
void set_bert(Settings& s) {
  const BertConfig config = BertConfig::preset(s.model);
  s.family = "bert";
  s.layers = config.layers, s.width = config.width, s.heads = s.kv_heads = config.heads;
  s.ffn = config.inner_width(), s.dropout = config.dropout;
  s.norm_epsilon = config.epsilon, s.rope_base = GptConfig{}.rope_base, s.tied = true;
  s.tokenizer = "bpe";
  s.mask = 0.15;
  s.weight_decay = 0.01, s.beta2 = 0.98;
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

bool is_one_of(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

std::string default_preset(bool on_gpu) { return on_gpu ? "gpt-small" : "llama-tiny"; }

Settings preset(const std::string& name) {
  check(is_one_of(preset_names(), name), "no model is called ", name, "; there are ",
        joined(preset_names()));
  const Recipe recipe = recipe_of(name);
  Settings s;
  s.model = name;
  is_one_of(BertConfig::preset_names(), name) ? set_bert(s) : set_gpt(s);
  s.length = recipe.length, s.batch = recipe.batch, s.steps = recipe.steps, s.lr = recipe.lr;
  s.holdout = 0.05;
  s.accumulate = s.seed = s.tp = s.dp = 1;
  s.optimizer = "adamw";
  s.beta1 = 0.9, s.epsilon = 1e-8;
  s.clip = 1;
  s.non_finite = "skip";
  s.eval_every = s.save_every = std::max<int64_t>(s.steps / 8, 1);
  s.keep = 2;
  return s;
}

std::vector<std::string> preset_names() {
  std::vector<std::string> names = GptConfig::preset_names();
  for (const std::string& name : BertConfig::preset_names()) names.push_back(name);
  return names;
}

}  // namespace gradus::train
