#pragma once
// A config.json of Hugging Face, read with care: a key that is missing, of another kind or out of range
// is an Error that names it, and so is a setting that a model of gradus has not. (Whoever reads a
// family's settings adds the path: hf_settings.)
#include <nlohmann/json.hpp>
#include <string>

namespace gradus::train {

class HfConfig {
 public:
  HfConfig(std::string_view text, std::string path);
  static HfConfig in(const std::string& directory);

  const std::string& path() const { return path_; }
  std::string model_type() const;

  /// A whole number from 1 to `most`.
  int64_t size(const char* key, int64_t most = int64_t(1) << 31) const;
  int64_t size_or(const char* key, int64_t absent) const;  // absent or null
  /// A finite number ≥ 0.
  double number(const char* key) const;
  double number_or(const char* key, double absent) const;
  bool flag_or(const char* key, bool absent) const;
  /// The object below `key`; an empty one where there is none.
  HfConfig below(const char* key) const;

  /// Error unless the value is one of `known`, or is absent and the first of them is what it then means.
  void must_be(const char* key, std::initializer_list<nlohmann::json> known) const;

 private:
  HfConfig(nlohmann::json json, std::string path, std::string prefix);
  const nlohmann::json* find(const char* key) const;  // null counts as absent
  const nlohmann::json& need(const char* key) const;
  std::string name(const char* key) const { return prefix_ + key; }

  nlohmann::json json_;
  std::string path_, prefix_;
};

}  // namespace gradus::train
