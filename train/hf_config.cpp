#include "train/hf_config.h"

#include <algorithm>
#include <cmath>

#include "core/check.h"
#include "train/strict_json.h"

namespace gradus::train {

using nlohmann::json;

HfConfig::HfConfig(std::string_view text, std::string path)
    : HfConfig(parse_json(text, path), path, "") {}

HfConfig::HfConfig(json j, std::string path, std::string prefix)
    : json_(std::move(j)), path_(std::move(path)), prefix_(std::move(prefix)) {
  check(json_.is_object(), "an object {…} is needed", prefix_.empty() ? "" : " below " + prefix_);
}

HfConfig HfConfig::in(const std::string& directory) {
  const std::string path = directory + "/config.json";
  return {read_file(path), path};
}

const json* HfConfig::find(const char* key) const {
  const auto found = json_.find(key);
  return found == json_.end() || found->is_null() ? nullptr : &*found;
}

const json& HfConfig::need(const char* key) const {
  const json* value = find(key);
  check(value != nullptr, "there is no ", name(key));
  return *value;
}

std::string HfConfig::model_type() const {
  const json& type = need("model_type");
  check(type.is_string(), "model_type must be a string, got ", type.dump());
  return type.get<std::string>();
}

int64_t HfConfig::size(const char* key, int64_t most) const {
  const json& value = need(key);
  const bool whole = value.is_number_integer() &&
                     (value.is_number_unsigned() ? value.get<uint64_t>() <= uint64_t(most)
                                                 : value.get<int64_t>() <= most);
  check(whole && value.get<int64_t>() >= 1, "", name(key), " must be a whole number from 1 to ",
        most, ", got ", value.dump());
  return value.get<int64_t>();
}

int64_t HfConfig::size_or(const char* key, int64_t absent) const {
  return find(key) ? size(key) : absent;
}

double HfConfig::number(const char* key) const {
  const json& value = need(key);
  check(value.is_number() && std::isfinite(value.get<double>()) && value.get<double>() >= 0, "",
        name(key), " must be a finite number ≥ 0, got ", value.dump());
  return value.get<double>();
}

double HfConfig::number_or(const char* key, double absent) const {
  return find(key) ? number(key) : absent;
}

bool HfConfig::flag_or(const char* key, bool absent) const {
  const json* value = find(key);
  if (!value) return absent;
  check(value->is_boolean(), "", name(key), " must be true or false, got ", value->dump());
  return value->get<bool>();
}

HfConfig HfConfig::below(const char* key) const {
  const json* value = find(key);
  return {value ? *value : json::object(), path_, name(key) + "."};
}

void HfConfig::must_be(const char* key, std::initializer_list<json> known) const {
  const json* value = find(key);
  if (!value || std::find(known.begin(), known.end(), *value) != known.end()) return;
  std::string all;
  for (const json& k : known) all += (all.empty() ? "" : " or ") + k.dump();
  fail("", name(key), " is ", value->dump(), "; the models of gradus have ", all);
}

}  // namespace gradus::train
