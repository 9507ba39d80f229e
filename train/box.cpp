#include "train/box.h"

#include <algorithm>
#include <cstring>
#include <sstream>

namespace gradus::train {
namespace {

template <class... Values>
std::string text(const Values&... values) {
  std::ostringstream out;
  ((out << values), ...);
  return out.str();
}

// Element number, in the contiguous memory of `box`, of the tensor's element `index`.
int64_t position(const Box& box, const Shape& index) {
  int64_t at = 0;
  for (int d = 0; d < index.rank(); ++d) at = at * box.shape[d] + index[d] - box.offset[d];
  return at;
}

// Adds elements [begin, end) of the part of a tensor that `at` fixes in all dimensions before `dim`.
void add_boxes(const Shape& shape, int64_t begin, int64_t end, int dim, Box at,
               std::vector<Box>& boxes) {
  if (begin >= end) return;
  if (dim == shape.rank()) return boxes.push_back(at);
  int64_t row = 1;  // elements
  for (int d = dim + 1; d < shape.rank(); ++d) row *= shape[d];
  const auto add_row = [&](int64_t first, int64_t last) {  // of one row, not all of it
    Box inside = at;
    inside.offset[dim] = first / row, inside.shape[dim] = 1;
    add_boxes(shape, first % row, first % row + last - first, dim + 1, inside, boxes);
  };
  const int64_t first_row = (begin + row - 1) / row * row, last_row = end / row * row;
  if (first_row > last_row) return add_row(begin, end);
  add_row(begin, first_row);
  if (first_row < last_row) {
    at.offset[dim] = first_row / row, at.shape[dim] = (last_row - first_row) / row;
    boxes.push_back(at);
  }
  add_row(last_row, end);
}

// The next row of `part`: counts up all dimensions but the last. False after the last row.
bool next_row(Shape& index, const Box& part) {
  for (int d = part.shape.rank() - 2; d >= 0; --d) {
    if (++index[d] < part.offset[d] + part.shape[d]) return true;
    index[d] = part.offset[d];
  }
  return false;
}

}  // namespace

bool lies_in(const Box& box, const Shape& shape) {
  if (box.offset.rank() != shape.rank() || box.shape.rank() != shape.rank()) return false;
  for (int d = 0; d < shape.rank(); ++d)
    if (box.offset[d] < 0 || box.shape[d] < 0 || box.shape[d] > shape[d] - box.offset[d])
      return false;
  return true;
}

std::vector<Box> boxes_of(const Shape& shape, int64_t begin, int64_t end) {
  std::vector<Box> boxes;
  add_boxes(shape, begin, end, 0, whole_box(shape), boxes);
  return boxes;
}

int64_t position(const Shape& shape, const Shape& index) {
  return position(whole_box(shape), index);
}

std::optional<Box> intersect(const Box& a, const Box& b) {
  Box both = a;
  for (int d = 0; d < a.shape.rank(); ++d) {
    const int64_t end = std::min(a.offset[d] + a.shape[d], b.offset[d] + b.shape[d]);
    both.offset[d] = std::max(a.offset[d], b.offset[d]);
    both.shape[d] = end - both.offset[d];
    if (both.shape[d] <= 0) return std::nullopt;
  }
  return both;
}

int64_t bytes_needed(const Shape& shape, int64_t element) {
  int64_t bytes = element;
  for (const int64_t size : shape)
    check(!__builtin_mul_overflow(bytes, size, &bytes), "shape ", shape, " has too many elements");
  return bytes;
}

std::string tiling_fault(const Shape& shape, std::span<const Box> boxes) {
  int64_t filled = 0;
  for (size_t i = 0; i < boxes.size(); ++i) {
    if (!lies_in(boxes[i], shape)) return text("piece ", boxes[i], " is not inside ", shape);
    for (size_t j = 0; j < i; ++j)
      if (intersect(boxes[i], boxes[j]))
        return text("pieces ", boxes[j], " and ", boxes[i], " overlap");
    filled += boxes[i].numel();
  }
  if (filled == shape.numel()) return "";
  return text("its pieces hold ", filled, " of ", shape.numel(), " elements");
}

void copy_part(const Box& part, const std::byte* from, const Box& from_box, std::byte* to,
               const Box& to_box, int64_t element_size) {
  if (part.numel() == 0) return;
  const int64_t row = part.shape.rank() == 0 ? 1 : part.shape[-1];
  Shape index = part.offset;
  do {
    std::memcpy(to + position(to_box, index) * element_size,
                from + position(from_box, index) * element_size, size_t(row * element_size));
  } while (next_row(index, part));
}

}  // namespace gradus::train
