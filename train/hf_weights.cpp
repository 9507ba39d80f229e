#include "train/hf_weights.h"

#include <cstring>
#include <filesystem>
#include <set>

#include "ops/ops.h"
#include "train/strict_json.h"

namespace gradus::train {
namespace {

using nlohmann::json;

constexpr const char* kWhole = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

bool exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

json weight_map_of(const std::string& path) {
  const json index = parse_json(read_file(path), path);
  check(index.is_object() && index.contains("weight_map") && index["weight_map"].is_object(), "",
        path, " has no weight_map");
  for (const auto& [name, file] : index["weight_map"].items())
    check(file.is_string() && file.get<std::string>().find('/') == std::string::npos, "", path,
          ": the file of '", name, "' must be a name in the same directory, got ", file.dump());
  return index["weight_map"];
}

std::string name_of_today(const std::string& name) {
  for (const auto& [old, now] : {std::pair(".gamma", ".weight"), std::pair(".beta", ".bias")})
    if (name.ends_with(old)) return name.substr(0, name.size() - std::strlen(old)) + now;
  return name;
}

}  // namespace

HfWeights::HfWeights(const std::string& directory, const std::string& prefix) {
  const std::string whole = directory + "/" + kWhole, index = directory + "/" + kIndex;
  check(exists(whole) || exists(index), "", directory, " has neither ", kWhole, " nor ", kIndex,
        "; other formats (pytorch_model.bin) are first saved as safetensors by transformers: "
        "save_pretrained");
  if (exists(whole)) {
    add(whole);
  } else {
    const json weight_map = weight_map_of(index);
    std::set<std::string> names;
    for (const auto& item : weight_map.items()) names.insert(item.value().get<std::string>());
    for (const std::string& name : names) add(directory + "/" + name);
    check_against(index, weight_map);
  }
  const auto first = tensors_.lower_bound(prefix);
  const bool whole_model = first != tensors_.end() && first->first.starts_with(prefix);
  std::map<std::string, Place> renamed;
  for (const auto& [name, place] : tensors_) {
    const std::string now = (whole_model ? "" : prefix) + name_of_today(name);
    check(renamed.try_emplace(now, place).second, "", place.file->path(), " has '", now, "' twice");
  }
  tensors_ = std::move(renamed);
}

void HfWeights::add(const std::string& path) {
  const SafetensorsFile& file = files_.emplace_back(path);
  for (const auto& item : file.tensors()) {
    const auto [at, is_new] = tensors_.try_emplace(item.first, Place{&file, item.first});
    check(is_new, "tensor '", item.first, "' is in two files, ", at->second.file->path(), " and ",
          path);
  }
}

void HfWeights::check_against(const std::string& index, const json& weight_map) const {
  for (const auto& item : weight_map.items()) {
    const auto found = tensors_.find(item.key());
    const std::string file = item.value().get<std::string>();
    check(found != tensors_.end() && found->second.file->path().ends_with("/" + file), "", index,
          " says that '", item.key(), "' is in ", file, ", it is ",
          found == tensors_.end() ? "nowhere" : "in " + found->second.file->path());
  }
}

const HfWeights::Place& HfWeights::at(const std::string& name) const {
  const auto found = tensors_.find(name);
  check(found != tensors_.end(), "there is no tensor '", name, "'");
  return found->second;
}

Tensor HfWeights::tensor(const std::string& name) const {
  const Place& place = at(name);
  const SafetensorsEntry& entry = place.entry();
  check(entry.dtype.has_value(), "", place.file->path(), ": tensor '", name,
        "' has elements of type ", entry.type, ", in which gradus does not compute");
  const Tensor t = empty(entry.shape, *entry.dtype);
  const auto bytes = place.file->bytes(place.name);
  if (!bytes.empty()) std::memcpy(t.raw(), bytes.data(), bytes.size());
  return t;
}

}  // namespace gradus::train
