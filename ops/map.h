#pragma once
// map(f, x, y, …) → f(x_i, y_i, …): one functor, both devices, every floating dtype.
//
// Inputs broadcast against each other and may have any strides. f is a struct with
//   template <class T> GRADUS_HD T operator()(T x, …) const
// where T is Compute<the dtype>: float, or double. (A named struct, not a lambda: the profiler shows
// the name, and nvcc does not take generic lambdas into kernels.)
#include "autograd/tensor.h"
#include "core/elementwise.h"

namespace gradus {

namespace detail {

/// Error unless all operands have the dtype and device of the first. `op` is the functor's op.
template <class... Rest>
void check_operands(const char* op, const Tensor& x, const Rest&... rest) {
  check((bool(x) && ... && bool(rest)), op, ": an operand is undefined");
  bool same = ((rest.dtype() == x.dtype() && rest.device() == x.device()) && ...);
  if (!same) [[unlikely]] {
    std::ostringstream list;
    list << x.describe();
    ((list << " and " << rest.describe()), ...);
    fail("operands must have one type and one device in ", op, ": ", list.str(),
         "; cast() or to() them first");
  }
}

inline Shape common_shape(const char*, const Tensor& x) { return x.shape(); }
template <class... Rest>
Shape common_shape(const char* op, const Tensor& x, const Tensor& y, const Rest&... rest) {
  Shape s = x.shape() == y.shape() ? x.shape() : broadcast(x.shape(), y.shape(), op);
  ((s = s == rest.shape() ? s : broadcast(s, rest.shape(), op)), ...);
  return s;
}

template <class Y, class X, class F, class... Xs>
void map_into(F f, const Tensor& y, const Xs&... xs) {
  Walk<sizeof...(Xs) + 1> walk({&y.shape(), &xs.shape()...}, {&y.strides(), &xs.strides()...});
  elementwise(y.device(), walk, f, y.data<Y>(), static_cast<const X*>(xs.template data<X>())...);
}

}  // namespace detail

/// A new tensor of f(xs...), in the dtype of xs. `op` names the op in errors.
template <class F, class... Xs>
Tensor map(const char* op, F f, const Tensor& x, const Xs&... xs) {
  detail::check_operands(op, x, xs...);
  Tensor y = empty(detail::common_shape(op, x, xs...), x.dtype(), x.device());
  dispatch_floating(op, x.dtype(), [&]<class T>() { detail::map_into<T, T>(f, y, x, xs...); });
  return y;
}

/// The same with a truth value (u8, 0 or 1) as result: comparisons.
template <class F, class... Xs>
Tensor map_to_mask(const char* op, F f, const Tensor& x, const Xs&... xs) {
  detail::check_operands(op, x, xs...);
  Tensor y = empty(detail::common_shape(op, x, xs...), DType::u8, x.device());
  dispatch_all(x.dtype(), [&]<class T>() { detail::map_into<uint8_t, T>(f, y, x, xs...); });
  return y;
}

}  // namespace gradus
