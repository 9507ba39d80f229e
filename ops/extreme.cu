// The largest and the smallest element along some dimensions, and where it is.
//
//   max    y = max_i x_i,   dx_i = dy w_i / Σ_j w_j,   w_i = [x_i = y]
//
// k elements that tie share the gradient: each gets 1/k of it, a subgradient that does not depend on
// their order. A position has to be one: argmax is the lowest of the tied. A NaN wins against
// everything, so that max is NaN and argmax its place. min x = −max(−x).
#include <limits>

#include "autograd/apply.h"
#include "autograd/gradcheck.h"
#include "ops/map.h"
#include "ops/reduce.h"

namespace gradus {
namespace {

/// max (sign = 1) or min (sign = −1).
template <class A>
struct Extreme {
  A sign;
  using State = A;
  GRADUS_HD A identity() const { return -std::numeric_limits<A>::infinity(); }
  GRADUS_HD A add(A s, A x, int64_t) const { return combine(s, sign * x); }
  GRADUS_HD A combine(A a, A b) const { return a >= b || a != a ? a : b; }
  GRADUS_HD A finish(A s) const { return sign * s; }
};

template <class A>
struct Placed {
  A value;
  int64_t index;
};

/// Its index.
template <class A>
struct PlaceOfExtreme {
  A sign;
  using State = Placed<A>;
  GRADUS_HD State identity() const { return {-std::numeric_limits<A>::infinity(), INT64_MAX}; }
  GRADUS_HD State add(State s, A x, int64_t r) const { return combine(s, {sign * x, r}); }
  GRADUS_HD State combine(State a, State b) const {
    bool nan_a = a.value != a.value, nan_b = b.value != b.value;
    bool tie = nan_a ? nan_b : a.value == b.value;
    bool first = tie ? a.index < b.index : nan_a || a.value > b.value;
    return first ? a : b;
  }
  GRADUS_HD int64_t finish(State s) const { return s.index; }

  /// The value first, which vectorises, then its first place.
  template <class T>
  State run(const T* x, int64_t n, int64_t first) const {
    A best = detail::cpu_lanes(Extreme<A>{sign}, x, n, first);
    int64_t i = 0;
    if (best == best)
      while (sign * A(x[i]) != best) ++i;
    else
      while (x[i] == x[i]) ++i;
    return {best, first + i};
  }
};

/// 1 where x is the extreme y, NaN included.
struct IsExtreme {
  template <class T>
  GRADUS_HD T operator()(T x, T y) const {
    return x == y || (x != x && y != y) ? T(1) : T(0);
  }
};

/// dx of max and min. The shares are constants for a second derivative: x moves no tie.
Tensor share(const char* op, const Over& over, const Tensor& x, const Tensor& y, const Tensor& dy) {
  DType wide = x.dtype() == DType::f64 ? DType::f64 : DType::f32;  // f16 counts to 2048
  Tensor winners = map(op, IsExtreme{}, x, reshape(y.detach(), over.kept));
  Tensor counted = cast(winners, wide);
  Tensor shares = cast(div(counted, sum_to(counted, over.kept)), x.dtype());
  return mul(over.spread(dy), shares);
}

template <int kSign>
struct ExtremeOver {
  static constexpr auto name = kSign > 0 ? "max" : "min";
  static constexpr bool recordable = true;
  Over over{};
  Saved x{};
  SavedOutput y{};
  Tensor forward(const Tensor& input) {
    x = input;
    Tensor result = reduce<Extreme>(name, input, over.dims, over.result, kSign);
    y = result;
    return result;
  }
  Tensor backward(const Tensor& dy) { return share(name, over, *x, *y, dy); }
};
using Max = ExtremeOver<1>;
using Min = ExtremeOver<-1>;

/// A position has no derivative, so that this is no recorded op.
Tensor place_of_extreme(const char* op, const Tensor& x, int dim, bool keep_dims, int sign) {
  Over o = over_some(op, x, {dim}, keep_dims);
  return reduce<PlaceOfExtreme>(op, x, o.dims, o.result, sign);
}

}  // namespace

Tensor max(const Tensor& x, const Dims& dims, bool keep_dims) {
  return apply(Max{.over = over_some(Max::name, x, dims, keep_dims)}, x);
}
Tensor min(const Tensor& x, const Dims& dims, bool keep_dims) {
  return apply(Min{.over = over_some(Min::name, x, dims, keep_dims)}, x);
}
Tensor argmax(const Tensor& x, int dim, bool keep_dims) {
  return place_of_extreme("argmax", x, dim, keep_dims, 1);
}
Tensor argmin(const Tensor& x, int dim, bool keep_dims) {
  return place_of_extreme("argmin", x, dim, keep_dims, -1);
}

// ---- examples for the gradient check

static const Gradcheck checks[] = {
    {"max",
     [](Sampler& s) {
       return max(s.distinct({3, 4}));
     },
     true},
    {"max",
     [](Sampler& s) {
       return max(s.distinct({2, 3, 4}), {0, 2});
     },
     true},
    {"max",
     [](Sampler& s) {
       Tensor x = s.distinct({3, 5});
       return max(x * x * x, {1}, true);
     },
     true},
    {"min",
     [](Sampler& s) {
       return min(s.distinct({3, 4}), {0});
     },
     true},
    {"min",
     [](Sampler& s) {
       return min(s.distinct({0, 4}), {1});
     }},
};

}  // namespace gradus
