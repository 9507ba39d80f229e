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
// It may have State run(const T* x, int64_t n, int64_t r) for contiguous elements on the CPU, where
// that is faster than one add after the other in kLanes states.
//
// Note [order of reductions]
// combine must be associative and commutative in exact arithmetic. The order in which it is applied is
// a balanced tree that depends on sizes and strides alone, never on the number of threads: results
// are the same bit for bit on each run. A balanced tree is also accurate: an element passes through
// O(log n) roundings instead of n.
#include "ops/reduce_cpu.h"
#include "ops/reduce_cuda.h"

namespace gradus {

namespace detail {

/// y ← f folded over `dims` of x, or y + that. T and Y are the types of x and y.
template <class T, class Y, class F>
void reduce_into(const Results<Y>& y, const F& f, const Tensor& x, DimSet dims) {
  ReduceWalk walk = reduce_walk(x, dims);
  const T* data = x.data<T>();
#if defined(__CUDACC__)
  if (x.device().is_cuda()) return cuda_reduce(x.device(), walk, f, data, y);
#endif
  check(!x.device().is_cuda(), "reduce: this file was compiled without CUDA");
  cpu_reduce(walk, f, data, y);
}

}  // namespace detail

/// x reduced over `dims` with F<Compute<dtype>>{args...}, as a new tensor of `shape`: the kept sizes in
/// their order, with sizes of 1 wherever.
template <template <class> class F, class... Args>
Tensor reduce(const char* op, const Tensor& x, DimSet dims, const Shape& shape, Args... args) {
  check(bool(x), op, ": the tensor is undefined");
  return dispatch_floating(op, x.dtype(), [&]<class T>() {
    using A = Compute<T>;
    F<A> f{A(args)...};
    using Result = decltype(f.finish(f.identity()));
    using Y = std::conditional_t<std::is_same_v<Result, A>, T, Result>;
    Tensor y = empty(shape, dtype_of<Y>, x.device());
    if (y.numel() > 0) detail::reduce_into<T>(Results<Y>{y.template data<Y>()}, f, x, dims);
    return y;
  });
}

/// y ← Σ over all dims of x but the last, plus β y: a bias's gradient. β is 0 or 1. x (…, n), y (n)
/// contiguous, of the type that sums of x are formed in (f32 for 16-bit x). With β = 0 y is not read.
void sum_rows_into(const Tensor& y, const Tensor& x, double beta);

}  // namespace gradus
