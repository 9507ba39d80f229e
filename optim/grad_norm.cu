#include "optim/grad_norm.h"

#include <algorithm>
#include <cmath>

#include "ops/reduce.h"
#include "optim/step_numbers.h"

namespace gradus::optim {
namespace {

// Sums in double, whatever the type of the elements.
struct DoubleSum {
  using State = double;
  GRADUS_HD State identity() const { return 0; }
  GRADUS_HD State combine(State a, State b) const { return a + b; }
  GRADUS_HD double finish(State s) const { return s; }
};
template <class A>
struct Squares : DoubleSum {
  GRADUS_HD double add(double s, A x, int64_t) const { return s + double(x) * double(x); }
};
template <class A>
struct Magnitudes : DoubleSum {
  GRADUS_HD double add(double s, A x, int64_t) const { return s + ::fabs(double(x)); }
};
/// (|x| / 2^exponent)^p, where p = high + low may need more digits than A has.
template <class A>
struct ScaledPowers {
  A high, low, exponent;
  using State = double;
  GRADUS_HD State identity() const { return 0; }
  GRADUS_HD State add(State s, A x, int64_t) const {
    double y = ::ldexp(::fabs(double(x)), -int(exponent)), p = double(high) + double(low);
    return s + (p == 2 ? y * y : p == 1 ? y : ::pow(y, p));
  }
  GRADUS_HD State combine(State a, State b) const { return a + b; }
  GRADUS_HD double finish(State s) const { return s; }
};
/// max |x|; a NaN stays.
template <class A>
struct Largest {
  using State = double;
  GRADUS_HD State identity() const { return 0; }
  GRADUS_HD State add(State s, A x, int64_t) const { return combine(s, ::fabs(double(x))); }
  GRADUS_HD State combine(State a, State b) const { return a >= b || a != a ? a : b; }
  GRADUS_HD double finish(State s) const { return s; }
};
template <class A>
struct Zeros {
  using State = int64_t;
  GRADUS_HD State identity() const { return 0; }
  GRADUS_HD State add(State s, A x, int64_t) const { return s + (x == 0); }
  GRADUS_HD State combine(State a, State b) const { return a + b; }
  GRADUS_HD int64_t finish(State s) const { return s; }
};

template <template <class> class F, class... Args>
double over_all(const Tensor& x, Args... args) {
  DimSet all = (DimSet(1) << x.rank()) - 1;
  return reduce<F>("grad_norm", x, all, {}, args...).item();
}

double largest(const Tensors& tensors) {
  double most = 0;
  for (const Tensor& x : tensors) most = Largest<double>{}.combine(most, over_all<Largest>(x));
  return most;
}

}  // namespace

double PowerSum::norm() const {
  if (p == kInfinity) return sum;
  return std::ldexp(p == 2 ? std::sqrt(sum) : p == 1 ? sum : std::pow(sum, 1 / p), exponent);
}

PowerSum& PowerSum::operator+=(const PowerSum& other) {
  check(p == other.p, "sums of powers ", p, " and ", other.p, " cannot be joined");
  if (p == kInfinity) {
    sum = Largest<double>{}.combine(sum, other.sum);
  } else if (other.sum != 0) {
    int common = sum == 0 ? other.exponent : std::max(exponent, other.exponent);
    sum = sum * std::exp2(p * (exponent - common)) +
          other.sum * std::exp2(p * (other.exponent - common));
    exponent = common;
  }
  return *this;
}

PowerSum power_sum(const Tensors& tensors, double p) {
  check(p > 0, "a norm needs p > 0, got ", p);
  PowerSum total{.p = p};
  bool needs_scale = p != 1 && p != 2;
  for (const Tensor& x : tensors) needs_scale = needs_scale || x.dtype() == DType::f64;
  if (p == kInfinity || needs_scale) {
    total.sum = largest(tensors);
    if (p == kInfinity || total.sum == 0 || !std::isfinite(total.sum)) return total;
    total.exponent = std::ilogb(total.sum);
    total.sum = 0;
  }
  double low = p - double(float(p));
  for (const Tensor& x : tensors)
    total.sum += needs_scale ? over_all<ScaledPowers>(x, p - low, low, double(total.exponent))
                 : p == 2    ? over_all<Squares>(x)
                             : over_all<Magnitudes>(x);
  return total;
}

double sum_of_squares(const Tensor& x) { return over_all<Squares>(x); }

int64_t count_zeros(const Tensors& tensors) {
  int64_t count = 0;
  for (const Tensor& x : tensors) count += int64_t(over_all<Zeros>(x));
  return count;
}

double clip_factor(double norm, double max_norm) {
  check(max_norm > 0, "clipping to the norm ", max_norm, ": it must be positive");
  return clip_to(max_norm, norm);
}

}  // namespace gradus::optim
