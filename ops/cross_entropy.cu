// The op cross_entropy and its loops on the CPU. The mathematics is in ops/cross_entropy.h.
#include "ops/cross_entropy.h"

#include "autograd/apply.h"
#include "autograd/gradcheck.h"
#include "autograd/keeps_graph.h"
#include "core/elementwise.h"
#include "core/parallel_for.h"
#include "ops/cross_entropy_cuda.h"
#include "ops/cross_entropy_sums.h"

namespace gradus {

namespace entropy {

/// Row r, with its gradient if there is a place for it. There the exponentials of wide types are kept.
template <class T, class I>
void forward_row(const Rows<T, I>& in, int64_t r) {
  using A = Compute<T>;
  constexpr bool kWide = sizeof(T) >= 4;
  const T* z = in.z + r * in.n;
  T* dz = in.dz ? in.dz + r * in.n : nullptr;
  const int64_t t = in.target[r];
  const A z_t = A(z[t]);
  A m = -kInfinity<A>, s = 0, sum_z = 0;
#pragma omp simd reduction(max : m)
  for (int64_t j = 0; j < in.n; ++j) m = A(z[j]) > m ? A(z[j]) : m;
  if (m == -kInfinity<A>) m = 0;
  if (kWide && dz) {
#pragma omp simd reduction(+ : s, sum_z)
    for (int64_t j = 0; j < in.n; ++j) {
      sum_z += A(z[j]);
      A e = math::exp(A(z[j]) - m);
      s += e;
      dz[j] = T(e);
    }
  } else {
#pragma omp simd reduction(+ : s, sum_z)
    for (int64_t j = 0; j < in.n; ++j) {
      s += math::exp(A(z[j]) - m);
      sum_z += A(z[j]);
    }
  }
  in.write(r, m, s, sum_z, z_t);
  if (!dz) return;
  const Gradient<A> gradient(in, s);
  if (kWide)
    for (int64_t j = 0; j < in.n; ++j) dz[j] = T(gradient(A(dz[j]), false));
  else
#pragma GCC ivdep  // dz is z or does not overlap it
    for (int64_t j = 0; j < in.n; ++j) dz[j] = T(gradient(math::exp(A(z[j]) - m), false));
  dz[t] = T(gradient(math::exp(z_t - m), true));
}

template <class T, class I>
void forward_cpu(const Rows<T, I>& in) {
  for (int64_t r = 0; r < in.rows; ++r)
    if (in.counts(r) && !in.in_range(r))
      fail_index("cross_entropy", r, int64_t(in.target[r]), in.n);
  parallel_for(in.rows, std::max<int64_t>(1, kGrain / (in.n + 1)), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      if (in.counts(r)) {
        forward_row(in, r);
        continue;
      }
      in.write_uncounted(r);
      if (in.dz) std::fill_n(in.dz + r * in.n, in.n, T(Compute<T>(0)));
    }
  });
}

template <class T, class I>
void backward_cpu(const Rows<T, I>& in, RowGradient<Compute<T>> dloss, T* dz) {
  using A = Compute<T>;
  parallel_for(in.rows, std::max<int64_t>(1, kGrain / (in.n + 1)), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const T* z = in.z + r * in.n;
      T* to = dz + r * in.n;
      if (in.scale[r].log_sum == -kInfinity<A>) {
        std::fill_n(to, in.n, T(A(0)));
        continue;
      }
      const Differentiate<A> d(in, r, dloss(r));
#pragma GCC ivdep  // dz is z or does not overlap it
      for (int64_t j = 0; j < in.n; ++j) to[j] = T(d(j, A(z[j])));
    }
  });
}

template <class A, class I>
void factor_cpu(const Total<A, I>& t) {
  double count = 0;
  for (int64_t r = 0; r < t.rows; ++r) count += int64_t(t.target[r]) != t.ignored;
  t.write_factor(count);
}

template <class A, class I>
void total_cpu(const Total<A, I>& t) {
  double sum = 0, count = 0;
  for (int64_t r = 0; r < t.rows; ++r) {
    sum += double(t.loss[r]);
    count += int64_t(t.target[r]) != t.ignored;
  }
  t.write(sum, count);
}

/// to_i ← f from_i for the n numbers at `from`, or nothing if that changes nothing.
template <class T>
void multiply_cpu(int64_t n, Compute<T> f, const T* from, T* to) {
  using A = Compute<T>;
  if (f == 1 && from == to) return;
  parallel_for(n, kGrain, [&](int64_t begin, int64_t end) {
#pragma GCC ivdep
    for (int64_t i = begin; i < end; ++i) to[i] = T(f * A(from[i]));
  });
}

/// Calls f with the Total of the targets, for losses of `type`, that has no places to read and write yet.
template <class F>
void with_total(const Tensor& targets, const CrossEntropyOptions& options, DType type, F f) {
  dispatch_floating("cross_entropy", type, [&]<class A>() {
    if constexpr (sizeof(A) >= 4)
      dispatch_index("cross_entropy", targets.dtype(), [&]<class I>() {
        f(Total<A, I>{.rows = targets.numel(),
                      .loss = nullptr,
                      .target = targets.data<I>(),
                      .ignored = options.ignore_index,
                      .mean = options.reduction == Reduction::mean,
                      .scale = options.reduction == Reduction::none ? 1 : options.scale,
                      .result = nullptr,
                      .factor = nullptr});
      });
  });
}

void write_factor(const Tensor& targets, const CrossEntropyOptions& options, const Tensor& factor) {
  with_total(targets, options, factor.dtype(), [&]<class A, class I>(Total<A, I> total) {
    total.factor = factor.data<A>();
#if defined(__CUDACC__)
    if (factor.device().is_cuda()) return factor_cuda(factor.device(), total);
#endif
    factor_cpu(total);
  });
}

void write_total(const Tensor& losses, const Tensor& targets, const CrossEntropyOptions& options,
                 const Tensor& result) {
  with_total(targets, options, result.dtype(), [&]<class A, class I>(Total<A, I> total) {
    total.loss = losses.data<A>(), total.result = result.data<A>();
#if defined(__CUDACC__)
    if (result.device().is_cuda()) return total_cuda(result.device(), total);
#endif
    total_cpu(total);
  });
}

void check_operands(const Tensor& logits, const Tensor& targets,
                    const CrossEntropyOptions& options) {
  check(logits && targets, "cross_entropy: an operand is undefined");
  check(is_floating(logits.dtype()) &&
            (targets.dtype() == DType::i32 || targets.dtype() == DType::i64),
        "cross_entropy: floating logits and i32 or i64 targets are needed, got ", logits.describe(),
        " and ", targets.describe());
  Shape rows = logits.shape();
  if (rows.rank() > 0) rows.erase(rows.rank() - 1);
  check(logits.rank() > 0 && rows == targets.shape() && logits.device() == targets.device(),
        "cross_entropy: logits ", logits.describe(), " and targets ", targets.describe(),
        "; (…, C) and (…) on one device are needed");
  check(options.label_smoothing >= 0 && options.label_smoothing <= 1,
        "cross_entropy: label smoothing ", options.label_smoothing, " is outside [0, 1]");
}

}  // namespace entropy

namespace {

using namespace entropy;

/// Calls f with the Rows that the tensors make.
template <class F>
void with_rows(const Tensor& z, const Tensor& targets, const CrossEntropyOptions& options,
               const Tensor& scale, F f) {
  dispatch_floating("cross_entropy", z.dtype(), [&]<class T>() {
    dispatch_index("cross_entropy", targets.dtype(), [&]<class I>() {
      using A = Compute<T>;
      f(Rows<T, I>{targets.numel(), z.size(-1), z.data<T>(), targets.data<I>(),
                   options.ignore_index, A(options.label_smoothing),
                   scale ? static_cast<Scale<A>*>(scale.raw()) : nullptr, nullptr});
    });
  });
}

/// to ← f from, where f is a number on the same device.
void multiply(const Tensor& f, const Tensor& from, const Tensor& to) {
  dispatch_floating("cross_entropy", from.dtype(), [&]<class T>() {
    const Compute<T>* factor = f.data<Compute<T>>();
#if defined(__CUDACC__)
    if (from.device().is_cuda())
      return multiply_cuda(from.device(), from.numel(), factor, from.data<T>(), to.data<T>());
#endif
    multiply_cpu(from.numel(), *factor, from.data<T>(), to.data<T>());
  });
}

struct CrossEntropy {
  static constexpr auto name = "cross_entropy";
  CrossEntropyOptions options{};
  bool may_overwrite = false;  // the logits: nobody else has them
  Tensor factor{};             // (): of the loss of each row in the result
  Tensor at_once{};            // dz for dy = 1, or undefined, and then what it takes to make it:
  Saved logits{}, targets{};
  Tensor scale{};  // (N, 2): m and log s

  Tensor forward(const Tensor& z, const Tensor& t) {
    Device device = z.device();
    DType type = z.dtype() == DType::f64 ? DType::f64 : DType::f32;
    Tensor in = contiguous(z), target = contiguous(t);
    Tensor losses = empty(t.shape(), type, device), total = empty({}, type, device);
    factor = empty({}, type, device);
    const bool recorded = detail::current_node(), none = options.reduction == Reduction::none;
    if (recorded && !none && z.dtype() != DType::f16) {
      at_once = may_overwrite || !in.is_same(z) ? in.detach() : empty_like(in);
      at_once.will_write(name);
    } else {
      logits = z, targets = t;
      scale = empty({t.numel(), 2}, type, device);
    }
    with_rows(in, target, options, scale, [&]<class T, class I>(Rows<T, I> rows) {
      using A = Compute<T>;
      rows.loss = losses.data<A>();
      if (at_once) rows.dz = at_once.data<T>(), rows.dloss = factor.data<A>();
      run(device, rows,
          Total<A, I>{rows.rows, rows.loss, rows.target, rows.ignored,
                      options.reduction == Reduction::mean, none ? 1 : options.scale,
                      total.data<A>(), factor.data<A>()});
    });
    return none ? losses : total;
  }

  template <class T, class I, class A = Compute<T>>
  static void run(Device device, const Rows<T, I>& rows, const Total<A, I>& total) {
#if defined(__CUDACC__)
    if (device.is_cuda()) {
      factor_cuda(device, total);
      if (rows.rows > 0) forward_cuda(device, rows);
      return total_cuda(device, total);
    }
#endif
    check(!device.is_cuda(), name, ": this file was compiled without CUDA");
    factor_cpu(total);
    forward_cpu(rows);
    total_cpu(total);
  }

  Tensors backward(const Tensor& gradient) {
    Tensor dy = contiguous(gradient);
    if (at_once) {
      // What another backward will need stays as it is; else it is given away.
      Tensor made = detail::keeps_graph() ? at_once : std::move(at_once);
      Tensor dz = at_once ? empty_like(made) : made;
      if (dz.numel() > 0) multiply(dy, made, dz);
      return {std::move(dz), {}};
    }
    Tensor in = contiguous(*logits), target = contiguous(*targets), dz = empty_like(in);
    if (dz.numel() == 0) return {dz, {}};
    with_rows(in, target, options, scale, [&]<class T, class I>(const Rows<T, I>& rows) {
      using A = Compute<T>;
      const RowGradient<A> dloss{dy.data<A>(), options.reduction == Reduction::none,
                                 factor.data<A>()};
#if defined(__CUDACC__)
      if (in.device().is_cuda()) return backward_cuda(in.device(), rows, dloss, dz.data<T>());
#endif
      backward_cpu(rows, dloss, dz.data<T>());
    });
    return {dz, {}};
  }
};

Tensor checked(CrossEntropy op, const Tensor& logits, const Tensor& targets) {
  const CrossEntropyOptions options = op.options;
  check_operands(logits, targets, options);
  const bool of_rows = options.reduction == Reduction::none && options.scale != 1;
  Tensor loss = apply(std::move(op), logits, targets);
  return of_rows ? mul(loss, options.scale) : loss;
}

}  // namespace

Tensor cross_entropy(const Tensor& logits, const Tensor& targets, CrossEntropyOptions options) {
  return checked({.options = options}, logits, targets);
}
Tensor cross_entropy(Tensor&& logits, const Tensor& targets, CrossEntropyOptions options) {
  const bool sole = logits && logits.is_sole_owner();
  return checked({.options = options, .may_overwrite = sole}, logits, targets);
}

Tensor count_targets(const Tensor& targets, int64_t ignore_index, DType dtype) {
  Tensor ignored = full({}, double(ignore_index), targets.dtype(), targets.device());
  return sum(cast(not_equal(targets, ignored), dtype));
}

static Tensor cross_entropy_of(Sampler& s, const Shape& shape, CrossEntropyOptions options = {},
                               DType ids = DType::i64) {
  Shape rows = shape;
  rows.erase(rows.rank() - 1);
  return cross_entropy(s.normal(shape), s.ids(rows, shape[-1], ids), options);
}

static const Gradcheck checks[] = {
    {"cross_entropy",
     [](Sampler& s) {
       return cross_entropy_of(s, {4, 5});
     }},
    {"cross_entropy",
     [](Sampler& s) {
       return cross_entropy_of(s, {2, 3, 300}, {}, DType::i32);
     }},
    {"cross_entropy",
     [](Sampler& s) {
       return cross_entropy_of(s, {3, 5}, {.label_smoothing = 0.1, .reduction = Reduction::none});
     }},
    {"cross_entropy",
     [](Sampler& s) {
       return cross_entropy_of(s, {9, 3}, {.ignore_index = 1, .reduction = Reduction::sum});
     }},
    {"cross_entropy",
     [](Sampler& s) {
       return cross_entropy_of(s, {5, 8}, {.label_smoothing = 0.3, .scale = 0.25});
     }},
    {"cross_entropy",  // logits that nobody else has
     [](Sampler& s) {
       Tensor ids = s.ids({4}, 24);
       return cross_entropy(s.normal({4, 24}) * s.normal({24}), ids, {.ignore_index = 3});
     }},
    {"cross_entropy",
     [](Sampler& s) {
       return cross_entropy_of(s, {0, 5});
     }},
};

}  // namespace gradus
