#pragma once
// Which of cuBLASLt's algorithms computes a product on a GPU.
//
// cuBLASLt names several for each kind of product (sizes, types, transposes, alignment, epilogue), the
// one that it guesses to be fastest first. By default that first one is taken. While a GemmTuning lives,
// each kind of product is timed at its first use and the fastest algorithm is kept, in the memory of
// the process and in a text file that later runs read:
//
//   int main() {
//     GemmTuning tuning("gemm.txt");    // before the first product, until after the last
//
// Note [equal bits]
// Two algorithms may add the terms of a sum in different orders. Whatever was chosen, it is deterministic
// (partial sums are added in a fixed order) and the same for all threads and for as long as the tuning
// lives, so equal products give equal bits. Between two runs on GPUs of one kind:
//   no tuning in either                 equal bits
//   both read a file with all products  equal bits
//   one of them times                   another algorithm may win: equal up to rounding
#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

namespace gradus {

/// An algorithm as cuBLASLt stores it, and what was measured: microseconds of a product with it, and
/// with the first one that the heuristic named.
struct GemmChoice {
  std::array<uint64_t, 8> algorithm{};
  double time = 0, time_of_first = 0;
};

/// There may be one at a time; it serves all threads and must outlive their products.
class GemmTuning {
 public:
  /// Reads the choices in `path`, if it is there, and adds to it whatever is timed. Error when the file
  /// is damaged, or when there is a GemmTuning already. Without a path nothing is stored.
  explicit GemmTuning(std::string path = {});
  ~GemmTuning();
  GemmTuning(const GemmTuning&) = delete;

  /// The one that is in force, or null.
  static GemmTuning* current();
  /// Grows by one whenever current() changes.
  static uint64_t generation();

  /// The choice for `product` on `machine` (a GPU and a version of cuBLASLt, in words).
  std::optional<GemmChoice> find(const std::string& machine, const std::string& product) const;
  /// Keeps `choice` unless another thread was faster, and says what is kept. The file is replaced whole:
  /// of several processes that time the same products, the last one's choices stay.
  GemmChoice keep(const std::string& machine, const std::string& product, const GemmChoice& choice);

 private:
  void read();
  void write() const;

  std::string path_;
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, std::string>, GemmChoice> choices_;  // of (machine, product)
};

}  // namespace gradus
