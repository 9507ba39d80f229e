// The sum of a residual stream and a branch, and its norm, in one pass: what stands between the branches
// of a transformer.
//
//   s = x + m ⊙ (y + b)        m: a dropout mask over 1 − p, or 1
//   n = norm(s)                with γ and β, see ops/norm.h
//
//        x ──────┐                  ┌──▶ s, the stream
//                + ─▶ round to T ─▶ ┤
//   b ─▶ y ─▶ m ─┘                  └──▶ norm ─▶ n, what the next branch reads
//
// s is rounded once, and the rounded s is what is normalised: backward sees the same numbers. b is the
// bias of the linear layer that made y; added here it costs nothing, in the epilogue of the product it
// costs time. With ds and dn the gradients of the two results,
//
//   dx = ds + r (g − ⟨g⟩ − ŝ ⟨g ⊙ ŝ⟩),   g = γ ⊙ dn
//   dy = m ⊙ dx                            without dropout the same tensor as dx
//   db = Σ_rows dy,   dγ = Σ_rows dn ⊙ ŝ,   dβ = Σ_rows dn
//
// all of it in one pass over s, ds and dn.
//
// y may be a table that all sequences share, such as that of positions: x (B, T, C), y (T, C). It is then
// read once for each sequence, and dy summed over them.
#include "autograd/apply.h"
#include "autograd/gradcheck.h"
#include "ops/norm_backward_cuda.h"
#include "ops/norm_cpu.h"
#include "ops/norm_forward_cuda.h"
#include "ops/norm_recorded.h"
#include "ops/ops.h"
#include "ops/reduce.h"
#include "ops/sum_parts.h"

namespace gradus {
namespace {

template <class T>
T* data_or_null(const Tensor& t) {
  return t ? t.data<T>() : nullptr;
}
Tensor dense_or_undefined(const Tensor& t) { return t ? contiguous(t) : t; }

template <bool kCentred>
struct AddNormOp {
  static constexpr auto name = kCentred ? "add_layer_norm" : "add_rms_norm";
  AddNormOptions options{};
  SavedOutput s{};
  Saved gamma{};
  Tensor moments{};  // (rows, 2): mean and r
  Shape branch_shape{};

  bool drops() const { return options.dropout > 0; }
  DropMask mask() const { return drops() ? DropMask(options.mask, options.dropout) : DropMask(); }

  Tensors forward(const Tensor& stream, const Tensor& branch, const Tensor& bias,
                  const Tensor& scale, const Tensor& shift) {
    gamma = scale, branch_shape = branch.shape();
    Tensor x = contiguous(stream), y = contiguous(branch), g = contiguous(scale);
    Tensor b = dense_or_undefined(bias), beta = dense_or_undefined(shift);
    Tensor sum = empty_like(x), normal = empty_like(x);
    int64_t n = x.size(-1), rows = n ? x.numel() / n : 0;
    dispatch_floating(name, x.dtype(), [&]<class T>() {
      using A = Compute<T>;
      moments = empty({rows, 2}, dtype_of<A>, x.device());
      norm::Forward<T> f{.rows = rows,
                         .n = n,
                         .centred = kCentred,
                         .epsilon = A(options.epsilon),
                         .x = x.data<T>(),
                         .gamma = g.data<T>(),
                         .beta = data_or_null<T>(beta),
                         .y = normal.data<T>(),
                         .moments = static_cast<norm::Moments<A>*>(moments.raw()),
                         .branch = y.data<T>(),
                         .bias = data_or_null<T>(b),
                         .branch_rows = n ? y.numel() / n : 0,
                         .sum = sum.data<T>(),
                         .mask = mask(),
                         .first_element = options.first_element};
      if (rows > 0) run_forward(x.device(), f);
    });
    s.save(sum, 0);
    return {sum, normal};
  }

  Tensors backward(const Tensors& gradients, Needs need) {
    Tensor sum = *s, g = contiguous(*gamma), ds = dense_or_undefined(gradients[0]);
    Tensor dn =
        gradients[1] ? contiguous(gradients[1]) : full(sum.shape(), 0, sum.dtype(), sum.device());
    Tensor dx = empty_like(sum), dy = drops() ? empty_like(sum) : dx, parts;
    int64_t n = sum.size(-1), rows = n ? sum.numel() / n : 0;
    dispatch_floating(name, sum.dtype(), [&]<class T>() {
      using A = Compute<T>;
      norm::Backward<T> b{.rows = rows,
                          .n = n,
                          .centred = kCentred,
                          .sums = 3,
                          .x = sum.data<T>(),
                          .dy = dn.data<T>(),
                          .gamma = g.data<T>(),
                          .moments = static_cast<const norm::Moments<A>*>(moments.raw()),
                          .dx = dx.data<T>(),
                          .ds = data_or_null<T>(ds),
                          .dbranch = dy.data<T>(),
                          .mask = mask(),
                          .first_element = options.first_element};
      parts = empty({rows ? number_of_parts(sum.device(), b) : 0, 3, n}, dtype_of<A>, sum.device());
      b.parts = parts.data<A>();
      if (rows > 0) run_backward(sum.device(), b);
    });
    std::vector<Tensor> sums = sum_parts(parts, sum.dtype(), {need[3], need[4], need[2]});
    if (sum.shape() != branch_shape) dy = need[1] ? sum_of_repeats(dy, need[1]) : Tensor{};
    return {dx, dy, sums[2], sums[0], sums[1]};
  }

  Tensors backward_recorded(const Tensors& gradients, Needs need) {
    Tensor dx = gradients[0], dgamma, dbeta;
    if (gradients[1]) {
      NormGradients d = recorded_norm_backward(kCentred, *s, *gamma, gradients[1], options.epsilon);
      dx = dx ? add(dx, d.dx) : d.dx;
      dgamma = d.dgamma, dbeta = d.dbeta;
    }
    Tensor dy = dropout(dx, options.dropout, options.mask, {.first = options.first_element});
    return {dx, sum_to(dy, branch_shape), need[2] ? sum_to(dy, gamma->shape()) : Tensor{}, dgamma,
            dbeta};
  }

 private:
  Tensor sum_of_repeats(const Tensor& dx, Need need) const {
    const int64_t n = branch_shape.numel();
    if (n == 0) return zeros(branch_shape, dx.dtype(), dx.device());
    const Tensor rows = dx.alias({dx.numel() / n, n}, {n, 1}, dx.offset());
    const DType wide = dx.dtype() == DType::f64 ? DType::f64 : DType::f32;
    if (need.into && need.into->buffer.dtype() == wide && need.into->buffer.is_contiguous()) {
      const Tensor& to = need.into->buffer;
      sum_rows_into(to.alias({n}, {1}, to.offset()), rows, need.into->beta());
      return {};
    }
    return reshape(gradus::sum(rows, {0}), branch_shape);
  }
  template <class T>
  static void run_forward(Device device, const norm::Forward<T>& f) {
#if defined(__CUDACC__)
    if (device.is_cuda())
      return f.mask.drops() ? norm::forward_cuda<norm::Adds::dropped>(device, f)
                            : norm::forward_cuda<norm::Adds::branch>(device, f);
#endif
    check(!device.is_cuda(), name, ": this file was compiled without CUDA");
    norm::forward_cpu(f);
  }
  template <class T>
  static int64_t number_of_parts(Device device, const norm::Backward<T>& b) {
#if defined(__CUDACC__)
    if (device.is_cuda()) return norm::parts_cuda(b);
#endif
    return device.is_cuda() ? 0 : norm::parts_cpu(b.rows);
  }
  template <class T>
  static void run_backward(Device device, const norm::Backward<T>& b) {
#if defined(__CUDACC__)
    if (device.is_cuda())
      return b.mask.drops() ? norm::backward_cuda<norm::Adds::dropped>(device, b)
                            : norm::backward_cuda<norm::Adds::branch>(device, b);
#endif
    check(!device.is_cuda(), name, ": this file was compiled without CUDA");
    norm::backward_cpu(b);
  }
};

void check_operand(const char* op, const char* which, const Tensor& x, const Tensor& t,
                   const Shape& shape) {
  check(t && t.shape() == shape && t.dtype() == x.dtype() && t.device() == x.device(), op, ": ",
        which, " is ", t.describe(), " for a stream ", x.describe(), "; needed is ", shape,
        " of its type and device");
}

/// The branch has the last dimensions of the stream, but not all.
bool repeats(const Tensor& x, const Tensor& y) {
  if (!y || y.rank() >= x.rank() || y.rank() == 0) return false;
  for (int d = 1; d <= y.rank(); ++d)
    if (y.size(-d) != x.size(-d)) return false;
  return true;
}

template <bool kCentred>
AddNorm checked(const Tensor& x, const Tensor& y, const Tensor& bias, const Tensor& gamma,
                const Tensor& beta, const AddNormOptions& options) {
  const char* name = AddNormOp<kCentred>::name;
  check(x && x.rank() >= 1, name, ": the stream is ", x.describe(), "; rows are needed");
  check_operand(name, "the branch", x, y, repeats(x, y) ? y.shape() : x.shape());
  check(!repeats(x, y) || options.dropout == 0, name, ": dropout of a branch ", y.describe(),
        " that is repeated along a stream ", x.describe());
  const Shape columns{x.size(-1)};
  check_operand(name, "gamma", x, gamma, columns);
  if (bias) check_operand(name, "the bias", x, bias, columns);
  if (beta) check_operand(name, "beta", x, beta, columns);
  check(options.epsilon >= 0, name, ": ε = ", options.epsilon, " is negative");
  check(options.dropout >= 0 && options.dropout <= 1, name,
        ": a probability is needed, 0 ≤ p ≤ 1, got p = ", options.dropout);
  Tensors both = apply(AddNormOp<kCentred>{.options = options}, x, y, bias, gamma, beta);
  return {both[0], both[1]};
}

}  // namespace

AddNorm add_layer_norm(const Tensor& x, const Tensor& y, const Tensor& bias, const Tensor& gamma,
                       const Tensor& beta, AddNormOptions options) {
  return checked<true>(x, y, bias, gamma, beta, options);
}
AddNorm add_rms_norm(const Tensor& x, const Tensor& y, const Tensor& bias, const Tensor& gamma,
                     AddNormOptions options) {
  return checked<false>(x, y, bias, gamma, {}, options);
}

// ---- examples for the gradient check. Both results count, with cotangents of their own.

static Tensor both_of(const AddNorm& a) { return cat({a.sum, a.normal}, 0); }

static Tensor layer_example(Sampler& s, const Shape& shape, double p) {
  Shape columns{shape[-1]};
  Tensor x = s.normal(shape), y = s.normal(shape), b = s.normal(columns);
  return both_of(add_layer_norm(x, y, b, s.normal(columns), s.normal(columns),
                                {.epsilon = 0.01, .dropout = p, .mask = {7, 3}}));
}
/// Rows of a whole, from row 3 on.
static Tensor example_of_a_part(Sampler& s) {
  Tensor x = s.normal({4, 5}), y = s.normal({4, 5});
  return both_of(add_rms_norm(x, y, s.normal({5}), s.normal({5}),
                              {.dropout = 0.4, .mask = {5, 2}, .first_element = 15}));
}
/// A branch that two sequences share.
static Tensor shared_example(Sampler& s) {
  Tensor x = s.normal({2, 3, 8}), y = s.normal({3, 8}), b = s.normal({8});
  return both_of(add_layer_norm(x, y, b, s.normal({8}), s.normal({8}), {.epsilon = 0.01}));
}
static Tensor rms_example(Sampler& s, const Shape& shape, double p) {
  Tensor x = s.normal(shape), y = s.normal(shape);
  return both_of(add_rms_norm(x, y, {}, s.normal({shape[-1]}), {.dropout = p, .mask = {5, 1}}));
}
/// Only one of the two results leads to the loss.
static Tensor only_the_sum(Sampler& s) {
  Tensor x = s.normal({3, 5}), y = s.normal({3, 5});
  return add_layer_norm(x, y, s.normal({5}), s.normal({5}), {}).sum;
}
static Tensor only_the_norm(Sampler& s) {
  Tensor x = s.normal({3, 5}), y = s.normal({3, 5});
  return add_rms_norm(x, y, s.normal({5}), s.normal({5})).normal;
}

static const Gradcheck checks[] = {
    {"add_layer_norm",
     [](Sampler& s) {
       return layer_example(s, {3, 5}, 0);
     },
     true},
    {"add_layer_norm",
     [](Sampler& s) {
       return layer_example(s, {2, 3, 8}, 0.4);
     },
     true},
    {"add_layer_norm",
     [](Sampler& s) {
       return layer_example(s, {2, 264}, 0.2);
     },
     false, 64},  // sums of hundreds of terms, in another order than the reference's
    {"add_layer_norm",
     [](Sampler& s) {
       return layer_example(s, {70, 8}, 0);
     },
     false, 64},
    {"add_layer_norm",
     [](Sampler& s) {
       return layer_example(s, {0, 4}, 0.5);
     }},
    {"add_layer_norm", only_the_sum, true},
    {"add_rms_norm",
     [](Sampler& s) {
       return rms_example(s, {3, 5}, 0);
     },
     true},
    {"add_rms_norm",
     [](Sampler& s) {
       return rms_example(s, {5, 7}, 0.3);
     },
     true},
    {"add_rms_norm",
     [](Sampler& s) {
       return rms_example(s, {2, 264}, 0.3);
     },
     false, 32},
    {"add_layer_norm", shared_example, true},
    {"add_rms_norm", only_the_norm, true},
    {"add_rms_norm", example_of_a_part, true},
};

}  // namespace gradus
