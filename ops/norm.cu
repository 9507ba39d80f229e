// layer_norm and rms_norm: the op. Its mathematics is in ops/norm.h, its loops in ops/norm_cpu.h and
// ops/norm_cuda.h.
#include "autograd/apply.h"
#include "autograd/gradcheck.h"
#include "ops/norm_cpu.h"
#include "ops/norm_cuda.h"
#include "ops/ops.h"

namespace gradus {
namespace {

/// to ← β to + Σ_p parts[p, which], for parts (number, 2, n).
void sum_parts(const Tensor& parts, int which, double beta, const Tensor& to) {
  to.will_write("norm");
  if (to.numel() == 0) return;
  dispatch_floating("norm", to.dtype(), [&]<class To>() {
    auto run = [&]<class A>(const A* part) {
      int64_t n = to.numel();
      norm::SumOfParts<A, To> s{parts.size(0), n, 2 * n, part + which * n, A(beta), to.data<To>()};
#if defined(__CUDACC__)
      if (to.device().is_cuda()) return norm::sum_parts_cuda(to.device(), s);
#endif
      norm::sum_parts_cpu(s);
    };
    parts.dtype() == DType::f64 ? run(parts.data<double>()) : run(parts.data<float>());
  });
}

template <bool kCentred>
struct Norm {
  static constexpr auto name = kCentred ? "layer_norm" : "rms_norm";
  double epsilon = 1e-5;
  Saved x{}, gamma{};
  Tensor moments{};  // (rows, 2): mean and r

  Tensor forward(const Tensor& input, const Tensor& scale, const Tensor& shift) {
    x = input, gamma = scale;
    Tensor in = contiguous(input), g = contiguous(scale), b = shift ? contiguous(shift) : shift;
    Tensor y = empty_like(in);
    int64_t n = in.size(-1), rows = n ? in.numel() / n : 0;
    dispatch_floating(name, in.dtype(), [&]<class T>() {
      using A = Compute<T>;
      moments = empty({rows, 2}, dtype_of<A>, in.device());
      norm::Forward<T> f{rows,        n,
                         A(epsilon),  in.data<T>(),
                         g.data<T>(), b ? b.data<T>() : nullptr,
                         y.data<T>(), static_cast<norm::Moments<A>*>(moments.raw())};
      if (rows == 0) return;
#if defined(__CUDACC__)
      if (in.device().is_cuda()) return norm::forward_cuda<kCentred>(in.device(), f);
#endif
      norm::forward_cpu<kCentred>(f);
    });
    return y;
  }

  Tensors backward(const Tensor& gradient, Needs need) {
    Tensor in = contiguous(*x), g = contiguous(*gamma), dy = contiguous(gradient);
    Tensor dx = empty_like(in), parts;
    int64_t n = in.size(-1), rows = n ? in.numel() / n : 0;
    dispatch_floating(name, in.dtype(), [&]<class T>() {
      using A = Compute<T>;
      norm::Backward<T> b{rows,         n,
                          in.data<T>(), dy.data<T>(),
                          g.data<T>(),  static_cast<const norm::Moments<A>*>(moments.raw()),
                          dx.data<T>(), nullptr};
      auto with_parts = [&](int64_t number) {
        parts = empty({rows ? number : 0, 2, n}, dtype_of<A>, in.device());
        b.parts = parts.data<A>();
        return b;
      };
#if defined(__CUDACC__)
      if (in.device().is_cuda() && rows > 0)
        return norm::backward_cuda<kCentred>(in.device(), with_parts(norm::parts_cuda(b)));
#endif
      with_parts(norm::parts_cpu(rows));
      if (rows > 0) norm::backward_cpu<kCentred>(b);
    });
    return {dx, parameter_gradient(need[1], parts, 0), parameter_gradient(need[2], parts, 1)};
  }

  Tensor parameter_gradient(Need need, const Tensor& parts, int which) const {
    if (!need) return {};
    if (need.into && need.into->buffer.is_contiguous()) {
      sum_parts(parts, which, need.into->beta(), need.into->buffer);
      return {};
    }
    Tensor to = empty_like(*gamma);
    sum_parts(parts, which, 0, to);
    return to;
  }

  Tensors backward_recorded(const Tensor& dy, Needs need) {
    const Dims row{-1};
    Tensor d = kCentred ? sub(*x, mean(*x, row, true)) : *x;
    Tensor r = rsqrt(add(mean(mul(d, d), row, true), epsilon)), normal = mul(d, r);
    Tensor g = mul(dy, *gamma), along = mul(normal, mean(mul(g, normal), row, true));
    Tensor rest = kCentred ? sub(g, mean(g, row, true)) : g;
    return {mul(r, sub(rest, along)), need[1] ? sum_to(mul(dy, normal), gamma->shape()) : Tensor{},
            need[2] ? sum_to(dy, gamma->shape()) : Tensor{}};
  }
};

void check_parameter(const char* op, const char* which, const Tensor& x, const Tensor& p) {
  bool fits = p.shape() == Shape{x.size(-1)} && p.dtype() == x.dtype() && p.device() == x.device();
  check(fits, op, ": ", which, " is ", p.describe(), " for an input ", x.describe(),
        "; it must have the input's type and device, and one entry for each of the ", x.size(-1),
        " columns");
}

template <bool kCentred>
Tensor checked(const Tensor& x, const Tensor& gamma, const Tensor& beta, double epsilon) {
  const char* name = Norm<kCentred>::name;
  check(x && gamma, name, ": an operand is undefined");
  check(x.rank() >= 1, name, ": the input ", x.describe(), " has no dimension to normalise");
  check(epsilon >= 0, name, ": ε = ", epsilon, " is negative");
  check_parameter(name, "gamma", x, gamma);
  if (beta) check_parameter(name, "beta", x, beta);
  return apply(Norm<kCentred>{.epsilon = epsilon}, x, gamma, beta);
}

}  // namespace

Tensor layer_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, double epsilon) {
  return checked<true>(x, gamma, beta, epsilon);
}
Tensor rms_norm(const Tensor& x, const Tensor& gamma, double epsilon) {
  return checked<false>(x, gamma, {}, epsilon);
}

static Tensor layer_norm_of(Sampler& s, const Shape& shape) {
  Shape columns{shape[-1]};
  return layer_norm(s.normal(shape), s.normal(columns), s.normal(columns));
}
static Tensor rms_norm_of(Sampler& s, const Shape& shape) {
  return rms_norm(s.normal(shape), s.normal({shape[-1]}));
}
static Tensor without_beta(Sampler& s) {
  return layer_norm(s.normal({3, 4}), s.normal({4}), {}, 0.1);
}

static const Gradcheck checks[] = {
    {"layer_norm",
     [](Sampler& s) {
       return layer_norm_of(s, {3, 5});
     },
     true},
    {"layer_norm",
     [](Sampler& s) {
       return layer_norm_of(s, {2, 3, 4});
     },
     true},
    {"layer_norm",
     [](Sampler& s) {
       return layer_norm_of(s, {2, 1032});
     },
     false, 64},  // sums of a thousand terms, in another order than the reference's
    {"layer_norm",
     [](Sampler& s) {
       return layer_norm_of(s, {70, 8});
     },
     false, 64},
    {"layer_norm",
     [](Sampler& s) {
       return layer_norm_of(s, {0, 4});
     }},
    {"layer_norm", without_beta, true},
    {"rms_norm",
     [](Sampler& s) {
       return rms_norm_of(s, {3, 5});
     },
     true},
    {"rms_norm",
     [](Sampler& s) {
       return rms_norm_of(s, {2, 1032});
     }},
    {"rms_norm",
     [](Sampler& s) {
       return rms_norm_of(s, {2, 0});
     }},
};

}  // namespace gradus
