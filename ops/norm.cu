// layer_norm and rms_norm: the op. Its mathematics is in ops/norm.h, its loops in ops/norm_cpu.h,
// ops/norm_forward_cuda.h and ops/norm_backward_cuda.h.
#include "autograd/apply.h"
#include "autograd/gradcheck.h"
#include "ops/norm_backward_cuda.h"
#include "ops/norm_cpu.h"
#include "ops/norm_forward_cuda.h"
#include "ops/norm_recorded.h"
#include "ops/ops.h"
#include "ops/sum_parts.h"

namespace gradus {
namespace {

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
      norm::Forward<T> f{rows,
                         n,
                         kCentred,
                         A(epsilon),
                         in.data<T>(),
                         g.data<T>(),
                         b ? b.data<T>() : nullptr,
                         y.data<T>(),
                         static_cast<norm::Moments<A>*>(moments.raw())};
      if (rows == 0) return;
#if defined(__CUDACC__)
      if (in.device().is_cuda()) return norm::forward_cuda<norm::Adds::nothing>(in.device(), f);
#endif
      norm::forward_cpu(f);
    });
    return y;
  }

  Tensors backward(const Tensor& gradient, Needs need) {
    Tensor in = contiguous(*x), g = contiguous(*gamma), dy = contiguous(gradient);
    Tensor dx = empty_like(in), parts;
    int64_t n = in.size(-1), rows = n ? in.numel() / n : 0;
    dispatch_floating(name, in.dtype(), [&]<class T>() {
      using A = Compute<T>;
      norm::Backward<T> b{.rows = rows,
                          .n = n,
                          .centred = kCentred,
                          .x = in.data<T>(),
                          .dy = dy.data<T>(),
                          .gamma = g.data<T>(),
                          .moments = static_cast<const norm::Moments<A>*>(moments.raw()),
                          .dx = dx.data<T>()};
      auto with_parts = [&](int64_t number) {
        parts = empty({rows ? number : 0, 2, n}, dtype_of<A>, in.device());
        b.parts = parts.data<A>();
        return b;
      };
#if defined(__CUDACC__)
      if (in.device().is_cuda() && rows > 0)
        return norm::backward_cuda<norm::Adds::nothing>(in.device(),
                                                        with_parts(norm::parts_cuda(b)));
#endif
      with_parts(norm::parts_cpu(rows));
      if (rows > 0) norm::backward_cpu(b);
    });
    std::vector<Tensor> sums = sum_parts(parts, in.dtype(), {need[1], need[2]});
    return {dx, sums[0], sums[1]};
  }

  Tensors backward_recorded(const Tensor& dy, Needs) {
    NormGradients d = recorded_norm_backward(kCentred, *x, *gamma, dy, epsilon);
    return {d.dx, d.dgamma, d.dbeta};
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

NormGradients recorded_norm_backward(bool centred, const Tensor& x, const Tensor& gamma,
                                     const Tensor& dy, double epsilon) {
  const Dims row{-1};
  Tensor d = centred ? sub(x, mean(x, row, true)) : x;
  Tensor r = rsqrt(add(mean(mul(d, d), row, true), epsilon)), normal = mul(d, r);
  Tensor g = mul(dy, gamma), along = mul(normal, mean(mul(g, normal), row, true));
  Tensor rest = centred ? sub(g, mean(g, row, true)) : g;
  return {mul(r, sub(rest, along)), sum_to(mul(dy, normal), gamma.shape()),
          sum_to(dy, gamma.shape())};
}

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
