// The op cross_entropy and its loops on the CPU. The mathematics is in ops/cross_entropy.h.
#include "ops/cross_entropy.h"

#include "autograd/apply.h"
#include "autograd/gradcheck.h"
#include "core/elementwise.h"
#include "core/parallel_for.h"
#include "ops/cross_entropy_cuda.h"
#include "ops/ops.h"

namespace gradus {

namespace entropy {

template <class T, class I>
void forward_row(const Rows<T, I>& in, int64_t r) {
  using A = Compute<T>;
  const T* z = in.z + r * in.n;
  A m = -kInfinity<A>, s = 0, sum_z = 0;
#pragma omp simd reduction(max : m)
  for (int64_t j = 0; j < in.n; ++j) m = A(z[j]) > m ? A(z[j]) : m;
  if (m == -kInfinity<A>) m = 0;
#pragma omp simd reduction(+ : s, sum_z)
  for (int64_t j = 0; j < in.n; ++j) {
    s += math::exp(A(z[j]) - m);
    sum_z += A(z[j]);
  }
  in.write(r, m, s, sum_z);
}

template <class T, class I>
void forward_cpu(const Rows<T, I>& in) {
  for (int64_t r = 0; r < in.rows; ++r)
    if (in.counts(r) && !in.in_range(r))
      fail_index("cross_entropy", r, int64_t(in.target[r]), in.n);
  parallel_for(in.rows, std::max<int64_t>(1, kGrain / (in.n + 1)), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) in.counts(r) ? forward_row(in, r) : in.write_uncounted(r);
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
void total_cpu(const Total<A, I>& t) {
  double sum = 0, count = 0;
  for (int64_t r = 0; r < t.rows; ++r) {
    sum += double(t.loss[r]);
    count += int64_t(t.target[r]) != t.ignored;
  }
  t.write(sum, count);
}

}  // namespace entropy

namespace {

using namespace entropy;

/// Calls f with the Rows that the tensors make.
template <class F>
void with_rows(const Tensor& z, const Tensor& targets, const CrossEntropyOptions& options,
               const Tensor& scale, const Tensor& loss, F f) {
  dispatch_floating("cross_entropy", z.dtype(), [&]<class T>() {
    dispatch_index("cross_entropy", targets.dtype(), [&]<class I>() {
      using A = Compute<T>;
      f(Rows<T, I>{targets.numel(), z.size(-1), z.data<T>(), targets.data<I>(),
                   options.ignore_index, A(options.label_smoothing),
                   static_cast<Scale<A>*>(scale.raw()), loss ? loss.data<A>() : nullptr});
    });
  });
}

struct CrossEntropy {
  static constexpr auto name = "cross_entropy";
  CrossEntropyOptions options{};
  Saved logits{}, targets{};
  Tensor scale{};   // (N, 2): m and log s
  Tensor factor{};  // (): 1/count for a mean, else 1

  Tensor forward(const Tensor& z, const Tensor& t) {
    logits = z, targets = t;
    Tensor in = contiguous(z), target = contiguous(t);
    Device device = z.device();
    DType type = z.dtype() == DType::f64 ? DType::f64 : DType::f32;
    Tensor losses = empty(t.shape(), type, device), total = empty({}, type, device);
    scale = empty({t.numel(), 2}, type, device);
    factor = empty({}, type, device);
    with_rows(in, target, options, scale, losses, [&]<class T, class I>(const Rows<T, I>& rows) {
      using A = Compute<T>;
      const Total<A, I> sum{rows.rows,
                            rows.loss,
                            rows.target,
                            rows.ignored,
                            options.reduction == Reduction::mean,
                            total.data<A>(),
                            factor.data<A>()};
#if defined(__CUDACC__)
      if (device.is_cuda()) {
        if (rows.rows > 0) forward_cuda(device, rows);
        return total_cuda(device, sum);
      }
#endif
      forward_cpu(rows);
      total_cpu(sum);
    });
    return options.reduction == Reduction::none ? losses : total;
  }

  Tensors backward(const Tensor& gradient) {
    Tensor in = contiguous(*logits), target = contiguous(*targets), dy = contiguous(gradient);
    Tensor dz = empty_like(in);
    if (dz.numel() == 0) return {dz, {}};
    with_rows(in, target, options, scale, {}, [&]<class T, class I>(const Rows<T, I>& rows) {
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

}  // namespace

Tensor cross_entropy(const Tensor& logits, const Tensor& targets, CrossEntropyOptions options) {
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
  return apply(CrossEntropy{.options = options}, logits, targets);
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
       return cross_entropy_of(s, {0, 5});
     }},
};

}  // namespace gradus
