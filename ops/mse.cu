// Mean squared error:   e_i = (y_i − t_i)²,   ℓ = Σ e_i / n  (or Σ e_i, or each e_i)
//
//   dy = 2 (y − t) dℓ / n,   dt = −dy
//
// A loss of 16-bit numbers is computed and returned in f32: a squared difference has twice the digits.
#include "autograd/apply.h"
#include "autograd/gradcheck.h"
#include "ops/map.h"
#include "ops/ops.h"

namespace gradus {
namespace {

struct SquaredDifference {
  template <class T>
  GRADUS_HD T operator()(T y, T t) const {
    return (y - t) * (y - t);
  }
};
struct ScaledDifference {
  double factor;
  template <class T>
  GRADUS_HD T operator()(T y, T t, T dloss) const {
    return T(factor) * (y - t) * dloss;
  }
};

Tensor wide(const Tensor& x) { return x.dtype() == DType::f64 ? x : cast(x, DType::f32); }

struct MseLoss {
  static constexpr auto name = "mse_loss";
  Reduction reduction{};
  Saved y{}, target{};

  Tensor forward(const Tensor& a, const Tensor& b) {
    y = a, target = b;
    Tensor e = map(name, SquaredDifference{}, wide(a), wide(b));
    if (reduction == Reduction::none) return e;
    return reduction == Reduction::sum ? sum(e) : mean(e);
  }
  double factor() const { return reduction == Reduction::mean ? 2 / double(y->numel()) : 2; }
  Tensors backward(const Tensor& dloss, Needs need) {
    Tensor dy =
        cast(map(name, ScaledDifference{factor()}, wide(*y), wide(*target), dloss), y->dtype());
    return {dy, need[1] ? neg(dy) : Tensor{}};
  }
  Tensors backward_recorded(const Tensor& dloss, Needs need) {
    Tensor dy = cast(mul(mul(sub(wide(*y), wide(*target)), dloss), factor()), y->dtype());
    return {dy, need[1] ? neg(dy) : Tensor{}};
  }
};

}  // namespace

Tensor mse_loss(const Tensor& y, const Tensor& target, Reduction reduction) {
  const char* name = MseLoss::name;
  detail::check_operands(name, y, target);
  check(is_floating(y.dtype()), name, ": floating tensors are needed, got ", y.describe());
  check(y.shape() == target.shape(), name, ": shapes differ, ", y.shape(), " and ", target.shape());
  check(reduction != Reduction::mean || y.numel() > 0, name, ": no mean over shape ", y.shape());
  return apply(MseLoss{.reduction = reduction}, y, target);
}

static const Gradcheck checks[] = {
    {"mse_loss",
     [](Sampler& s) {
       return mse_loss(s.normal({3, 5}), s.normal({3, 5}));
     },
     true},
    {"mse_loss",
     [](Sampler& s) {
       return mse_loss(s.normal({2, 3}), s.constant({2, 3}), Reduction::sum);
     }},
    {"mse_loss", [](Sampler& s) { return mse_loss(s.normal({4}), s.normal({4}), Reduction::none); },
     true},
    {"mse_loss",
     [](Sampler& s) {
       return mse_loss(s.normal({0, 4}), s.normal({0, 4}), Reduction::sum);
     }},
};

}  // namespace gradus
