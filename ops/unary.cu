// Functions of one operand, element by element. y = f(x):
//
//   −x    dx = −dy            √x     dx = dy / (2y)          since y² = x     →  2y dy/dx = 1
//   eˣ    dx = dy y           1/√x   dx = −½ dy y³           since y = x^(−½)
//   ln x  dx = dy / x         |x|    dx = dy sign x          0 at 0
//   clamp: x, or the nearer end of [low, high]               dx = dy on [low, high], else 0
//
// Where the result says all that backward needs, it is saved instead of the operand: the next op
// usually keeps it anyway. A NaN passes through all of them.
#include "autograd/apply.h"
#include "autograd/gradcheck.h"
#include "core/math.h"
#include "ops/map.h"
#include "ops/ops.h"

namespace gradus {
namespace {

struct Negate {
  GRADUS_HD auto operator()(auto x) const { return -x; }
};
struct Exponential {
  GRADUS_HD auto operator()(auto x) const { return math::exp(x); }
};
struct Logarithm {
  GRADUS_HD auto operator()(auto x) const { return math::log(x); }
};
struct Root {
  GRADUS_HD auto operator()(auto x) const { return std::sqrt(x); }
};
struct RootBackward {
  GRADUS_HD auto operator()(auto dy, auto y) const { return dy / (2 * y); }
};
struct ReciprocalRoot {
  GRADUS_HD auto operator()(auto x) const { return math::rsqrt(x); }
};
struct ReciprocalRootBackward {
  template <class T>
  GRADUS_HD T operator()(T dy, T y) const {
    return T(-0.5) * dy * y * y * y;
  }
};
struct Magnitude {
  GRADUS_HD auto operator()(auto x) const { return std::fabs(x); }
};
struct Sign {
  template <class T>
  GRADUS_HD T operator()(T x) const {
    return x < 0 ? T(-1) : x == 0 ? T(0) : T(1);
  }
};
struct Clamped {
  double low, high;
  template <class T>
  GRADUS_HD T operator()(T x) const {
    return x < T(low) ? T(low) : x > T(high) ? T(high) : x;
  }
};
struct Outside {
  double low, high;
  template <class T>
  GRADUS_HD uint8_t operator()(T x) const {
    return x < T(low) || x > T(high);
  }
};

struct Neg {
  static constexpr auto name = "neg";
  static constexpr bool recordable = true;
  Tensor forward(const Tensor& x) { return map(name, Negate{}, x); }
  Tensor backward(const Tensor& dy) { return neg(dy); }
};

struct Exp {
  static constexpr auto name = "exp";
  static constexpr bool recordable = true;
  SavedOutput y{};
  Tensor forward(const Tensor& x) {
    Tensor result = map(name, Exponential{}, x);
    y = result;
    return result;
  }
  Tensor backward(const Tensor& dy) { return mul(dy, *y); }
};

struct Log {
  static constexpr auto name = "log";
  static constexpr bool recordable = true;
  Saved x{};
  Tensor forward(const Tensor& input) {
    x = input;
    return map(name, Logarithm{}, input);
  }
  Tensor backward(const Tensor& dy) { return div(dy, *x); }
};

struct Sqrt {
  static constexpr auto name = "sqrt";
  SavedOutput y{};
  Tensor forward(const Tensor& x) {
    Tensor result = map(name, Root{}, x);
    y = result;
    return result;
  }
  Tensor backward(const Tensor& dy) { return map(name, RootBackward{}, dy, *y); }
  Tensor backward_recorded(const Tensor& dy, Needs) { return div(dy, mul(*y, 2)); }
};

struct Rsqrt {
  static constexpr auto name = "rsqrt";
  SavedOutput y{};
  Tensor forward(const Tensor& x) {
    Tensor result = map(name, ReciprocalRoot{}, x);
    y = result;
    return result;
  }
  Tensor backward(const Tensor& dy) { return map(name, ReciprocalRootBackward{}, dy, *y); }
  Tensor backward_recorded(const Tensor& dy, Needs) { return mul(mul(dy, pow(*y, 3)), -0.5); }
};

// The derivatives of these two are steps, constants of the second derivative.

struct Abs {
  static constexpr auto name = "abs";
  static constexpr bool recordable = true;
  Saved x{};
  Tensor forward(const Tensor& input) {
    x = input;
    return map(name, Magnitude{}, input);
  }
  Tensor backward(const Tensor& dy) { return mul(dy, map(name, Sign{}, *x)); }
};

struct Clamp {
  static constexpr auto name = "clamp";
  static constexpr bool recordable = true;
  double low = 0, high = 0;
  Saved x{};
  Tensor forward(const Tensor& input) {
    x = input;
    return map(name, Clamped{low, high}, input);
  }
  Tensor backward(const Tensor& dy) {
    return masked_fill(dy, map_to_mask(name, Outside{low, high}, *x), 0);
  }
};

}  // namespace

Tensor neg(const Tensor& x) { return apply(Neg{}, x); }
Tensor exp(const Tensor& x) { return apply(Exp{}, x); }
Tensor log(const Tensor& x) { return apply(Log{}, x); }
Tensor sqrt(const Tensor& x) { return apply(Sqrt{}, x); }
Tensor rsqrt(const Tensor& x) { return apply(Rsqrt{}, x); }
Tensor abs(const Tensor& x) { return apply(Abs{}, x); }
Tensor clamp(const Tensor& x, double low, double high) {
  check(low <= high, "clamp: the interval [", low, ", ", high, "] is empty");
  return apply(Clamp{.low = low, .high = high}, x);
}

static const Gradcheck checks[] = {
    {"neg",
     [](Sampler& s) {
       return neg(s.normal({3, 4}));
     },
     true},
    {"neg",
     [](Sampler& s) {
       return neg(s.normal({0, 4}));
     }},
    {"exp",
     [](Sampler& s) {
       return exp(s.normal({3, 5}));
     },
     true},
    {"exp",
     [](Sampler& s) {
       return exp(expand(s.normal({3, 1}), {2, 3, 4}));
     },
     true},
    {"exp",
     [](Sampler& s) {
       return exp(s.normal({3, 0}));
     }},
    {"log",
     [](Sampler& s) {
       return log(s.uniform({3, 5}, 0.3, 3));
     },
     true},
    {"log", [](Sampler& s) { return log(s.uniform({0}, 0.3, 3)); }},
    {"sqrt",
     [](Sampler& s) {
       return sqrt(s.uniform({3, 5}, 0.3, 3));
     },
     true},
    {"sqrt",
     [](Sampler& s) {
       return sqrt(s.uniform({2, 0}, 0.3, 3));
     }},
    {"rsqrt",
     [](Sampler& s) {
       return rsqrt(s.uniform({3, 5}, 0.3, 3));
     },
     true},
    {"rsqrt",
     [](Sampler& s) {
       return rsqrt(s.uniform({0, 3}, 0.3, 3));
     }},
    {"abs",
     [](Sampler& s) {
       Tensor x = s.normal({3, 5});
       return abs(mul(x, x) - 0.5);
     },
     true},
    {"abs",
     [](Sampler& s) {
       return abs(s.normal({0, 5}));
     }},
    {"clamp",
     [](Sampler& s) {
       Tensor x = s.normal({3, 5});
       return clamp(mul(x, x), 0.2, 1);
     },
     true},
    {"clamp",
     [](Sampler& s) {
       return clamp(s.normal({4, 0}), -1, 1);
     }},
};

}  // namespace gradus
