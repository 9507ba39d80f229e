#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace gradus {

/// The sizes of a BERT; those of bert-base unless something else is said.
struct BertConfig {
  int64_t layers = 12, width = 768, heads = 12;
  int64_t ffn = 0;  // inner width of the MLP; 0: four times the width
  int64_t vocab = 30522;
  int64_t max_length = 512;  // tokens
  int64_t types = 2;         // segments that can be told apart
  double dropout = 0.1;      // of embeddings, attention weights and branches
  double epsilon = 1e-12;    // in norms
  double deviation = 0.02;   // of the initial weights

  int64_t head_size() const { return width / heads; }
  int64_t inner_width() const { return ffn ? ffn : 4 * width; }

  /// Error if the numbers do not fit together; it says which and what would.
  void check_valid() const;

  /// A configuration by name: bert-base (110 million parameters), bert-tiny (for two CPU cores).
  static BertConfig preset(const std::string& name);
  static std::vector<std::string> preset_names();
};

}  // namespace gradus
