#pragma once
// Families of models as Hugging Face stores them: which key of config.json is which setting, and which
// rows of their tensors are which rows of our parameters. One file a family: hf_gpt2.cpp, hf_llama.cpp,
// hf_bert.cpp. The same map serves both directions.
//
//   theirs                      ours
//   q_proj.weight │ h₀ h₁ │     qkv.weight │ h₀ h₁ k₀ v₀ │     rows of whole heads, by group
//   k_proj.weight │ k₀ │
//   v_proj.weight │ v₀ │
#include <string>
#include <vector>

#include "core/shape.h"
#include "train/hf_config.h"
#include "train/settings.h"

namespace gradus::train {

/// Rows [theirs, theirs + count) of the tensor `name` are the rows [ours, ours + count) of a parameter.
struct HfRows {
  std::string name;
  int64_t theirs = 0, ours = 0, count = 0;
};

struct HfParameter {
  std::string name;          // ours
  Shape shape;               // ours: (rows) or (rows, columns)
  std::string keys;          // of config.json, that the shape comes from
  std::vector<HfRows> rows;  // each row of ours and each of theirs once
  bool transposed = false;   // theirs are (columns, rows)
};

/// A tensor of theirs, in full.
struct HfTensor {
  std::string name;
  Shape shape;
};

/// A tensor that repeats another one, where a file has it.
struct HfCopy {
  std::string name, of;
};

struct HfFamily {
  const char *model_type, *architecture;
  const char* prefix;  // of every tensor of the model without its heads, whose own file lacks it
  std::vector<std::string> buffers;  // ends of names that are no weights
  Settings (*settings)(const HfConfig& config);
  nlohmann::json (*config)(const Settings& settings);
  std::vector<HfParameter> (*parameters)(const Settings& settings);
  std::vector<HfCopy> (*copies)(const Settings& settings);
};

/// The family that a run, or a config.json, is of. Error naming those there are.
const HfFamily& hf_family(const std::string& name);
/// The settings that a config.json stands for. Error, beginning with its path, when gradus has no such
/// model or its sizes do not fit together.
Settings hf_settings(const HfConfig& config);

/// Tensors of theirs that a parameter is made of, in the order in which they first occur.
std::vector<HfTensor> tensors_of(const HfParameter& parameter);

/// A list of parameters as a family builds it.
class HfLayout {
 public:
  /// Ours is theirs.
  void same(const std::string& ours, const std::string& theirs, const Shape& shape,
            const char* keys);
  /// Ours (rows, columns) is theirs (columns, rows), transposed.
  void transposed(const std::string& ours, const std::string& theirs, const Shape& shape,
                  const char* keys);
  /// Ours is several of theirs, whole or in parts; shape is ours.
  HfParameter& stacked(const std::string& ours, const Shape& shape, std::vector<HfRows> rows,
                       const char* keys);

  std::vector<HfParameter> take() { return std::move(parameters_); }

 private:
  std::vector<HfParameter> parameters_;
};

/// A place in a tensor of theirs: its rows from `first` on.
struct HfPlace {
  std::string name;
  int64_t first = 0;
};

/// The rows of queries, keys and values, which they keep apart and we order by group of heads (see
/// models/attention.h).
std::vector<HfRows> grouped_rows(const Settings& settings, const HfPlace& q, const HfPlace& k,
                                 const HfPlace& v);

extern const HfFamily kHfGpt2, kHfLlama, kHfBert;

}  // namespace gradus::train
