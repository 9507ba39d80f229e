#pragma once
// Boxes of a tensor: the pieces in which a checkpoint stores it and in which a layout holds it.
//
//        0   2     5               a tensor of shape (4, 5) stored in two boxes,
//      0 ┌───┬─────┐                 A: offset (0, 0), shape (4, 2)
//        │   │░░░  │                 B: offset (0, 2), shape (4, 3)
//        │ A │░░░ B│               ░ a box that a layout wants from it:
//      3 │   │     │                 offset (1, 2), shape (2, 2)
//      4 └───┴─────┘
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/shape.h"

namespace gradus::train {

struct Box {
  Shape offset, shape;
  int64_t numel() const { return shape.numel(); }
  bool operator==(const Box&) const = default;
  friend std::ostream& operator<<(std::ostream& out, const Box& box) {
    return out << box.shape << " at " << box.offset;
  }
};

/// All of a tensor.
inline Box whole_box(const Shape& shape) { return {Shape::filled(shape.rank(), 0), shape}; }

/// Whether a box of that many dimensions lies inside a tensor of `shape`.
bool lies_in(const Box& box, const Shape& shape);

/// Elements [begin, end) of a tensor, counted row by row, as few boxes, in that order: each of them is
/// contiguous in the tensor.
///
///   elements 3 … 12 of (4, 5)      · · · a a      a: offset (0, 3), shape (1, 2)
///                                  b b b b b      b: offset (1, 0), shape (1, 5)
///                                  c c c · ·      c: offset (2, 0), shape (1, 3)
std::vector<Box> boxes_of(const Shape& shape, int64_t begin, int64_t end);

/// Number of an element, counted row by row.
int64_t position(const Shape& shape, const Shape& index);

/// What two boxes of one tensor share, or nothing.
std::optional<Box> intersect(const Box& a, const Box& b);

/// The bytes of a tensor whose elements have `element` of them. Error when that is no int64.
int64_t bytes_needed(const Shape& shape, int64_t element);

/// Why `boxes` do not fill a tensor of `shape` exactly once (one lies outside, two overlap, elements
/// are left over), in words; empty when they do.
std::string tiling_fault(const Shape& shape, std::span<const Box> boxes);

/// Copies the elements of `part` from memory that holds box `from_box` to memory that holds `to_box`,
/// both contiguous. `part` lies in both.
void copy_part(const Box& part, const std::byte* from, const Box& from_box, std::byte* to,
               const Box& to_box, int64_t element_size);

}  // namespace gradus::train
