// Arithmetic of two tensors, with broadcasting. y = f(a, b):
//
//   a + b   (dy, dy)            a ⊙ b   (dy b, dy a)                aᵇ   (dy b aᵇ⁻¹, dy y ln a)
//   a − b   (dy, −dy)           a / b   (dy/b, −dy y/b)             max  dy to the larger, halves at a tie
//
// An input that was broadcast was used several times: its gradient is the sum over those uses, which
// sum_to takes.
#include "autograd/apply.h"
#include "autograd/gradcheck.h"
#include "ops/map.h"
#include "ops/ops.h"
#include "ops/repeated.h"

namespace gradus {
namespace {

struct Plus {
  template <class T>
  GRADUS_HD T operator()(T a, T b) const { return a + b; }
};
struct Minus {
  template <class T>
  GRADUS_HD T operator()(T a, T b) const { return a - b; }
};
struct Times {
  template <class T>
  GRADUS_HD T operator()(T a, T b) const { return a * b; }
};
struct Over {
  template <class T>
  GRADUS_HD T operator()(T a, T b) const { return a / b; }
};
struct Power {
  template <class T>
  GRADUS_HD T operator()(T a, T b) const { return ::pow(a, b); }
};
// a if it wins, b if not; a NaN always wins.
struct Larger {
  template <class T>
  GRADUS_HD T operator()(T a, T b) const { return a >= b || a != a ? a : b; }
};
struct Smaller {
  template <class T>
  GRADUS_HD T operator()(T a, T b) const { return a <= b || a != a ? a : b; }
};
/// The share of dy that goes to `mine`, the side that won or tied.
struct ShareOfWinner {
  template <class T>
  GRADUS_HD T operator()(T dy, T mine, T other, T y) const {
    if (mine == other) return dy / 2;
    return mine == y || (mine != mine && y != y) ? dy : T(0);
  }
};

struct Add {
  static constexpr auto name = "add";
  static constexpr bool recordable = true;
  Shape a{}, b{};
  Tensor forward(const Tensor& x, const Tensor& y) {
    a = x.shape(), b = y.shape();
    detail::check_operands(name, x, y);
    Tensor sum = empty(detail::common_shape(name, x, y), x.dtype(), x.device());
    dispatch_floating(name, x.dtype(), [&]<class T>() {
      if (!map_repeated<T>(Plus{}, sum, x, y)) detail::map_into<T, T>(Plus{}, sum, x, y);
    });
    return sum;
  }
  Tensors backward(const Tensor& dy, Needs need) {
    return {need[0] ? sum_to(dy, a) : Tensor{}, need[1] ? sum_to(dy, b) : Tensor{}};
  }
};

struct Sub {
  static constexpr auto name = "sub";
  static constexpr bool recordable = true;
  Shape a{}, b{};
  Tensor forward(const Tensor& x, const Tensor& y) {
    a = x.shape(), b = y.shape();
    return map(name, Minus{}, x, y);
  }
  Tensors backward(const Tensor& dy, Needs need) {
    return {need[0] ? sum_to(dy, a) : Tensor{}, need[1] ? neg(sum_to(dy, b)) : Tensor{}};
  }
};

struct Mul {
  static constexpr auto name = "mul";
  static constexpr bool recordable = true;
  Saved a{}, b{};
  Tensor forward(const Tensor& x, const Tensor& y) {
    a = x, b = y;
    return map(name, Times{}, x, y);
  }
  Tensors backward(const Tensor& dy, Needs need) {
    return {need[0] ? sum_to(mul(dy, *b), a->shape()) : Tensor{},
            need[1] ? sum_to(mul(dy, *a), b->shape()) : Tensor{}};
  }
};

struct Div {
  static constexpr auto name = "div";
  static constexpr bool recordable = true;
  Shape a{};
  Saved b{};
  SavedOutput y{};
  Tensor forward(const Tensor& p, const Tensor& q) {
    a = p.shape(), b = q;
    Tensor result = map(name, Over{}, p, q);
    y = result;
    return result;
  }
  Tensors backward(const Tensor& dy, Needs need) {
    Tensor da = div(dy, *b);
    return {need[0] ? sum_to(da, a) : Tensor{},
            need[1] ? neg(sum_to(mul(da, *y), b->shape())) : Tensor{}};
  }
};

struct Pow {
  static constexpr auto name = "pow";
  static constexpr bool recordable = true;
  Saved a{}, b{};
  SavedOutput y{};
  Tensor forward(const Tensor& p, const Tensor& q) {
    a = p, b = q;
    Tensor result = map(name, Power{}, p, q);
    y = result;
    return result;
  }
  Tensors backward(const Tensor& dy, Needs need) {
    Tensor da = need[0] ? mul(dy, mul(*b, pow(*a, add(*b, -1)))) : Tensor{};
    Tensor db = need[1] ? mul(dy, mul(*y, log(*a))) : Tensor{};
    return {da ? sum_to(da, a->shape()) : Tensor{}, db ? sum_to(db, b->shape()) : Tensor{}};
  }
};

/// maximum and minimum: Choice picks the value.
template <class Choice, const char* kName>
struct Extreme {
  static constexpr auto name = kName;
  Saved a{}, b{};
  SavedOutput y{};
  Tensor forward(const Tensor& p, const Tensor& q) {
    a = p, b = q;
    Tensor result = map(name, Choice{}, p, q);
    y = result;
    return result;
  }
  Tensors backward(const Tensor& dy, Needs need) {
    return {need[0] ? sum_to(map(name, ShareOfWinner{}, dy, *a, *b, *y), a->shape()) : Tensor{},
            need[1] ? sum_to(map(name, ShareOfWinner{}, dy, *b, *a, *y), b->shape()) : Tensor{}};
  }
};
constexpr char kMaximum[] = "maximum", kMinimum[] = "minimum";

// ---- with a number

struct PlusNumber {
  double b;
  template <class T>
  GRADUS_HD T operator()(T a) const { return a + T(b); }
};
struct TimesNumber {
  double b;
  template <class T>
  GRADUS_HD T operator()(T a) const { return a * T(b); }
};
struct PowerNumber {
  double b;
  template <class T>
  GRADUS_HD T operator()(T a) const {
    if (b == 2) return a * a;
    if (b == -1) return 1 / a;
    return ::pow(a, T(b));
  }
};

struct AddNumber {
  static constexpr auto name = "add_number";
  static constexpr bool recordable = true;
  double b = 0;
  Tensor forward(const Tensor& a) { return map(name, PlusNumber{b}, a); }
  Tensor backward(const Tensor& dy) { return dy; }
};
struct MulNumber {
  static constexpr auto name = "mul_number";
  static constexpr bool recordable = true;
  double b = 0;
  Tensor forward(const Tensor& a) { return map(name, TimesNumber{b}, a); }
  Tensor backward(const Tensor& dy) { return mul(dy, b); }
};
// d(aᵇ)/da = b aᵇ⁻¹; for b = 0 that is 0, also at a = 0 where aᵇ⁻¹ is infinite.
struct PowNumber {
  static constexpr auto name = "pow_number";
  static constexpr bool recordable = true;
  double b = 0;
  Saved a{};
  Tensor forward(const Tensor& x) {
    a = x;
    return map(name, PowerNumber{b}, x);
  }
  Tensor backward(const Tensor& dy) {
    return b == 0 ? mul(dy, 0) : mul(dy, mul(pow(*a, b - 1), b));
  }
};

}  // namespace

Tensor add(const Tensor& a, const Tensor& b) { return apply(Add{}, a, b); }
Tensor sub(const Tensor& a, const Tensor& b) { return apply(Sub{}, a, b); }
Tensor mul(const Tensor& a, const Tensor& b) { return apply(Mul{}, a, b); }
Tensor div(const Tensor& a, const Tensor& b) { return apply(Div{}, a, b); }
Tensor pow(const Tensor& a, const Tensor& b) { return apply(Pow{}, a, b); }
Tensor maximum(const Tensor& a, const Tensor& b) { return apply(Extreme<Larger, kMaximum>{}, a, b); }
Tensor minimum(const Tensor& a, const Tensor& b) { return apply(Extreme<Smaller, kMinimum>{}, a, b); }
Tensor add(const Tensor& a, double b) { return apply(AddNumber{.b = b}, a); }
Tensor mul(const Tensor& a, double b) { return apply(MulNumber{.b = b}, a); }
Tensor pow(const Tensor& a, double b) { return apply(PowNumber{.b = b}, a); }

// ---- examples for the gradient check; the second operand broadcasts in the second of each pair

static const Gradcheck checks[] = {
    {"add", [](Sampler& s) { return add(s.normal({3, 4}), s.normal({3, 4})); }, true},
    {"add", [](Sampler& s) { return add(s.normal({2, 3, 4}), s.normal({3, 1})); }, true},
    {"add", [](Sampler& s) { return add(s.normal({0, 4}), s.normal({4})); }},
    {"sub", [](Sampler& s) { return sub(s.normal({3, 4}), s.normal({1, 4})); }, true},
    {"mul", [](Sampler& s) { return mul(s.normal({3, 4}), s.normal({3, 4})); }, true},
    {"mul", [](Sampler& s) { return mul(s.normal({1, 3}), s.normal({2, 1})); }, true},
    {"mul", [](Sampler& s) { Tensor x = s.normal({4}); return mul(x, mul(x, x)); }, true},
    {"div", [](Sampler& s) { return div(s.normal({3, 4}), s.uniform({4}, 0.5, 2)); }, true},
    {"pow", [](Sampler& s) { return pow(s.uniform({3, 4}, 0.5, 2), s.normal({4})); }, true},
    {"maximum", [](Sampler& s) { return maximum(s.distinct({3, 4}), s.uniform({4}, 0.02, 0.03)); }},
    {"minimum", [](Sampler& s) { return minimum(s.distinct({3, 4}), s.uniform({4}, 0.02, 0.03)); }},
    {"add_number", [](Sampler& s) { return add(s.normal({3, 4}), 1.5); }, true},
    {"mul_number", [](Sampler& s) { return mul(s.normal({3, 4}), -2.5); }, true},
    {"pow_number", [](Sampler& s) { return pow(s.uniform({3, 4}, 0.5, 2), 2.5); }, true},
    {"pow_number", [](Sampler& s) { return pow(s.normal({3, 4}), 3); }, true},
};

}  // namespace gradus
