#include "train/hf_family.h"

#include <algorithm>

#include "core/check.h"

namespace gradus::train {
namespace {

constexpr const HfFamily* kFamilies[] = {&kHfGpt2, &kHfLlama, &kHfBert};

}  // namespace

const HfFamily& hf_family(const std::string& name) {
  std::string known;
  for (const HfFamily* family : kFamilies) {
    if (name == family->model_type) return *family;
    known += std::string(known.empty() ? "" : ", ") + family->model_type;
  }
  fail("no model of the family '", name, "' can be converted; those that can are ", known);
}

Settings hf_settings(const HfConfig& config) {
  try {
    return hf_family(config.model_type()).settings(config);
  } catch (const Error& error) {
    fail("", config.path(), ": ", error.what());
  }
}

std::vector<HfTensor> tensors_of(const HfParameter& p) {
  std::vector<HfTensor> tensors;
  for (const HfRows& rows : p.rows) {
    const int64_t end = rows.theirs + rows.count;
    auto found = std::find_if(tensors.begin(), tensors.end(),
                              [&](const HfTensor& t) { return t.name == rows.name; });
    if (found == tensors.end()) {
      tensors.push_back({rows.name, p.shape});
      found = tensors.end() - 1;
      found->shape[0] = 0;
    }
    found->shape[0] = std::max(found->shape[0], end);
  }
  if (p.transposed)
    for (HfTensor& t : tensors) t.shape = {t.shape[1], t.shape[0]};
  return tensors;
}

void HfLayout::same(const std::string& ours, const std::string& theirs, const Shape& shape,
                    const char* keys) {
  stacked(ours, shape, {{theirs, 0, 0, shape[0]}}, keys);
}

void HfLayout::transposed(const std::string& ours, const std::string& theirs, const Shape& shape,
                          const char* keys) {
  stacked(ours, shape, {{theirs, 0, 0, shape[0]}}, keys).transposed = true;
}

HfParameter& HfLayout::stacked(const std::string& ours, const Shape& shape,
                               std::vector<HfRows> rows, const char* keys) {
  return parameters_.emplace_back(HfParameter{ours, shape, keys, std::move(rows), false});
}

std::vector<HfRows> grouped_rows(const Settings& s, const HfPlace& q, const HfPlace& k,
                                 const HfPlace& v) {
  const int64_t d = s.width / s.heads, per_group = s.heads / s.kv_heads;
  std::vector<HfRows> rows;
  int64_t ours = 0;
  const auto add = [&](const HfPlace& place, int64_t head, int64_t heads) {
    rows.push_back({place.name, place.first + head * d, ours, heads * d});
    ours += heads * d;
  };
  for (int64_t group = 0; group < s.kv_heads; ++group) {
    add(q, group * per_group, per_group);
    add(k, group, 1);
    add(v, group, 1);
  }
  return rows;
}

}  // namespace gradus::train
