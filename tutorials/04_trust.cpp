// Tutorial 4: how to trust a gradient
//
// A wrong gradient does not crash: the model just learns less. So every backward in gradus is compared
// with the derivative's definition, and there are four things to know about that comparison:
//
//   1. the step h of a finite difference has a best size, and the best error is known beforehand
//   2. how exact a gradient can be in f32, bf16 or f16, and how that grows with depth
//   3. the cotangent dL/dy of the check must be uneven: all ones are blind to whole classes of bugs
//   4. rounding shrinks with the type's u, a fault does not: that tells them apart
//
//   make tutorials && build/cpu/tutorials/04_trust
#include <algorithm>

#include "autograd/apply.h"
#include "autograd/gradcheck.h"
#include "tutorials/tutorial.h"

using namespace gradus;
using namespace gradus::tutorial;

// ---- 1.  f(x + h) = f + h f' + h²/2 f'' + h³/6 f''' + …, and every number is rounded, by u |f|:
//
//   one-sided   (f(x + h) − f(x)) / h            error ≤ h/2 |f''|    + O(u/h)
//   central     (f(x + h) − f(x − h)) / 2h       error ≤ h²/6 |f'''|  + O(u/h)
//
// Cut off too early on the left, rounded too coarsely on the right. The sum is smallest at h ≈ √u and
// at h ≈ ∛u: in f64 (u = 1.1e-16) at 1e-8 and at 5e-6, where 1e-8 and 1e-10 are left of the error.
void step_size() {
  section("1. The step of a finite difference, for f = eˣ at x = 1 in f64");
  const double x = 1, f = std::exp(x), u = roundoff(DType::f64);
  double best_step = 0, best_bound = 1;
  bool bounded = true;
  say("h        one-sided   central     bound of central");
  for (double h = 1e-1; h > 5e-12; h /= 10) {
    double one_sided = std::abs((std::exp(x + h) - f) / h - f);
    double central = std::abs((std::exp(x + h) - std::exp(x - h)) / (2 * h) - f);
    // x ± h is wrong by u x, exp by at most 2 u f; then the difference and the quotient round.
    double bound = h * h / 6 * std::exp(x + h) + 3 * u * f / h + 2 * u * f;
    std::printf("  %-8.0e %-11.1e %-11.1e %.1e\n", h, one_sided, central, bound);
    bounded &= central <= bound;
    if (bound < best_bound) best_bound = bound, best_step = h;
  }
  expect("no central difference is worse than its bound", bounded);
  expect_near("the best of these steps, next to ∛u = 5e-6", best_step, 1e-5, 1e-6);
  expect("there less than 2e-10 is left of the error", best_bound < 2e-10);
}

// ---- 2.  Each op rounds once, by a factor 1 + δ with |δ| ≤ u. After n ops the factors have grown to
// (1 + u)ⁿ ≈ 1 + n u at worst, and as roundings have either sign, to about √n u in general.
Tensor chain(Sampler& s, int depth) {
  Tensor y = s.uniform({64}, 0.5, 1);
  for (int i = 0; i < depth; ++i) y = y * s.uniform({64}, 0.9, 1.1);
  return y;
}

void depth_and_type() {
  section("2. Error of a gradient by type and depth, in units of the type's u");
  say("depth    f32       bf16      f16       bound");
  bool bounded = true, typical = true;
  for (int n : {1, 4, 16, 64}) {
    std::printf("  %-6d", n);
    for (DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      auto example = [n](Sampler& s) { return chain(s, n); };
      GradcheckResult r = compare_with_f64(example, dtype, kCpu, Layout::contiguous);
      double units = r.worst / roundoff(dtype);
      std::printf("  %8.2f", units);
      bounded &= units <= 2 * n + 2;  // n products forward, n backward, the rounding of dL/dy
      typical &= units <= 4 * std::sqrt(2.0 * n + 2);
    }
    std::printf("  %8d\n", 2 * n + 2);
  }
  expect("no gradient is worse than one u for each op on its path", bounded);
  expect("and none is worse than 4 √(number of ops) u", typical);
}

// ---- 3.  Softmax with a bug that is easily written: the mean of dy where Σ p dy belongs.
struct WrongSoftmax {
  static constexpr auto name = "wrong_softmax";
  SavedOutput p{};
  Tensor forward(const Tensor& x) {
    Tensor y = softmax(x);
    p = y;
    return y;
  }
  Tensor backward(const Tensor& dy) {
    Tensor y = *p;
    return y * (dy - mean(dy, {-1}, true));  // right: y * (dy - sum(y * dy, {-1}, true))
  }
};
Tensor wrong_softmax(const Tensor& x) { return apply(WrongSoftmax{}, x); }

/// Largest difference between backward and central differences of L = Σ c_i y_i.
double worst_difference(Tensor (*f)(const Tensor&), const Tensor& c) {
  Tensor x = tensor({1, 2, 3}, {3}, DType::f64).requires_grad_();
  std::vector<double> dx = grad(f(x), {x}, c)[0].to_vector();
  auto loss_at = [&](int64_t i, double v) {
    Tensor moved = clone(x.detach());
    moved.set(i, v);
    return sum(c * f(moved)).item();
  };
  const double h = 1e-6;
  double worst = 0;
  for (int64_t i = 0; i < 3; ++i) {
    double difference = (loss_at(i, x.at(i) + h) - loss_at(i, x.at(i) - h)) / (2 * h);
    worst = std::max(worst, std::abs(difference - dx[size_t(i)]));
  }
  return worst;
}

void cotangents() {
  section("3. A planted bug, seen through two cotangents");
  Tensor ones = full({3}, 1, DType::f64), uneven = tensor({0.3, -0.7, 1.1}, {3}, DType::f64);
  auto right = [](const Tensor& x) { return softmax(x); };
  // Σ p = 1 whatever x is: with c = 1 the loss is constant, and any backward that returns 0 passes.
  expect_near("ones, right softmax: difference", worst_difference(right, ones), 0, 1e-8);
  expect_near("ones, wrong softmax: difference (passes!)", worst_difference(wrong_softmax, ones), 0,
              1e-8);
  expect_near("uneven, right softmax: difference", worst_difference(right, uneven), 0, 1e-8);
  double found = worst_difference(wrong_softmax, uneven);
  say("uneven, wrong softmax: difference ", found);
  expect("the uneven cotangent finds the bug", found > 0.01);
}

// ---- 4.  A large difference in f32: is it rounding? Compute the same in f64.
void rounding_or_fault() {
  section("4. Rounding or fault: change the type");
  auto right = [](Sampler& s) { return softmax(s.normal({4, 8})); };
  auto wrong = [](Sampler& s) { return wrong_softmax(s.normal({4, 8})); };
  // f32 against f64 of the SAME code sees rounding alone; f64 against differences sees faults.
  double right_rounding = compare_with_f64(right, DType::f32, kCpu, Layout::contiguous).worst;
  double wrong_rounding = compare_with_f64(wrong, DType::f32, kCpu, Layout::contiguous).worst;
  double right_fault = gradcheck(right, kCpu, Layout::contiguous).worst;
  double wrong_fault = gradcheck(wrong, kCpu, Layout::contiguous).worst;
  std::printf("                          right     wrong\n");
  std::printf("  f32 against f64         %.0e     %.0e\n", right_rounding, wrong_rounding);
  std::printf("  f64 against differences %.0e     %.0e\n", right_fault, wrong_fault);
  const double u = roundoff(DType::f32);
  expect("rounding is a few u of f32 in both", std::max(right_rounding, wrong_rounding) < 16 * u);
  expect("in f64 the right one is left with the error of part 1", right_fault < 1e-8);
  expect("the fault is as large in f64 as in any type", wrong_fault > 0.01);
}

int main() {
  int result = lesson("Tutorial 4: how to trust a gradient",
                      {step_size, depth_and_type, cotangents, rounding_or_fault});
  question(
      "Why does Gradcheck take h = 1e-6 and not ∛u = 5e-6, and does it matter?  What is Σ c_i y_i\n"
      "good for when L is not linear in y at all?  (autograd/gradcheck.h)");
  return result;
}
