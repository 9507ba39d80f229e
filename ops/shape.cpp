// Views: other shapes of the same memory. A view costs no copy and shares the version counter of its
// storage. Each backward is the inverse of the view:
//
//   reshape    dx = dy in the old shape          expand   dx = dy summed over the expanded dimensions
//   permute    dx = dy permuted back             slice    dx = dy put into zeros
//   split      dx = cat(dy₀, dy₁, …)             cat      dxᵢ = the slice of dy that xᵢ filled
#include "autograd/accumulate.h"
#include "autograd/apply.h"
#include "autograd/gradcheck.h"
#include "ops/ops.h"

namespace gradus {
namespace {

/// Strides that read `x` in the shape `to` without moving it. False if there are none.
bool view_strides(const Tensor& x, const Shape& to, Strides& strides) {
  strides = contiguous_strides(to);
  if (x.is_contiguous() || x.numel() == 0) return true;
  // Walk both shapes from the last dimension; each run of dimensions of x that lies evenly in memory
  // must be filled exactly by a run of dimensions of `to`.
  int d = x.rank() - 1, t = to.rank() - 1;
  while (d >= 0) {
    int64_t step = x.strides()[d], length = x.shape()[d];
    for (--d; d >= 0 && (x.shape()[d] == 1 || length == 1 || x.strides()[d] == step * length); --d) {
      if (length == 1) step = x.strides()[d];
      length *= x.shape()[d];
    }
    int64_t filled = 1;
    for (; t >= 0 && filled < length; --t) {
      strides[t] = step * filled;
      filled *= to[t];
    }
    if (filled != length) return false;
  }
  for (; t >= 0; --t) strides[t] = 1;  // sizes of 1
  return true;
}

Shape resolved(const Tensor& x, Shape shape) {
  int unknown = -1;
  int64_t known = 1;
  for (int d = 0; d < shape.rank(); ++d) {
    if (shape[d] != -1) known *= shape[d];
    else check(std::exchange(unknown, d) == -1, "reshape: two sizes of −1 in ", shape);
  }
  if (unknown >= 0) shape[unknown] = known ? x.numel() / known : 0;
  check(shape.numel() == x.numel(), "reshape: ", x.shape(), " has ", x.numel(),
        " elements and cannot become ", shape);
  return shape;
}

struct Reshape {
  static constexpr auto name = "reshape";
  static constexpr bool recordable = true;
  Shape to{}, from{};
  Tensor forward(const Tensor& x) {
    from = x.shape();
    Strides strides;
    if (view_strides(x, to, strides)) return x.alias(to, strides, x.offset());
    Tensor copy = clone_values(x);
    return copy.alias(to, contiguous_strides(to), 0);
  }
  Tensor backward(const Tensor& dy) { return reshape(dy, from); }
};

struct Permute {
  static constexpr auto name = "permute";
  static constexpr bool recordable = true;
  Dims dims{};
  Tensor forward(const Tensor& x) {
    Shape shape = x.shape();
    Strides strides = x.strides();
    for (int d = 0; d < x.rank(); ++d) {
      shape[d] = x.shape()[dims[size_t(d)]];
      strides[d] = x.strides()[dims[size_t(d)]];
    }
    return x.alias(shape, strides, x.offset());
  }
  Tensor backward(const Tensor& dy) {
    Dims back(dims.size());
    for (size_t d = 0; d < dims.size(); ++d) back[size_t(dims[d])] = int(d);
    return permute(dy, back);
  }
};

Tensor slice_view(const Tensor& x, int dim, int64_t begin, int64_t count, int64_t step) {
  Shape shape = x.shape();
  Strides strides = x.strides();
  shape[dim] = count;
  strides[dim] *= step;
  return x.alias(shape, strides, x.offset() + begin * x.strides()[dim]);
}

Tensor unslice(const Tensor& y, const Shape& shape, int dim, int64_t begin, int64_t step);

struct Slice {
  static constexpr auto name = "slice";
  static constexpr bool recordable = true;
  int dim = 0;
  int64_t begin = 0, count = 0, step = 1;
  Shape shape{};
  Tensor forward(const Tensor& x) {
    shape = x.shape();
    return slice_view(x, dim, begin, count, step);
  }
  Tensor backward(const Tensor& dy) { return unslice(dy, shape, dim, begin, step); }
};

/// The transpose of Slice: y in a tensor of zeros.
struct Unslice {
  static constexpr auto name = "unslice";
  static constexpr bool recordable = true;
  Shape shape{};
  int dim = 0;
  int64_t begin = 0, end = 0, step = 1;
  Tensor forward(const Tensor& y) {
    Tensor x = zeros(shape, y.dtype(), y.device());
    write_values(slice_view(x, dim, begin, y.size(dim), step), y);
    return x;
  }
  Tensor backward(const Tensor& dx) { return slice(dx, dim, begin, end, step); }
};

Tensor unslice(const Tensor& y, const Shape& shape, int dim, int64_t begin, int64_t step) {
  int64_t end = y.size(dim) ? begin + (y.size(dim) - 1) * step + 1 : begin;
  return apply(Unslice{.shape = shape, .dim = dim, .begin = begin, .end = end, .step = step}, y);
}

struct Expand {
  static constexpr auto name = "expand";
  static constexpr bool recordable = true;
  Shape to{}, from{};
  Tensor forward(const Tensor& x) {
    from = x.shape();
    Strides strides = to;
    for (int d = 1; d <= to.rank(); ++d)
      strides[-d] = d <= x.rank() && x.shape()[-d] == to[-d] ? x.strides()[-d] : 0;
    return x.alias(to, strides, x.offset());
  }
  Tensor backward(const Tensor& dy) { return sum_to(dy, from); }
};

struct Split {
  static constexpr auto name = "split";
  static constexpr bool recordable = true;
  std::vector<int64_t> sizes{};
  int dim = 0;
  Shape shape{};
  DType dtype{};
  Device device{};
  Tensors forward(const Tensor& x) {
    shape = x.shape(), dtype = x.dtype(), device = x.device();
    Tensors parts;
    int64_t begin = 0;
    for (int64_t size : sizes) {
      parts.push_back(slice_view(x, dim, begin, size, 1));
      begin += size;
    }
    return parts;
  }
  Tensor backward(const Tensors& dy) {
    Tensors parts = dy;
    for (size_t i = 0; i < parts.size(); ++i) {
      if (parts[i]) continue;  // a part that nobody used
      Shape s = shape;
      s[dim] = sizes[i];
      parts[i] = zeros(s, dtype, device);
    }
    return cat(parts, dim);
  }
};

struct Cat {
  static constexpr auto name = "cat";
  static constexpr bool recordable = true;
  int dim = 0;
  std::vector<int64_t> sizes{};
  Tensor forward(const Tensors& xs) {
    Shape shape = xs[0].shape();
    shape[dim] = 0;
    for (const Tensor& x : xs) {
      sizes.push_back(x.size(dim));
      shape[dim] += x.size(dim);
    }
    Tensor y = empty(shape, xs[0].dtype(), xs[0].device());
    int64_t begin = 0;
    for (const Tensor& x : xs) {
      write_values(slice_view(y, dim, begin, x.size(dim), 1), x);
      begin += x.size(dim);
    }
    return y;
  }
  Tensors backward(const Tensor& dy, Needs need) {
    Tensors dxs(sizes.size());
    int64_t begin = 0;
    for (size_t i = 0; i < sizes.size(); begin += sizes[i++])
      if (need[int(i)]) dxs[i] = slice(dy, dim, begin, begin + sizes[i]);
    return dxs;
  }
};

void check_joinable(const Tensors& xs, int dim, const char* op) {
  for (const Tensor& x : xs) {
    Shape a = x.shape(), b = xs[0].shape();
    if (a.rank() == b.rank()) a[dim] = b[dim] = 0;
    check(a == b && x.dtype() == xs[0].dtype() && x.device() == xs[0].device(), op, ": ",
          xs[0].describe(), " and ", x.describe(), " differ in more than dimension ", dim);
  }
}

}  // namespace

Tensor reshape(const Tensor& x, Shape shape) {
  shape = resolved(x, shape);
  return shape == x.shape() ? x : apply(Reshape{.to = shape}, x);
}

Tensor permute(const Tensor& x, const Dims& dims) {
  check(int(dims.size()) == x.rank(), "permute: ", dims.size(), " dimensions for shape ", x.shape());
  Dims order;
  unsigned seen = 0;
  for (int d : dims) {
    order.push_back(x.shape().dim(d, "permute"));
    seen |= 1u << order.back();
  }
  check(seen + 1 == 1u << x.rank(), "permute: a dimension of ", x.shape(), " is named twice");
  return apply(Permute{.dims = order}, x);
}

Tensor transpose(const Tensor& x, int dim0, int dim1) {
  Dims order;
  for (int d = 0; d < x.rank(); ++d) order.push_back(d);
  std::swap(order[size_t(x.shape().dim(dim0, "transpose"))],
            order[size_t(x.shape().dim(dim1, "transpose"))]);
  return apply(Permute{.dims = order}, x);
}

Tensor slice(const Tensor& x, int dim, int64_t begin, int64_t end, int64_t step) {
  dim = x.shape().dim(dim, "slice");
  check(0 <= begin && begin <= end && end <= x.size(dim) && step >= 1, "slice: [", begin, ", ", end,
        ") with step ", step, " of dimension ", dim, " of ", x.shape());
  if (begin == 0 && end == x.size(dim) && step == 1) return x;
  return apply(Slice{.dim = dim, .begin = begin, .count = (end - begin + step - 1) / step, .step = step},
               x);
}

Tensor select(const Tensor& x, int dim, int64_t index) {
  dim = x.shape().dim(dim, "select");
  check(0 <= index && index < x.size(dim), "select: index ", index, " of dimension ", dim, " of ",
        x.shape());
  return squeeze(slice(x, dim, index, index + 1), dim);
}

Tensor expand(const Tensor& x, const Shape& shape) {
  check(broadcast(x.shape(), shape, "expand") == shape, "expand: ", x.shape(), " cannot become ", shape);
  return shape == x.shape() ? x : apply(Expand{.to = shape}, x);
}

Tensor squeeze(const Tensor& x, int dim) {
  dim = x.shape().dim(dim, "squeeze");
  check(x.size(dim) == 1, "squeeze: dimension ", dim, " of ", x.shape(), " is not 1");
  Shape shape = x.shape();
  shape.erase(dim);
  return reshape(x, shape);
}

Tensor unsqueeze(const Tensor& x, int dim) {
  check(dim >= -x.rank() - 1 && dim <= x.rank(), "unsqueeze: dimension ", dim, " for ", x.shape());
  Shape shape = x.shape();
  shape.insert(dim < 0 ? dim + x.rank() + 1 : dim, 1);
  return reshape(x, shape);
}

Tensors split(const Tensor& x, const std::vector<int64_t>& sizes, int dim) {
  dim = x.shape().dim(dim, "split");
  int64_t total = 0;
  for (int64_t s : sizes) {
    check(s >= 0, "split: negative size ", s);
    total += s;
  }
  check(total == x.size(dim), "split: the sizes add up to ", total, ", dimension ", dim, " of ",
        x.shape(), " does not");
  return apply(Split{.sizes = sizes, .dim = dim}, x);
}

Tensors split(const Tensor& x, int parts, int dim) {
  int64_t size = x.size(dim);
  check(parts > 0 && size % parts == 0, "split: ", size, " elements do not make ", parts, " equal parts");
  return split(x, std::vector<int64_t>(size_t(parts), size / parts), dim);
}

Tensor cat(const Tensors& xs, int dim) {
  check(!xs.empty(), "cat of no tensors");
  dim = xs[0].shape().dim(dim, "cat");
  check_joinable(xs, dim, "cat");
  return apply(Cat{.dim = dim}, xs);
}

Tensor stack(const Tensors& xs, int dim) {
  check(!xs.empty(), "stack of no tensors");
  Tensors rows;
  for (const Tensor& x : xs) {
    check(x.shape() == xs[0].shape(), "stack: shapes ", xs[0].shape(), " and ", x.shape(), " differ");
    rows.push_back(unsqueeze(x, dim));
  }
  return cat(rows, dim < 0 ? dim + xs[0].rank() + 1 : dim);
}

static const Gradcheck checks[] = {
    {"reshape", [](Sampler& s) { return reshape(s.normal({2, 6}), {3, -1}); }, true},
    {"reshape", [](Sampler& s) { return reshape(transpose(s.normal({2, 3, 4}), 0, 2), {4, 6}); }, true},
    {"reshape", [](Sampler& s) { return reshape(s.normal({0, 6}), {3, 0}); }},
    {"permute", [](Sampler& s) { return permute(s.normal({2, 3, 4}), {2, 0, -2}); }, true},
    {"permute", [](Sampler& s) { return transpose(s.normal({2, 3}), 0, 1); }, true},
    {"slice", [](Sampler& s) { return slice(s.normal({3, 7}), 1, 1, 6, 2); }, true},
    {"slice", [](Sampler& s) { return select(s.normal({3, 4}), 0, 2); }, true},
    {"slice", [](Sampler& s) { return slice(s.normal({3, 4}), 0, 1, 1); }},
    {"unslice", [](Sampler& s) { return unslice(s.normal({3, 2}), {3, 7}, 1, 2, 3); }, true},
    {"expand", [](Sampler& s) { return expand(s.normal({3, 1}), {2, 3, 4}); }, true},
    {"split",
     [](Sampler& s) {
       Tensors parts = split(s.normal({2, 6}), {1, 2, 3}, 1);
       return cat({parts[2], parts[0]}, 1);
     },
     true},
    {"cat", [](Sampler& s) { return cat({s.normal({2, 3}), s.normal({0, 3}), s.normal({1, 3})}, 0); }, true},
    {"cat", [](Sampler& s) { return stack({s.normal({2, 3}), s.normal({2, 3})}, -1); }, true},
};

}  // namespace gradus
