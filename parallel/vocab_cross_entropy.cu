// The op vocab_cross_entropy and its loops on the CPU. The mathematics is in parallel/vocab_entropy.h.
#include "autograd/apply.h"
#include "autograd/gradcheck.h"
#include "autograd/keeps_graph.h"
#include "core/elementwise.h"
#include "ops/cross_entropy_sums.h"
#include "parallel/vocab_entropy_cuda.h"
#include "parallel/vocab_parallel.h"

namespace gradus::parallel {
namespace {

using entropy::RowGradient;

template <class T, class I>
RowPart<Compute<T>> part_of_row(const VocabRows<T, I>& in, int64_t r) {
  using A = Compute<T>;
  RowPart<A> p;
  const T* z = in.row(r);
  A m = p.max, s = 0, sum_z = 0;
#pragma omp simd reduction(max : m)
  for (int64_t j = 0; j < in.real; ++j) m = A(z[j]) > m ? A(z[j]) : m;
#pragma omp simd reduction(+ : s, sum_z)
  for (int64_t j = 0; j < in.real; ++j) {
    s += math::exp(A(z[j]) - m);
    sum_z += A(z[j]);
  }
  return {m, s, in.owns(r) ? A(z[in.column(r)]) : A(0), sum_z};
}

template <class T, class I>
void parts_cpu(const VocabRows<T, I>& in) {
  for (int64_t r = 0; r < in.rows; ++r)
    if (in.counts(r) && !in.in_range(r))
      fail_index("cross_entropy", r, int64_t(in.target[r]), in.vocabulary);
  parallel_for(in.rows, kGrain / (in.width + 1) + 1, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      in.part[r] = in.counts(r) ? part_of_row(in, r) : RowPart<Compute<T>>{};
  });
}

template <class T, class I>
void gradient_cpu(const VocabRows<T, I>& in, RowGradient<Compute<T>> dloss, T* dz) {
  using A = Compute<T>;
  parallel_for(in.rows, kGrain / (in.width + 1) + 1, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const T* z = in.row(r);
      T* to = dz + r * in.width;
      const bool none = in.scale[r].log_sum == -entropy::kInfinity<A>;
      const int64_t n = none ? 0 : in.real;
      const entropy::Differentiate<A> d(in, r, dloss(r));
#pragma GCC ivdep  // dz is z or does not overlap it
      for (int64_t j = 0; j < n; ++j) to[j] = T(d(in.first + j, A(z[j])));
      std::fill_n(to + n, in.width - n, T(A(0)));
    }
  });
}

/// The columns of this rank.
struct Columns {
  int rank = 0, ranks = 1;
  int64_t vocabulary = 0;

  template <class T, class I>
  VocabRows<T, I> rows(const Tensor& z, const Tensor& targets, const CrossEntropyOptions& options,
                       const Tensor& scale) const {
    using A = Compute<T>;
    VocabRows<T, I> in;
    in.rows = targets.numel();
    in.vocabulary = vocabulary;
    in.n = vocabulary;  // smoothing is over the whole
    in.z = z.data<T>(), in.target = targets.data<I>();
    in.ignored = options.ignore_index, in.smoothing = A(options.label_smoothing);
    in.scale = static_cast<entropy::Scale<A>*>(scale.raw()), in.loss = nullptr;
    in.width = z.size(-1), in.first = rank * in.width, in.ranks = ranks;
    in.real = std::clamp(vocabulary - in.first, int64_t(0), in.width);
    return in;
  }
};

struct VocabCrossEntropy {
  static constexpr auto name = "vocab_cross_entropy";
  Communicator group{};
  CrossEntropyOptions options{};
  Columns columns{};
  bool may_overwrite = false;  // the logits: nobody else has them
  Saved logits{}, targets{};
  Tensor scale{};   // (N, 2): m and log s
  Tensor factor{};  // (): of the loss of each row in the result

  Tensor forward(const Tensor& z, const Tensor& t) {
    const Device device = z.device();
    const DType type = z.dtype() == DType::f64 ? DType::f64 : DType::f32;
    Tensor in = contiguous(z), target = contiguous(t);
    may_overwrite = may_overwrite || !in.is_same(z);
    logits = in.detach(), targets = target;
    scale = empty({t.numel(), 2}, type, device), factor = empty({}, type, device);
    entropy::write_factor(target, options, factor);
    Tensor losses = empty(t.shape(), type, device);
    // Σ over the ranks needs all parts of a row, so they travel as one message.
    Tensor part = empty({1, t.numel(), 4}, type, device);
    run(in, target, [&]<class T, class I>(VocabRows<T, I> rows) {
      rows.part = static_cast<RowPart<Compute<T>>*>(part.raw());
#if defined(__CUDACC__)
      if (device.is_cuda()) return vocab_parts_cuda(device, rows);
#endif
      parts_cpu(rows);
    });
    Tensor parts = group.all_gather(part, 0);
    run(in, target, [&]<class T, class I>(VocabRows<T, I> rows) {
      using A = Compute<T>;
      rows.parts = static_cast<const RowPart<A>*>(parts.raw()), rows.loss = losses.data<A>();
#if defined(__CUDACC__)
      if (device.is_cuda()) return vocab_join_cuda(device, rows);
#endif
      for (int64_t r = 0; r < rows.rows; ++r) rows.join(r);
    });
    if (options.reduction == Reduction::none) return losses;
    Tensor total = empty({}, type, device);
    entropy::write_total(losses, target, options, total);
    return total;
  }

  Tensors backward(const Tensor& gradient) {
    Tensor dy = contiguous(gradient), in = *logits, target = *targets;
    const bool in_place = may_overwrite && !detail::keeps_graph();
    Tensor dz = in_place ? in : empty_like(in);
    dz.will_write(name);
    run(in, target, [&]<class T, class I>(const VocabRows<T, I>& rows) {
      using A = Compute<T>;
      const RowGradient<A> dloss{dy.data<A>(), options.reduction == Reduction::none,
                                 factor.data<A>()};
#if defined(__CUDACC__)
      if (in.device().is_cuda()) return vocab_gradient_cuda(in.device(), rows, dloss, dz.data<T>());
#endif
      gradient_cpu(rows, dloss, dz.data<T>());
    });
    return {dz, {}};
  }

 private:
  /// f(rows), if there are any.
  template <class F>
  void run(const Tensor& z, const Tensor& target, F f) const {
#if !defined(__CUDACC__)
    check(!z.device().is_cuda(), name, ": this file was compiled without CUDA");
#endif
    if (target.numel() == 0) return;
    dispatch_floating(name, z.dtype(), [&]<class T>() {
      dispatch_index(name, target.dtype(),
                     [&]<class I>() { f(columns.rows<T, I>(z, target, options, scale)); });
    });
  }
};

Tensor checked(VocabCrossEntropy op, const Tensor& logits, const Tensor& targets) {
  const CrossEntropyOptions options = op.options;
  const Columns& c = op.columns;
  entropy::check_operands(logits, targets, options);
  const int64_t width = logits.size(-1);
  check(width == vocab_rows(c.vocabulary, c.ranks) || width * c.ranks == c.vocabulary,
        "vocab_cross_entropy: each of ", c.ranks, " ranks has ", vocab_rows(c.vocabulary, c.ranks),
        " columns of a vocabulary of ", c.vocabulary, ", got logits ", logits.describe(),
        "; they must not be gathered");
  const bool of_rows = options.reduction == Reduction::none && options.scale != 1;
  Tensor loss = apply(std::move(op), logits, targets);
  return of_rows ? mul(loss, options.scale) : loss;
}

VocabCrossEntropy op_of(const Communicator& g, int64_t vocabulary, CrossEntropyOptions options) {
  return {.group = g, .options = options, .columns = {g.rank(), g.size(), vocabulary}};
}

}  // namespace

Tensor vocab_cross_entropy(const Communicator& group, const Tensor& logits, const Tensor& targets,
                           int64_t vocabulary, CrossEntropyOptions options) {
  if (group.size() == 1) return cross_entropy(logits, targets, options);
  return checked(op_of(group, vocabulary, options), logits, targets);
}
Tensor vocab_cross_entropy(const Communicator& group, Tensor&& logits, const Tensor& targets,
                           int64_t vocabulary, CrossEntropyOptions options) {
  if (group.size() == 1) return cross_entropy(std::move(logits), targets, options);
  VocabCrossEntropy op = op_of(group, vocabulary, options);
  op.may_overwrite = logits && logits.is_sole_owner();
  return checked(std::move(op), logits, targets);
}

// One rank of one, for an op on its own; for several see tests/parallel/vocab_parallel_test.cpp.
static Tensor entropy_of(Sampler& s, const Shape& shape, CrossEntropyOptions options = {}) {
  Shape rows = shape;
  rows.erase(rows.rank() - 1);
  Tensor z = s.normal(shape);
  return checked(op_of({}, shape[-1], options), z, s.ids(rows, shape[-1]));
}
static const Gradcheck checks[] = {
    {"vocab_cross_entropy",
     [](Sampler& s) {
       return entropy_of(s, {4, 5});
     }},
    {"vocab_cross_entropy",
     [](Sampler& s) {
       return entropy_of(s, {2, 3, 300}, {.label_smoothing = 0.2, .reduction = Reduction::sum});
     }},
    {"vocab_cross_entropy",
     [](Sampler& s) {
       return entropy_of(s, {3, 5}, {.label_smoothing = 0.1, .reduction = Reduction::none});
     }},
    {"vocab_cross_entropy",
     [](Sampler& s) {
       return entropy_of(s, {9, 3}, {.ignore_index = 1, .scale = 0.5});
     }},
    {"vocab_cross_entropy",
     [](Sampler& s) {
       return entropy_of(s, {0, 5});
     }},
};

}  // namespace gradus::parallel
