#pragma once
// Do two runs that ought to agree have the same gradients? For tensor t of one, t' of the other:
//
//   rel     = ‖t' − t‖ / max(‖t‖, φ √numel)                   of the whole tensor
//   row rel = max_i ‖t'_i − t_i‖ / max(‖t_i‖, φ √columns)     of each row: one wrong row of many hides in rel
//   φ       = 10⁻³ · root mean square of all gradients
//
// The floor φ is for gradients that are 0 in mathematics and noise in arithmetic, like that of a bias of
// keys, which softmax does not see. Rounding errors grow by a factor C with each layer that a gradient
// comes down through [arXiv 2506.09280, theorem 5.3], so for a tensor of layer l of L
//
//   rel ≤ k · C^(L+1−l) · ε        C = 1.03; embedding l = 0, blocks 1 … L, what follows them L
//
//   f64            1e-12                    measured on right programs: some 1e-15 for L = 2 … 8
//   f32            k = 64, ε = 2⁻²³         measured: 4e-7 to 2e-6
//   bf16, f16      k = 4, ε = 2⁻⁷, 2⁻¹⁰     rows are shown, not judged
#include <map>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "autograd/tensor.h"

namespace gradus::train {

struct Bound {
  double k = 64, epsilon = 0x1p-23, growth = 1.03;
  bool judges_rows = true;

  /// Of a tensor with `above` layers between it and the loss.
  double at(int64_t above) const;
  /// The same for all layers.
  static Bound flat(double value) { return {1, value, 1, true}; }
};

/// The bound of gradients that were computed in a type.
Bound bound_of(DType dtype);

struct TensorDifference {
  std::string name;
  double rel = 0, row_rel = 0, bound = 0;
  std::string place;           // of the largest difference: "(3, 17)"
  double left = 0, right = 0;  // the values there
  double largest = 0;          // |value| on either side
  double rolled = 0;           // rel of the right side moved by one along its last axis
  bool agrees = true;
};

/// A number of the whole step: loss, norm, targets.
struct NumberDifference {
  std::string name;
  double left = 0, right = 0, rel = 0, bound = 0;
  bool agrees = true;
};

struct ConsistencyReport {
  std::vector<TensorDifference> tensors;
  std::vector<NumberDifference> numbers;
  std::vector<std::string> faults;    // what no number says: a tensor that one side lacks
  std::vector<std::string> warnings;  // gradients so small that agreeing means little

  bool agrees() const;
  double worst_rel() const;
  double worst_row_rel() const;
  /// How many tensors and numbers differ, and the worst of them, in a sentence.
  std::string summary() const;
};

/// The table. With `only_failures`, tensors that agree are counted, not listed.
void print(std::ostream& out, const ConsistencyReport& report, bool only_failures = false);

/// Takes tensors one by one, so that no more than one pair is in memory.
class ConsistencyCheck {
 public:
  /// `layers`: L above.
  ConsistencyCheck(Bound bound, int64_t layers) : bound_(bound), layers_(layers) {}

  /// The left one is the reference. Of any floating types, in host memory.
  void add(const std::string& name, int64_t layer, const Tensor& left, const Tensor& right);
  /// Bounded like the gradient that has come down through all layers.
  void add_number(const std::string& name, double left, double right);
  /// Must be equal.
  void add_count(const std::string& name, int64_t left, int64_t right);
  void add_fault(const std::string& fault) { report_.faults.push_back(fault); }

  ConsistencyReport finish();

 private:
  struct Sums {
    double difference = 0, left = 0, rolled = 0;  // of squares
    std::vector<std::pair<double, double>> rows;  // difference, left
    int64_t columns = 1, numel = 0;
  };
  static Sums measure(const double* left, const double* right, const Shape& shape,
                      TensorDifference& found);
  void judge(TensorDifference& t, const Sums& sums, double floor) const;

  Bound bound_;
  int64_t layers_;
  ConsistencyReport report_;
  std::vector<Sums> sums_;
};

}  // namespace gradus::train
