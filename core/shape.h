#pragma once
// Sizes and strides of a tensor, held inline: no allocation.
#include <initializer_list>
#include <ostream>

#include "core/check.h"
#include "core/device.h"

namespace gradus {

/// Up to six sizes (or strides). A class of its own, so that it prints: (2, 3, 4).
class Shape {
 public:
  static constexpr int kMaxRank = 6;

  Shape() = default;
  Shape(std::initializer_list<int64_t> sizes) {
    for (int64_t s : sizes) push_back(s);
  }
  /// `rank` sizes of `value`.
  static Shape filled(int rank, int64_t value) {
    Shape s;
    for (int i = 0; i < rank; ++i) s.push_back(value);
    return s;
  }

  int rank() const { return rank_; }
  bool empty() const { return rank_ == 0; }
  int64_t numel() const {
    int64_t n = 1;
    for (int i = 0; i < rank_; ++i) n *= sizes_[i];
    return n;
  }

  /// Size i; −1 is the last. No check: see dim() for numbers that come from a user.
  int64_t operator[](int i) const { return sizes_[i < 0 ? i + rank_ : i]; }
  int64_t& operator[](int i) { return sizes_[i < 0 ? i + rank_ : i]; }
  const int64_t* begin() const { return sizes_; }
  const int64_t* end() const { return sizes_ + rank_; }

  void push_back(int64_t size) {
    check(rank_ < kMaxRank, "Shape: more than ", kMaxRank, " dimensions");
    sizes_[rank_++] = size;
  }
  void insert(int at, int64_t size) {
    push_back(0);
    for (int i = rank_ - 1; i > at; --i) sizes_[i] = sizes_[i - 1];
    sizes_[at] = size;
  }
  void erase(int at) {
    for (int i = at; i + 1 < rank_; ++i) sizes_[i] = sizes_[i + 1];
    sizes_[--rank_] = 0;
  }

  /// The dimension meant by `i` (−1 is the last), checked on behalf of `op`.
  int dim(int i, const char* op) const {
    check(i >= -rank_ && i < rank_, "dimension out of range in ", op, ": ", i, " for shape ", *this);
    return i < 0 ? i + rank_ : i;
  }

  bool operator==(const Shape& other) const {
    if (rank_ != other.rank_) return false;
    for (int i = 0; i < rank_; ++i)
      if (sizes_[i] != other.sizes_[i]) return false;
    return true;
  }
  friend std::ostream& operator<<(std::ostream& out, const Shape& s) {
    out << '(';
    for (int i = 0; i < s.rank_; ++i) out << (i ? ", " : "") << s.sizes_[i];
    return out << (s.rank_ == 1 ? ",)" : ")");
  }

 private:
  int64_t sizes_[kMaxRank] = {};
  int rank_ = 0;
};

/// Distances between neighbours along each dimension, counted in elements.
using Strides = Shape;

/// Strides of a tensor without gaps, last dimension fastest: (2, 3, 4) → (12, 4, 1).
inline Strides contiguous_strides(const Shape& shape) {
  Strides strides = shape;
  int64_t step = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    strides[i] = step;
    step *= shape[i];
  }
  return strides;
}

/// The shape both broadcast to, aligned at the last dimension: (2, 1, 4) and (3, 1) → (2, 3, 4).
/// Error naming `op` if a pair of sizes differs and neither is 1.
Shape broadcast(const Shape& a, const Shape& b, const char* op);

}  // namespace gradus
