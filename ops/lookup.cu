#include "ops/lookup.h"

#include "autograd/accumulate.h"
#include "autograd/gradcheck.h"
#include "ops/lookup_cpu.h"
#include "ops/lookup_cuda.h"
#include "ops/lookup_sorted_cuda.h"

namespace gradus {
namespace {

/// Calls f with the types of dy and of `into`: the same, or f32 for narrower dy.
template <class F>
void dispatch_add(const char* op, DType dy, DType into, F f) {
  dispatch_floating(op, dy, [&]<class T>() {
    if (into == dy) return f.template operator()<T, T>();
    if constexpr (sizeof(T) == 2)
      if (into == DType::f32) return f.template operator()<T, float>();
    fail("rows of ", dy, " cannot be added to ", into, " by ", op);
  });
}

struct PutRows {
  static constexpr auto name = "put_rows";
  static constexpr bool recordable = true;
  RowMap map{};
  Saved ids{};
  Tensor forward(const Tensor& dy, const Tensor& i) {
    ids = i;
    Tensor dx = empty(map.table, dy.dtype(), dy.device());
    add_rows(name, map, dx, dy, i, 0);
    return dx;
  }
  Tensors backward(const Tensor& dx);
};

Tensors PutRows::backward(const Tensor& dx) {
  return {apply(TakeRows<kIndexSelect>{.map = map}, dx, *ids), Tensor{}};
}

}  // namespace

void check_ids(const char* op, const Tensor& x, const Tensor& ids) {
  check(bool(x) && bool(ids), op, ": an operand is undefined");
  check(ids.dtype() == DType::i32 || ids.dtype() == DType::i64,
        "integer indices (i32 or i64) are needed by ", op, ", got ", ids.describe());
  check(ids.device() == x.device(), op, ": the indices are ", ids.describe(), ", the tensor is ",
        x.describe(), "; move one with to()");
}

Tensor take_rows(const char* op, const RowMap& map, const Tensor& x, const Tensor& ids) {
  check_ids(op, x, ids);
  Tensor table = x.is_contiguous() ? x : clone_values(x);
  Tensor list = ids.is_contiguous() ? ids : clone_values(ids);
  Tensor y = empty(map.result, x.dtype(), x.device());
  detail::Keys keys(map, list);
#if defined(__CUDACC__)
  if (x.device().is_cuda()) {
    if (y.numel())
      detail::cuda_take(x.device(), op, map, keys, size_of(x.dtype()), table.raw(), y.raw());
    return y;
  }
#endif
  check(!x.device().is_cuda(), op, ": this file was compiled without CUDA");
  detail::check_range(op, keys, list.numel());
  if (y.numel())
    dispatch_all(x.dtype(), [&]<class T>() {
      detail::cpu_take<T>(map, keys, map.length, table.raw(), y.raw());
    });
  return y;
}

bool can_add_rows(const Tensor& into, const Tensor& dy) {
  bool narrow = size_of(dy.dtype()) == 2 && into.dtype() == DType::f32;
  return into.is_contiguous() && into.device() == dy.device() &&
         (narrow || into.dtype() == dy.dtype());
}

void add_rows(const char* op, const RowMap& map, const Tensor& into, const Tensor& dy,
              const Tensor& ids, double beta) {
  check_ids(op, dy, ids);
  Tensor rows = dy.is_contiguous() ? dy : clone_values(dy);
  Tensor list = ids.is_contiguous() ? ids : clone_values(ids);
  detail::Keys keys(map, list);
  if (!dy.device().is_cuda()) detail::check_range(op, keys, list.numel());
  into.will_write(op);
  dispatch_add(op, dy.dtype(), into.dtype(), [&]<class T, class D>() {
    const T* from = rows.data<T>();
#if defined(__CUDACC__)
    if (dy.device().is_cuda())
      return detail::cuda_add(dy.device(), op, map, keys, from, into.data<D>(), beta != 0);
#endif
    check(!dy.device().is_cuda(), op, ": this file was compiled without CUDA");
    detail::cpu_add(map, keys, from, into.data<D>(), beta != 0);
  });
}

Tensor put_rows(const RowMap& map, const Tensor& dy, const Tensor& ids) {
  return apply(PutRows{.map = map}, dy, ids);
}

// ---- examples for the gradient check: three rows into a table of four, and back

static Tensor put_three(const Tensor& dy, const Tensor& ids) {
  return put_rows({.table = {4, 2}, .result = {3, 2}, .limit = 4, .count = 3, .length = 2}, dy,
                  ids);
}
static const Gradcheck checks[] = {
    {"put_rows",
     [](Sampler& s) {
       return put_three(s.normal({3, 2}), s.ids({3}, 4));
     },
     true},
};

}  // namespace gradus
