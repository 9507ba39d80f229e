#include "models/bert_config.h"

#include <map>

#include "core/check.h"

namespace gradus {
namespace {

const std::map<std::string, BertConfig>& presets() {
  static const std::map<std::string, BertConfig> all = {
      {"bert-base", {}},
      {"bert-tiny",
       {.layers = 2, .width = 128, .heads = 4, .vocab = 2048, .max_length = 64, .dropout = 0}},
  };
  return all;
}

}  // namespace

void BertConfig::check_valid() const {
  check(
      layers > 0 && width > 0 && heads > 0 && vocab > 0 && max_length > 0 && types > 0 && ffn >= 0,
      "a model needs positive sizes, got layers ", layers, ", width ", width, ", heads ", heads,
      ", ffn ", ffn, ", vocab ", vocab, ", max_length ", max_length, ", types ", types);
  check(width % heads == 0, "width ", width, " does not divide into ", heads, " heads; ",
        width / heads * heads, " or ", (width / heads + 1) * heads, " would");
  check(dropout >= 0 && dropout <= 1, "dropout is a probability, got ", dropout);
  check(epsilon > 0 && deviation >= 0, "epsilon must be positive, the deviation not negative; got ",
        epsilon, " and ", deviation);
}

BertConfig BertConfig::preset(const std::string& name) {
  auto it = presets().find(name);
  if (it != presets().end()) return it->second;
  std::string known;
  for (const std::string& n : preset_names()) known += (known.empty() ? "" : ", ") + n;
  fail("no BERT is called ", name, "; there are ", known);
}

std::vector<std::string> BertConfig::preset_names() {
  std::vector<std::string> names;
  for (const auto& [name, config] : presets()) names.push_back(name);
  return names;
}

}  // namespace gradus
