// Activations. With s = σ(x) = 1/(1 + e⁻ˣ), Φ the normal distribution and φ = Φ' its density:
//
//   tanh   y = tanh x             dx = dy (1 − y²)
//   σ      y = s                  dx = dy y (1 − y)            since s = 1/(1 + e⁻ˣ)  →  s' = e⁻ˣ s²
//   relu   y = max(x, 0)          dx = dy [y > 0]
//   silu   y = x s                dx = dy s (1 + x (1 − s))
//   gelu   y = x Φ(x)             dx = dy (Φ + x φ),   Φ(x) = ½ (1 + erf(x/√2)),  φ(x) = e^(−x²/2) / √2π
//
// [Hendrycks & Gimpel 2016] also give an approximation of gelu with ½ (1 + tanh u) for Φ. Since
// ½ (1 + tanh u) = σ(2u), it is a silu with a bent argument:
//
//   y = x σ(v),   v = 2√(2/π) (x + 0.044715 x³)        dx = dy s (1 + x (1 − s) v'),   s = σ(v)
//
// The two differ by up to 4.7e-4. tanh, σ and relu save their result, the others their operand. The
// backward is one pass over memory; only when it is itself recorded is it made of several ops.
#include "autograd/apply.h"
#include "autograd/gradcheck.h"
#include "core/math.h"
#include "ops/activation.h"
#include "ops/map.h"

namespace gradus {
namespace {

constexpr double kInverseSqrt2 = 0.7071067811865476;
constexpr double kInverseSqrt2Pi = 0.3989422804014327;
constexpr double kGeluLinear = 1.5957691216057308;  // 2√(2/π)
constexpr double kGeluCubic = kGeluLinear * 0.044715;

struct TanhForward {
  GRADUS_HD auto operator()(auto x) const { return math::tanh(x); }
};
struct TanhBackward {
  GRADUS_HD auto operator()(auto dy, auto y) const { return dy * (1 - y * y); }
};

struct SigmoidForward {
  GRADUS_HD auto operator()(auto x) const { return math::sigmoid(x); }
};
struct SigmoidBackward {
  GRADUS_HD auto operator()(auto dy, auto y) const { return dy * y * (1 - y); }
};

// Written so that a NaN is not ≤ 0 and passes.
struct ReluForward {
  template <class T>
  GRADUS_HD T operator()(T x) const {
    return x <= 0 ? T(0) : x;
  }
};
struct ReluBackward {
  template <class T>
  GRADUS_HD T operator()(T dy, T y) const {
    return y <= 0 ? T(0) : dy;
  }
};
struct NotPositive {
  GRADUS_HD uint8_t operator()(auto y) const { return y <= 0; }
};

struct SiluForward {
  GRADUS_HD auto operator()(auto x) const { return x * math::sigmoid(x); }
};
struct SiluBackward {
  template <class T>
  GRADUS_HD T operator()(T dy, T x) const {
    T s = math::sigmoid(x);
    return dy * s * (1 + x * (1 - s));
  }
};

struct NormalCdf {
  template <class T>
  GRADUS_HD T operator()(T x) const {
    return T(0.5) * (1 + math::erf(x * T(kInverseSqrt2)));
  }
};
struct GeluForward {
  GRADUS_HD auto operator()(auto x) const { return x * NormalCdf{}(x); }
};
struct GeluBackward {
  template <class T>
  GRADUS_HD T operator()(T dy, T x) const {
    T density = T(kInverseSqrt2Pi) * math::exp(T(-0.5) * x * x);
    return dy * (NormalCdf{}(x) + x * density);
  }
};
struct GeluTanhForward {
  template <class T>
  GRADUS_HD T operator()(T x) const {
    return x * math::sigmoid(x * (T(kGeluLinear) + T(kGeluCubic) * x * x));
  }
};
struct GeluTanhBackward {
  template <class T>
  GRADUS_HD T operator()(T dy, T x) const {
    T x2 = x * x;
    x2 = x2 > 10000 ? 10000 : x2;  // there 1 − s is 0 and must not meet an infinite slope
    T s = math::sigmoid(x * (T(kGeluLinear) + T(kGeluCubic) * x2));
    T slope = T(kGeluLinear) + T(3 * kGeluCubic) * x2;
    return dy * s * (1 + x * (1 - s) * slope);
  }
};

struct Tanh {
  static constexpr auto name = "tanh";
  SavedOutput y{};
  Tensor forward(const Tensor& x) {
    Tensor result = map(name, TanhForward{}, x);
    y = result;
    return result;
  }
  Tensor backward(const Tensor& dy) { return map(name, TanhBackward{}, dy, *y); }
  Tensor backward_recorded(const Tensor& dy, Needs) {
    Tensor t = *y;
    return dy * (1 - t * t);
  }
};

struct Sigmoid {
  static constexpr auto name = "sigmoid";
  SavedOutput y{};
  Tensor forward(const Tensor& x) {
    Tensor result = map(name, SigmoidForward{}, x);
    y = result;
    return result;
  }
  Tensor backward(const Tensor& dy) { return map(name, SigmoidBackward{}, dy, *y); }
  Tensor backward_recorded(const Tensor& dy, Needs) {
    Tensor s = *y;
    return dy * s * (1 - s);
  }
};

struct Relu {
  static constexpr auto name = "relu";
  SavedOutput y{};
  Tensor forward(const Tensor& x) {
    Tensor result = map(name, ReluForward{}, x);
    y = result;
    return result;
  }
  Tensor backward(const Tensor& dy) { return map(name, ReluBackward{}, dy, *y); }
  Tensor backward_recorded(const Tensor& dy, Needs) {  // a step: its own derivative is 0
    return masked_fill(dy, map_to_mask(name, NotPositive{}, *y), 0);
  }
};

struct Silu {
  static constexpr auto name = "silu";
  Saved x{};
  Tensor forward(const Tensor& input) {
    x = input;
    return map(name, SiluForward{}, input);
  }
  Tensor backward(const Tensor& dy) { return map(name, SiluBackward{}, dy, *x); }
  Tensor backward_recorded(const Tensor& dy, Needs) {
    Tensor s = sigmoid(*x);
    return dy * s * (1 + *x * (1 - s));
  }
};

Tensor normal_density(const Tensor& x) { return exp(x * x * -0.5) * kInverseSqrt2Pi; }

/// Φ as an op of its own, for the second derivative of gelu.
struct Cdf {
  static constexpr auto name = "normal_cdf";
  static constexpr bool recordable = true;
  Saved x{};
  Tensor forward(const Tensor& input) {
    x = input;
    return map(name, NormalCdf{}, input);
  }
  Tensor backward(const Tensor& dy) { return dy * normal_density(*x); }
};
Tensor normal_cdf(const Tensor& x) { return apply(Cdf{}, x); }

struct Gelu {
  static constexpr auto name = "gelu";
  GeluKind kind = GeluKind::erf;
  Saved x{};
  Tensor forward(const Tensor& input) {
    x = input;
    return kind == GeluKind::erf ? map(name, GeluForward{}, input)
                                 : map(name, GeluTanhForward{}, input);
  }
  Tensor backward(const Tensor& dy) { return gelu_backward(dy, *x, kind); }
  Tensor backward_recorded(const Tensor& dy, Needs) { return gelu_backward_recorded(dy, *x, kind); }
};

}  // namespace

Tensor gelu_backward(const Tensor& dy, const Tensor& x, GeluKind kind) {
  return kind == GeluKind::erf ? map("gelu", GeluBackward{}, dy, x)
                               : map("gelu", GeluTanhBackward{}, dy, x);
}

Tensor gelu_backward_recorded(const Tensor& dy, const Tensor& x, GeluKind kind) {
  if (kind == GeluKind::erf) return dy * (normal_cdf(x) + x * normal_density(x));
  Tensor x2 = x * x, s = sigmoid(x * (kGeluLinear + kGeluCubic * x2));
  Tensor slope = kGeluLinear + 3 * kGeluCubic * x2;
  return dy * s * (1 + x * (1 - s) * slope);
}

Tensor tanh(const Tensor& x) { return apply(Tanh{}, x); }
Tensor sigmoid(const Tensor& x) { return apply(Sigmoid{}, x); }
Tensor relu(const Tensor& x) { return apply(Relu{}, x); }
Tensor silu(const Tensor& x) { return apply(Silu{}, x); }
Tensor gelu(const Tensor& x, GeluKind kind) { return apply(Gelu{.kind = kind}, x); }

static const Gradcheck checks[] = {
    {"tanh",
     [](Sampler& s) {
       return tanh(s.normal({3, 5}));
     },
     true},
    {"tanh",
     [](Sampler& s) {
       return tanh(s.normal({0, 5}));
     }},
    {"sigmoid",
     [](Sampler& s) {
       return sigmoid(s.normal({3, 5}));
     },
     true},
    {"sigmoid",
     [](Sampler& s) {
       return sigmoid(s.normal({3, 0}));
     }},
    {"relu",
     [](Sampler& s) {
       return relu(s.normal({3, 5}));
     },
     true},
    {"relu", [](Sampler& s) { return relu(s.normal({0})); }},
    {"silu",
     [](Sampler& s) {
       return silu(s.normal({3, 5}));
     },
     true},
    {"silu",
     [](Sampler& s) {
       return silu(s.normal({0, 5}));
     }},
    {"normal_cdf",
     [](Sampler& s) {
       return normal_cdf(s.normal({3, 5}));
     },
     true},
    {"gelu",
     [](Sampler& s) {
       return gelu(s.normal({3, 5}));
     },
     true},
    {"gelu",
     [](Sampler& s) {
       return gelu(s.normal({3, 5}), GeluKind::tanh);
     },
     true},
    {"gelu",
     [](Sampler& s) {
       return gelu(expand(s.normal({3, 1}), {2, 3, 4}));
     },
     true},
    {"gelu",
     [](Sampler& s) {
       return gelu(s.normal({2, 0}));
     }},
};

}  // namespace gradus
