// Tutorial 10: mixed precision, and why masters
//
// A 16-bit number takes half the memory of an f32 and a GPU multiplies it many times as fast. What is
// lost?
//
//   f32    8 exponent bits, 24 significant bits
//   bf16   8                 8                       the range of f32, two and a half digits
//   f16    5                11                       three digits between 6e-8 and 65504
//
// Two things go wrong, and each has its remedy:
//
//   an update that is small beside its weight is rounded away      → an f32 master of each weight
//   a gradient below 2⁻²⁵ = 3e-8 is rounded to 0 (f16 alone)       → backward begins with S, not 1
//
//   master θ ─round─▶ 16-bit θ ─▶ forward ─▶ loss ─×S─▶ backward ─▶ Σ in f32 ─ ÷S ─▶ update ─▶ master θ
//
//   make tutorials && build/cpu/tutorials/10_mixed_precision
#include "nn/init.h"
#include "nn/linear.h"
#include "optim/adam.h"
#include "optim/mixed_precision.h"
#include "optim/sgd.h"
#include "tutorials/tutorial.h"

using namespace gradus;
using namespace gradus::tutorial;
using namespace gradus::optim;

void sixteen_bits() {
  section("What 16 bits hold");
  expect("f16: 65504 is the largest, 65520 is ∞",
         float(f16(65504.0f)) == 65504 && std::isinf(float(f16(65520.0f))));
  expect("f16: 3e-8 becomes 6e-8, the smallest; 2.9e-8 becomes 0",
         float(f16(3e-8f)) > 0 && float(f16(2.9e-8f)) == 0);
  expect("bf16: 1e38 and 1e-38 are there",
         std::isfinite(float(bf16(1e38f))) && float(bf16(1e-38f)) > 0);
  expect("bf16: but between 1 and 1.0078 there is nothing", float(bf16(1.003f)) == 1);
}

/// A weight of 1 that goes down by 0.001 a thousand times.
double thousand_small_steps(DType dtype, bool with_master) {
  if (with_master || dtype == DType::f32) {  // the optimizer keeps masters of 16-bit parameters
    Tensor w = ones({1}, dtype).requires_grad_();
    Sgd sgd(default_groups({w}));
    for (int t = 0; t < 1000; ++t) {
      sgd.zero_grad();
      sum(w).backward();
      sgd.step(1e-3);
    }
    return w.item();
  }
  Tensor w = ones({1}, dtype);
  for (int t = 0; t < 1000; ++t) w = w - tensor({1e-3}, {1}, dtype);
  return w.item();
}

void masters() {
  section("Why masters: 1 − 1000 · 0.001");
  expect_near("in f32 it is 0, but for a thousand roundings",
              thousand_small_steps(DType::f32, false), 0, 1e-4);
  expect("in bf16 it is 1: no single step reaches the next number",
         thousand_small_steps(DType::bf16, false) == 1);
  expect_near("bf16 with an f32 master: as f32, then rounded once",
              thousand_small_steps(DType::bf16, true), thousand_small_steps(DType::f32, false),
              1e-6);
}

void underflow() {
  section("Why a loss scale: gradients that f16 cannot hold");
  auto gradient = [](DType dtype, double seed) {
    Tensor w = ones({1}, dtype).requires_grad_();
    Tensor loss = sum(cast(w * 1e-4, DType::f32)) * 1e-5;  // dL/dw = 1e-9
    loss.backward(full({}, seed));
    return w.grad().item() / seed;
  };
  say("dL/dw in f32: ", gradient(DType::f32, 1), ", in f16: ", gradient(DType::f16, 1),
      ", in f16 from a backward that begins with 2¹⁶: ", gradient(DType::f16, 0x1p16));
  expect("f16 rounds 1e-9 to 0", gradient(DType::f16, 1) == 0);
  expect_near("scaled by 2¹⁶ it keeps its three digits", gradient(DType::f16, 0x1p16) / 1e-9, 1,
              2e-3);
  expect_near("bf16 needs no scale", gradient(DType::bf16, 1) / 1e-9, 1, 8e-3);
}

void search() {
  section("Which scale? The largest that does not overflow, found by trying");
  GradScaler scaler{.options = {.initial = 1024, .interval = 3}};
  std::string script = "GGIIIGGGIIGGG", scales;
  for (char c : script) {  // G: all gradients are finite; I: one is not
    scaler.update(c == 'I');
    scales += std::to_string(int(scaler.scale)) + " ";
  }
  say("steps  ", script);
  say("scale  ", scales);
  expect("one overflow is forgiven, the next halve it, three good steps double it",
         scales == "1024 1024 1024 512 256 256 256 512 512 256 256 256 512 ");
}

/// y = A x is learned from data whose errors are small: all gradients are below 1e-6.
struct Outcome {
  double error;
  int64_t skipped;
};
Outcome train(DType dtype, std::optional<GradScalerOptions> scaling) {
  Generator random(3);
  const Tensor x = normal({64, 8}, random), truth = normal({1, 8}, random);
  const Tensor y = matmul(x, transpose(truth, 0, 1)), in = cast(x, dtype), target = y;
  nn::Linear layer(8, 1, false);
  nn::initialize(layer, 1);
  layer.cast(dtype);
  Adam adam(layer, {.epsilon = 1e-16, .weight_decay = 0});
  MixedPrecision precision(adam, scaling);
  Outcome outcome{0, 0};
  for (int t = 0; t < 400; ++t) {
    adam.zero_grad();
    Tensor loss = mse_loss(cast(layer(in), DType::f32), target) * 1e-9;
    loss.backward(precision.seed());
    outcome.skipped += !precision.step(0.02).applied();
    outcome.error = loss.item() * 1e9;
  }
  return outcome;
}

void training() {
  section("Training a layer whose gradients are tiny");
  const Outcome f32 = train(DType::f32, {}),
                unscaled = train(DType::f16, GradScalerOptions::constant(1));
  const Outcome scaled = train(DType::f16, GradScalerOptions{.initial = 0x1p60});
  say("mean square error  f32: ", f32.error, ", f16: ", unscaled.error,
      ", f16 with a dynamic scale: ", scaled.error, " (", scaled.skipped, " steps skipped)");
  expect("f32 learns", f32.error < 1e-3);
  expect("f16 does not: each gradient is 0", unscaled.error > 0.5);
  expect("f16 with a scale learns as well", scaled.error < 1e-3);
  expect("the scale that was too large cost some skipped steps, and nothing else",
         scaled.skipped > 5 && scaled.skipped < 60);
}

int main() {
  int result = lesson("Tutorial 10: mixed precision, and why masters",
                      {sixteen_bits, masters, underflow, search, training});
  question(
      "The scale is a power of two. What would go wrong with 1000, and why not scale the weights "
      "or\n"
      "the inputs instead of the loss?");
  return result;
}
