#pragma once
// y_o = fold of f over the elements x_{o,r}, r in the reduced dimensions: the engine behind sum, max,
// argmax …, on both devices, for any strides. f is a struct template over the accumulator type A
// (double for f64, else float):
//
//   template <class A> struct Product {
//     using State = A;
//     GRADUS_HD State identity() const { return 1; }
//     GRADUS_HD State add(State s, A x, int64_t r) const { return s * x; }     // r: index of x, where
//     GRADUS_HD State combine(State a, State b) const { return a * b; }        //   one dim is reduced
//     GRADUS_HD A finish(State s) const { return s; }                          // or int64_t: y is i64
//   };
//
// Note [order of reductions]
// combine must be associative and commutative in exact arithmetic. The order in which it is applied is
// a balanced tree that depends on sizes and strides alone, never on the number of threads: results
// are the same bit for bit on each run. A balanced tree is also accurate: an element passes through
// O(log n) roundings instead of n.
#include "autograd/tensor.h"
#include "ops/ops.h"
#include "ops/reduce_cpu.h"
#include "ops/reduce_cuda.h"

namespace gradus {

/// A set of dimensions: bit d is dimension d.
using DimSet = uint32_t;

/// The set meant by `dims` (none: all), checked on behalf of `op`: in range, each at most once.
DimSet dims_of(const char* op, const Shape& shape, const Dims& dims);

/// `shape` with the dims of the set reduced to 1 (or erased).
Shape reduced_shape(const Shape& shape, DimSet set, bool keep_dims);

/// Splits x into the dimensions that are kept and those that are reduced (widest strides first, so
/// that as many as possible merge and memory is read in order).
ReduceWalk reduce_walk(const Tensor& x, DimSet set);

/// x reduced over `set` with F<Compute<dtype>>{args...}, as a new tensor of `shape`: the kept sizes in
/// their order, with sizes of 1 wherever.
template <template <class> class F, class... Args>
Tensor reduce(const char* op, const Tensor& x, DimSet set, const Shape& shape, Args... args) {
  check(bool(x), op, ": the tensor is undefined");
  return dispatch_floating(op, x.dtype(), [&]<class T>() {
    using A = Compute<T>;
    F<A> f{A(args)...};
    using Result = decltype(f.finish(f.identity()));
    using Y = std::conditional_t<std::is_same_v<Result, A>, T, Result>;
    Tensor y = empty(shape, dtype_of<Y>, x.device());
    if (y.numel() == 0) return y;
    ReduceWalk walk = reduce_walk(x, set);
#if defined(__CUDACC__)
    if (x.device().is_cuda()) {
      cuda_reduce(x.device(), walk, f, x.data<T>(), y.template data<Y>());
      return y;
    }
#endif
    check(!x.device().is_cuda(), "reduce: this file was compiled without CUDA");
    cpu_reduce(walk, f, static_cast<const T*>(x.data<T>()), y.template data<Y>());
    return y;
  });
}

}  // namespace gradus
