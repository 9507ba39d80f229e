#include "train/presets.h"

#include <algorithm>

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
    {"gpt-tiny", 128, 16, 1400, 2e-3},
    {"llama-tiny", 128, 16, 1400, 3e-3},
    {"gpt-small", 256, 64, 1500, 1e-3},
};
constexpr Recipe kLargeRecipe{"", 1024, 8, 20000, 6e-4};

Recipe recipe_of(const std::string& model) {
  const auto* found = std::find_if(std::begin(kRecipes), std::end(kRecipes),
                                   [&](const Recipe& r) { return r.model == model; });
  return found == std::end(kRecipes) ? kLargeRecipe : *found;
}

}  // namespace

std::string default_preset(bool on_gpu) { return on_gpu ? "gpt-small" : "llama-tiny"; }

Settings preset(const std::string& name) {
  const GptConfig config = GptConfig::preset(name);
  const Recipe recipe = recipe_of(name);
  Settings s;
  s.model = name;
  s.family = config.activation == Activation::swiglu ? "llama" : "gpt2";
  s.layers = config.layers, s.width = config.width, s.heads = config.heads;
  s.norm_epsilon = config.epsilon, s.rope_base = config.rope_base, s.tied = config.tied;
  s.kv_heads = config.key_value_heads(), s.ffn = config.inner_width();
  s.length = recipe.length, s.batch = recipe.batch, s.steps = recipe.steps, s.lr = recipe.lr;
  s.tokenizer = "bytes";
  s.holdout = 0.05;
  s.accumulate = s.seed = 1;
  s.optimizer = "adamw";
  s.weight_decay = 0.1;
  s.beta1 = 0.9, s.beta2 = 0.99, s.epsilon = 1e-8;
  s.clip = 1;
  s.non_finite = "skip";
  s.eval_every = s.save_every = std::max<int64_t>(s.steps / 8, 1);
  s.eval_tokens = 65536;
  s.keep = 2;
  return s;
}

}  // namespace gradus::train
