// The contract of the engine (edge cases G1 to G24), and what its reference promises.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <pthread.h>

#include <cmath>
#include <ctime>

#include "autograd/accumulate.h"
#include "autograd/apply.h"
#include "autograd/engine.h"
#include "autograd/gradcheck.h"
#include "autograd/graph.h"
#include "autograd/recompute.h"
#include "core/allocator.h"
#include "ops/ops.h"

namespace gradus {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Tensor leaf(const std::vector<double>& v) {
  return tensor(v, {int64_t(v.size())}, DType::f64).requires_grad_();
}
std::vector<double> grad_of(const Tensor& x) { return x.grad().to_vector(); }

template <class F>
std::string error_of(F f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

/// Runs `f` on a thread with an 8 MB stack, the usual limit.
void on_small_stack(std::function<void()> f) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 8 << 20);
  pthread_t thread;
  auto entry = [](void* p) -> void* {
    (*static_cast<std::function<void()>*>(p))();
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&thread, &attributes, entry, &f), 0);
  pthread_join(thread, nullptr);
}

// ---- ops of this test (names that begin with test_ need no Gradcheck)

struct Floor {
  static constexpr auto name = "test_floor_without_backward";
  Tensor forward(const Tensor& x) { return clone_values(x); }
};

struct Stop {
  static constexpr auto name = "test_stop_gradient";
  Tensor forward(const Tensor& x) { return clone_values(x); }
  Tensor backward(const Tensor&) { return {}; }
};

struct Fused {
  static constexpr auto name = "test_fused_square";
  Saved x{};
  Tensor forward(const Tensor& in) {
    x = in;
    return mul(in, in);
  }
  Tensor backward(const Tensor& dy) { return mul(dy, mul(*x, 2)); }
};

struct Wrong {
  static constexpr auto name = "test_wrong_shape";
  Tensor forward(const Tensor& in) { return clone_values(in); }
  Tensor backward(const Tensor& dy) { return reshape(dy, {1, -1}); }
};

struct Clip {  // a straight-through estimator: forward clips, backward passes
  static constexpr auto name = "test_straight_through";
  Tensor forward(const Tensor& x) { return clamp(x, -1, 1); }
  Tensor backward(const Tensor& dy) { return dy; }
};

// ---- order and sums

TEST(Engine, G3_AllUsesAddUp) {
  Tensor x = leaf({3});
  sum(x + x).backward();
  EXPECT_EQ(grad_of(x)[0], 2);
  x.zero_grad();
  sum(x * x).backward();
  EXPECT_EQ(grad_of(x)[0], 6);
}

TEST(Engine, G3_SixtyDoublingsRunEachNodeOnce) {
  Tensor x = leaf({1}), y = x;
  for (int i = 0; i < 60; ++i) y = y + y;  // 2⁶⁰ paths: a walk along paths would never end
  sum(y).backward();
  EXPECT_EQ(grad_of(x)[0], std::pow(2.0, 60));
}

TEST(Engine, DiamondWithPowers) {
  Tensor x = leaf({1.5});
  Tensor a = x * x, c = a * (a * a);
  sum(c).backward();
  EXPECT_DOUBLE_EQ(c.item(), 11.390625);
  EXPECT_DOUBLE_EQ(grad_of(x)[0], 45.5625);  // 6 x⁵
}

TEST(Engine, BackwardIsLinearInTheSeed) {
  auto gradient = [](double a, double b) {
    Tensor x = leaf({0.3, -0.7});
    mul(exp(x), x).backward(tensor({a, b}, {2}, DType::f64));
    return grad_of(x);
  };
  auto g = gradient(1, 0), h = gradient(0, 1), both = gradient(2, -3);
  for (size_t i = 0; i < 2; ++i) EXPECT_NEAR(both[i], 2 * g[i] - 3 * h[i], 1e-15);
}

TEST(Engine, TwoLossesFromOneTrunk) {
  Tensor x = leaf({0.3, 0.4}), trunk = exp(x);
  sum(trunk * 2.0).backward({}, {.retain_graph = true});
  sum(trunk * 3.0).backward();
  for (size_t i = 0; i < 2; ++i) EXPECT_NEAR(grad_of(x)[i], 5 * std::exp(x.at(int64_t(i))), 1e-14);
}

TEST(Engine, G12_DeadBranchChangesNothing) {
  for (bool alive : {false, true}) {
    Tensor x = leaf({2});
    Tensor y = x * x;
    Tensor w = y * 3.0;
    if (!alive) w = Tensor();
    sum(y).backward();
    EXPECT_EQ(grad_of(x)[0], 4);
  }
}

TEST(Engine, G13_UnusedOutputCountsAsZero) {
  Tensor a = leaf({1, 2, 3, 4});
  Tensors parts = split(a, 2, 0);
  sum(parts[0] + parts[1]).backward();
  EXPECT_THAT(grad_of(a), ElementsAre(1, 1, 1, 1));
  a.zero_grad();
  sum(split(a, 2, 0)[0]).backward();
  EXPECT_THAT(grad_of(a), ElementsAre(1, 1, 0, 0));
}

TEST(Engine, EdgesNameOutputs) {
  Tensor a = leaf({1, 2});
  Tensors parts = split(a, 2, 0);
  EXPECT_EQ(parts[1].output_nr(), 1);
  Tensor z = parts[0] + parts[1];
  ASSERT_EQ(z.grad_fn()->next_functions.size(), 2u);
  EXPECT_EQ(z.grad_fn()->next_functions[0].node.get(), parts[0].grad_fn());
  EXPECT_EQ(z.grad_fn()->next_functions[1].output_nr, 1);
  EXPECT_EQ(a.gradient_edge().node.get(), parts[0].grad_fn()->next_functions[0].node.get());
}

TEST(Engine, AnOpMayReturnNoGradient) {
  Tensor x = leaf({2});
  sum(apply(Stop{}, x) + x * 3.0).backward();
  EXPECT_EQ(x.grad().item(), 3);
}

// ---- shapes

TEST(Engine, G1_GradientHasTheShapeOfItsInput) {
  std::vector<Shape> shapes{{}, {1}, {4}, {3, 1}, {1, 4}, {3, 4}, {2, 1, 4}, {1, 1, 1}, {2, 3, 4}, {5, 2, 3, 4}};
  Generator g(7);
  int pairs = 0;
  for (const Shape& s : shapes)
    for (const Shape& r : shapes) {
      Tensor a = normal(s, g, 0, 1, DType::f64).requires_grad_();
      Tensor b = normal(r, g, 0, 1, DType::f64).requires_grad_();
      sum(a * b).backward();
      EXPECT_EQ(a.grad().shape(), s);
      EXPECT_EQ(b.grad().shape(), r);
      // d/da Σ ab = Σ over the places where a was used of b = (Σ b) · (uses of each a)/(numel of b)…
      // checked by the total: Σ a·da = Σ ab for a bilinear form.
      EXPECT_NEAR(sum(a.detach() * a.grad()).item(), sum(a.detach() * b.detach()).item(), 1e-11);
      ++pairs;
    }
  EXPECT_EQ(pairs, 100);
}

TEST(Engine, G6_StridedInputsGiveTheSameAsContiguousOnes) {
  Generator g(3);
  Tensor base = normal({6, 8}, g, 0, 1, DType::f64);
  std::vector<Tensor> views{transpose(base, 0, 1), slice(base, 1, 1, 7, 2), slice(base, 0, 2, 5),
                            expand(slice(base, 0, 0, 1), {4, 8})};
  for (const Tensor& v : views) {
    Tensor x = v.detach().requires_grad_(), y = clone(v).requires_grad_();
    Tensor c = normal(v.shape(), g, 0, 1, DType::f64);
    Tensor fx = tanh(x) * c, fy = tanh(y) * c;
    EXPECT_EQ(fx.to_vector(), fy.to_vector());
    EXPECT_EQ(grad(sum(fx), {x})[0].to_vector(), grad(sum(fy), {y})[0].to_vector());
  }
}

// ---- ownership of gradients

TEST(Engine, G2_GradientsAreIndependent) {
  Tensor a = leaf({1, 2}), b = leaf({3, 4}), seed = tensor({1, 1}, {2}, DType::f64);
  (a + b).backward(seed);
  a.grad().set(0, 99);
  EXPECT_EQ(grad_of(b)[0], 1);
  EXPECT_EQ(seed.at(0), 1);
}

TEST(Engine, N7_BackwardAddsAndNeverReplaces) {
  Tensor x = leaf({0.3, -0.2}), y = sum(exp(x) * x);
  y.backward({}, {.retain_graph = true});
  auto once = grad_of(x);
  y.backward();
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(grad_of(x)[i], 2 * once[i]);
}

TEST(Engine, AHeldGradientIsNotWrittenTo) {
  Tensor x = leaf({1});
  sum(x * 2.0).backward();
  Tensor held = x.grad();
  sum(x * 3.0).backward();
  EXPECT_EQ(held.item(), 2);
  EXPECT_EQ(x.grad().item(), 5);
}

TEST(Engine, G22_LeafThatIsNotReachedKeepsItsGrad) {
  Tensor x = leaf({1}), other = leaf({2});
  sum(x).backward();
  EXPECT_FALSE(other.grad());
}

TEST(Engine, GradReturnsWithoutAccumulating) {
  Tensor x = leaf({2}), w = leaf({5}), y = x * w;
  Tensors g = grad(y, {x, y});
  EXPECT_EQ(g[0].item(), 5);
  EXPECT_EQ(g[1].item(), 1);
  EXPECT_FALSE(x.grad());
  EXPECT_FALSE(w.grad());
}

TEST(Engine, RetainGrad) {
  Tensor x = leaf({2}), y = x * x;
  y.retain_grad();
  sum(y * 3.0).backward();
  EXPECT_EQ(y.grad().item(), 3);
  EXPECT_EQ(x.grad().item(), 12);
}

// ---- main gradients

TEST(Engine, MainGradIsOverwrittenOnceThenAddedTo) {
  Generator g(1);
  Tensor w = normal({3, 4}, g).requires_grad_(), x = normal({2, 4}, g);
  Tensor buffer = full({3, 4}, NAN);
  w.set_main_grad(buffer);
  EXPECT_FALSE(w.grad());
  Tensor dy = normal({2, 3}, g), want = matmul(transpose(dy, 0, 1), x);
  linear(x, w).backward(dy);
  for (int64_t i = 0; i < 12; ++i) EXPECT_FLOAT_EQ(float(buffer.at(i)), float(want.at(i)));
  (w * 2.0).backward(ones({3, 4}));  // an op that knows nothing of main gradients
  for (int64_t i = 0; i < 12; ++i) EXPECT_FLOAT_EQ(float(buffer.at(i)), float(want.at(i)) + 2);
  w.zero_grad();
  EXPECT_FALSE(w.grad());
}

TEST(Engine, MainGradOfATiedWeightFiresItsHookOnce) {
  Generator g(1);
  Tensor w = normal({4, 4}, g).requires_grad_(), x = normal({2, 4}, g);
  w.set_main_grad(full({4, 4}, NAN));
  int fired = 0;
  w.register_leaf_hook([&](const Tensor& t) {
    ++fired;
    EXPECT_FALSE(std::isnan(t.grad().at(5)));
  });
  sum(linear(linear(x, w), w)).backward();
  EXPECT_EQ(fired, 1);
}

// ---- hooks

TEST(Engine, G23_LeafHooksRunOnceInOrderWhenTheGradientIsComplete) {
  Tensor x = leaf({3});
  std::vector<int> calls;
  x.register_leaf_hook([&](const Tensor& t) {
    calls.push_back(1);
    EXPECT_EQ(t.grad().item(), 7);
  });
  x.register_leaf_hook([&](const Tensor&) { calls.push_back(2); });
  sum(x * x + x).backward();
  EXPECT_THAT(calls, ElementsAre(1, 2));
}

TEST(Engine, TensorHookSeesTheFinalGradientAndMayChangeIt) {
  Tensor x = leaf({2}), y = x * x;
  y.register_hook([](const Tensor& g) {
    EXPECT_EQ(g.item(), 5);
    return g * 10.0;
  });
  sum(y * 2.0 + y * 3.0).backward();
  EXPECT_EQ(x.grad().item(), 200);
}

// ---- the end of a backward

TEST(Engine, WhatWaitsForTheEndOfBackwardRunsOnceAfterTheOutermost) {
  Tensor x = leaf({3}), y = x * x, inner = leaf({1}) * 2.0;
  std::vector<int> calls;
  y.register_hook([&](const Tensor& g) {
    EXPECT_TRUE(detail::is_backward_running());
    detail::at_end_of_backward([&] { calls.push_back(2); });
    inner.backward(ones({1}, DType::f64));  // its end is not that of this one
    EXPECT_THAT(calls, ElementsAre());
    return g;
  });
  x.register_leaf_hook([&](const Tensor&) { calls.push_back(1); });
  sum(y).backward();
  EXPECT_THAT(calls, ElementsAre(1, 2));
  EXPECT_FALSE(detail::is_backward_running());
  EXPECT_THAT(error_of([] { detail::at_end_of_backward([] {}); }),
              HasSubstr("no backward runs in this thread"));
}

TEST(Engine, WhatWaitsForTheEndOfBackwardRunsWhateverFails) {
  for (const bool fails_before : {false, true}) {
    Tensor x = leaf({3}), y = x * x;
    std::vector<int> calls;
    y.register_hook([&](const Tensor& g) {
      for (int i : {1, 2, 3})
        detail::at_end_of_backward([&, i] {
          calls.push_back(i);
          check(i == 3, "planted at the end, ", i);
        });
      check(!fails_before, "planted before");
      return g;
    });
    EXPECT_THAT(error_of([&] { sum(y).backward(); }),
                HasSubstr(fails_before ? "planted before" : "planted at the end, 1"));
    EXPECT_THAT(calls, ElementsAre(1, 2, 3));
    sum(x * x).backward();  // nothing of it is left
    EXPECT_EQ(calls.size(), 3u);
  }
}

// ---- errors

TEST(Engine, G4_OpWithoutBackwardIsNamedAtTheForwardCall) {
  Tensor x = leaf({1.5});
  EXPECT_THAT(error_of([&] { apply(Floor{}, x); }), HasSubstr("test_floor_without_backward"));
  NoGrad guard;
  EXPECT_EQ(apply(Floor{}, x).item(), 1.5);
}

TEST(Engine, G7_IntegersHaveNoGradient) {
  Tensor ids = arange(3);
  EXPECT_THAT(error_of([&] { ids.requires_grad_(); }), HasSubstr("only floating"));
}

TEST(Engine, G8_OverwrittenSavedTensorIsAnError) {
  Tensor x = tensor({1, 2}, {1, 2}, DType::f64), w = tensor({1, 2}, {2, 1}, DType::f64).requires_grad_();
  w.set_name("w");
  Tensor y = matmul(x, w);
  fill_(x, 3);
  std::string error = error_of([&] { y.backward(); });
  EXPECT_THAT(error, HasSubstr("matmul"));
  EXPECT_THAT(error, HasSubstr("(1, 2) f64, version 0 when saved, 1 now"));
  EXPECT_THAT(error, HasSubstr("the nearest leaf is w"));
}

TEST(Engine, G9_VersionsBelongToTheStorage) {
  Tensor x = tensor({1, 2, 3, 4}, {2, 2}, DType::f64), w = leaf({1});
  Tensor y = sum(x * w);
  fill_(select(x, 0, 1), 0);  // through a view
  EXPECT_THAT(error_of([&] { y.backward(); }), HasSubstr("modified in place"));
  Tensor view = reshape(x, {4}), z = sum(view * w);
  fill_(x, 0);  // a saved view, written through its base
  EXPECT_THAT(error_of([&] { z.backward(); }), HasSubstr("modified in place"));
}

TEST(Engine, G10_WritingToWhatRequiresAGradientIsAnError) {
  Tensor x = leaf({1, 2});
  EXPECT_THAT(error_of([&] { fill_(x, 0); }), HasSubstr("requires a gradient"));
  EXPECT_THAT(error_of([&] { fill_(select(x, 0, 1), 0); }), HasSubstr("requires a gradient"));
  uint32_t version = x.version();
  NoGrad guard;
  fill_(x, 5);
  EXPECT_EQ(x.version(), version + 1);
}

TEST(Engine, G17_SecondBackwardSaysHowToKeepTheGraph) {
  Tensor x = leaf({1}), y = sum(exp(x));
  y.backward();
  std::string error = error_of([&] { y.backward(); });
  EXPECT_THAT(error, HasSubstr("sum"));
  EXPECT_THAT(error, HasSubstr("retain_graph"));
}

TEST(Engine, G20_SeedMustFit) {
  Tensor x = leaf({1, 2}), y = exp(x);
  EXPECT_THAT(error_of([&] { y.backward(); }), HasSubstr("needs a seed"));
  std::string error = error_of([&] { y.backward(ones({3}, DType::f64)); });
  EXPECT_THAT(error, HasSubstr("(3,) f64"));
  EXPECT_THAT(error, HasSubstr("(2,) f64"));
  EXPECT_THAT(error_of([&] { y.backward(ones({2})); }), HasSubstr("(2,) f32"));
}

TEST(Engine, G21_BackwardWithoutHistory) {
  EXPECT_THAT(error_of([] { sum(ones({2})).backward(); }), HasSubstr("requires a gradient"));
}

TEST(Engine, CreateGraphThroughAFusedOpNamesIt) {
  Tensor x = leaf({3}), y = apply(Fused{}, x);
  EXPECT_THAT(error_of([&] { grad(y, {x}, {}, {.create_graph = true}); }), HasSubstr("test_fused_square"));
}

TEST(Engine, BackwardOfWrongShapeIsAnErrorNamingTheOp) {
  Tensor x = leaf({1, 2});
  std::string error = error_of([&] { sum(apply(Wrong{}, x)).backward(); });
  EXPECT_THAT(error, HasSubstr("test_wrong_shape returned (1, 2) f64 for input 0, which is (2,) f64"));
}

TEST(Engine, AFailedBackwardLeavesNoGradientsBehindInTheGraph) {
  Tensor x = leaf({1}), y = exp(x);
  bool broken = true;
  y.register_hook([&](const Tensor& g) {
    check(!broken, "planted");
    return g;
  });
  Tensor loss = sum(y * 2.0 + x * 3.0);  // x · 3 delivers to x before the hook of y throws
  EXPECT_THAT(error_of([&] { loss.backward({}, {.retain_graph = true}); }), HasSubstr("planted"));
  broken = false;
  loss.backward();
  EXPECT_NEAR(x.grad().item(), 2 * std::exp(1.0) + 3, 1e-14);
}

TEST(Engine, AnomalyModeNamesTheFirstOpThatMadeANaN) {
  AnomalyMode anomaly;
  Tensor x = leaf({-1, 1});
  EXPECT_THAT(error_of([&] { sum(exp(log(x)) * 2.0); }), HasSubstr("forward of log made a NaN"));
  Tensor zero = leaf({0}), y = sqrt(zero) * 0.0;  // 0 · ∞ on the way back
  EXPECT_THAT(error_of([&] { y.backward(); }), HasSubstr("backward of sqrt made a NaN"));
}

// ---- modes

TEST(Engine, G5_ResultsRequireGradientsExactlyWhenAnInputDoes) {
  Tensor x = leaf({1, 2}), plain = ones({2}, DType::f64);
  EXPECT_TRUE((x + plain).requires_grad());
  EXPECT_FALSE((plain + plain).requires_grad());
  EXPECT_FALSE(x.detach().requires_grad());
  EXPECT_FALSE(greater(x, plain).requires_grad());
  NoGrad guard;
  EXPECT_FALSE((x + plain).requires_grad());
  EXPECT_FALSE(reshape(x, {1, 2}).requires_grad());
}

TEST(Engine, G24_NoGradNestsAndIsRestoredByExceptions) {
  try {
    NoGrad outer;
    EnableGrad inner;
    EXPECT_TRUE(grad_enabled());
    fail("planted");
  } catch (const Error&) {
  }
  EXPECT_TRUE(grad_enabled());
}

// ---- depth and memory

TEST(Engine, G11_AMillionAddsOnAnEightMegabyteStack) {
  auto seconds_for = [](int length) {
    std::clock_t start = std::clock();  // of this process: other work on the machine does not count
    Tensor x = leaf({1});
    Tensor y = x;
    for (int i = 0; i < length; ++i) y = add(y, x);
    std::string text = graph_text(y, 10);
    EXPECT_THAT(text, HasSubstr("add"));
    Tensor root = y;
    y = Tensor();
    root.backward();
    EXPECT_EQ(x.grad().item(), length + 1);
    root = Tensor();
    return double(std::clock() - start) / CLOCKS_PER_SEC;
  };
  on_small_stack([&] {
    seconds_for(100'000);  // warm
    double half = std::min(seconds_for(500'000), seconds_for(500'000));
    double full = std::min(seconds_for(1'000'000), seconds_for(1'000'000));
    EXPECT_LT(full, 2.5 * half + 0.05);
  });
}

TEST(Engine, G11_DestructionFromTheLeafEnd) {
  on_small_stack([] {
    Tensor kept;
    {
      Tensor x = leaf({1}), y = x;
      for (int i = 0; i < 1'000'000; ++i) y = add(y, 1.0);
      kept = y;
    }  // x goes first
    kept = Tensor();
  });
}

TEST(Engine, G14_ForwardsWithoutBackwardLeakNothing) {
  Tensor x = leaf({1, 2, 3});
  int64_t nodes = 0, bytes = 0;
  for (int pass = 1; pass <= 10'000; ++pass) {
    Tensor y = sum(exp(x) * tanh(x) / (x + 2.0));
    Tensors parts = split(softmax(x, 0), {1, 2}, 0);
    if (pass == 10) nodes = Node::alive(), bytes = memory_stats(kCpu).live;
  }
  Tensor y = sum(exp(x) * tanh(x) / (x + 2.0));
  Tensors parts = split(softmax(x, 0), {1, 2}, 0);
  EXPECT_EQ(Node::alive(), nodes);
  EXPECT_EQ(memory_stats(kCpu).live, bytes);
}

TEST(Engine, G15_AKeptLossHoldsNoActivations) {
  Tensor x = ones({1000}, DType::f64).requires_grad_();
  int64_t before = memory_stats(kCpu).live;
  Tensor loss = sum(exp(tanh(x)));
  loss.backward();
  EXPECT_EQ(memory_stats(kCpu).live - before, 1000 * 8 + 8);  // the gradient and the loss
}

TEST(Engine, G16_ItemAddsNothing) {
  Tensor x = leaf({1});
  double total = sum(x * 2.0).item() - 2;
  int64_t nodes = Node::alive(), bytes = memory_stats(kCpu).live;
  for (int i = 0; i < 1000; ++i) total += sum(x * 2.0).item();
  EXPECT_EQ(total, 2000);
  EXPECT_EQ(Node::alive(), nodes);
  EXPECT_EQ(memory_stats(kCpu).live, bytes);
}

TEST(Engine, M2_CloneOfAViewHoldsOnlyItsOwnElements) {
  int64_t before = memory_stats(kCpu).live;
  Tensor big = ones({1000}, DType::f64), view = slice(big, 0, 10, 20), copy = clone(view);
  big = Tensor();
  EXPECT_GE(memory_stats(kCpu).live - before, 8000);  // the view keeps it
  view = Tensor();
  EXPECT_EQ(memory_stats(kCpu).live - before, 80);
}

// ---- second derivatives

// L = ½ xᵀ A x with A = [[2, 1], [1, 3]]: the Hessian is A, and A (1, −1) = (1, −2).
TEST(Engine, HessianVectorProduct) {
  Tensor A = tensor({2, 1, 1, 3}, {2, 2}, DType::f64);
  Tensor x = tensor({0.4, -0.9}, {2, 1}, DType::f64).requires_grad_();
  Tensor loss = mul(sum(matmul(transpose(x, 0, 1), matmul(A, x))), 0.5);
  Tensor g = grad(loss, {x}, {}, {.create_graph = true})[0];
  Tensor v = tensor({1, -1}, {2, 1}, DType::f64);
  EXPECT_THAT(grad(sum(g * v), {x})[0].to_vector(), ElementsAre(1, -2));
}

TEST(Engine, ThirdDerivativeOfAPower) {
  Tensor x = leaf({1.5});
  Tensor y = sum(x * x * x * x);
  for (int order = 0; order < 3; ++order) y = sum(grad(y, {x}, {}, {.create_graph = true})[0]);
  EXPECT_NEAR(y.item(), 24 * 1.5, 1e-12);
}

// ---- user-defined functions

TEST(Engine, AUserDefinedFunctionIsAnOrdinaryNode) {
  Tensor x = leaf({-3, 0.5, 2});
  Tensor y = apply(Clip{}, x);
  EXPECT_THAT(y.to_vector(), ElementsAre(-1, 0.5, 1));
  sum(y * tensor({1, 2, 3}, {3}, DType::f64)).backward();
  EXPECT_THAT(grad_of(x), ElementsAre(1, 2, 3));
}

// ---- recomputation

TEST(Recompute, R6_GradientsAndGeneratorAreExactlyThoseOfAPlainRun) {
  auto run = [](bool recomputed) {
    Generator g(11), data(5);
    Tensor w = normal({8, 8}, data).requires_grad_(), x = normal({4, 8}, data).requires_grad_();
    auto segment = [&](const Tensors& in) -> Tensors {
      return {dropout(gelu(linear(in[0], w)), 0.1, g)};
    };
    Tensor h = x;
    for (int i = 0; i < 3; ++i) h = recomputed ? recompute(segment, {h}, &g)[0] : segment({h})[0];
    Tensor loss = mean(h * h);
    loss.backward();
    std::vector<double> all{loss.item(), double(g.state().streams)};
    for (const Tensor& t : {x.grad(), w.grad()})
      for (double v : t.to_vector()) all.push_back(v);
    return all;
  };
  EXPECT_EQ(run(true), run(false));
}

TEST(Recompute, KeepsOnlyTheInputs) {
  Generator data(5);
  Tensor x = normal({64}, data).requires_grad_();
  auto deep = [](const Tensors& in) -> Tensors {
    Tensor h = in[0];
    for (int i = 0; i < 20; ++i) h = tanh(h);
    return {h};
  };
  int64_t before = memory_stats(kCpu).live;
  Tensor y = recompute(deep, {x})[0];
  EXPECT_LE(memory_stats(kCpu).live - before, 64 * 4);  // the result alone
  y.backward(ones({64}));
  EXPECT_TRUE(x.grad());
}

TEST(Recompute, ParametersInsideCollectEvenIfNoInputRequiresAGradient) {
  Tensor w = leaf({2}), x = tensor({3}, {1}, DType::f64);
  recompute([&](const Tensors& in) -> Tensors { return {in[0] * w}; }, {x})[0].backward();
  EXPECT_EQ(w.grad().item(), 3);
}

TEST(Recompute, R7_ATiedWeightOutsideTheSegmentIsSummed) {
  Tensor w = leaf({2}), x = leaf({3});
  Tensor h = x * w;
  Tensor y = recompute([&](const Tensors& in) -> Tensors { return {in[0] * w}; }, {h})[0];
  sum(y * w).backward();  // x w³
  EXPECT_EQ(w.grad().item(), 3 * 3 * 4);
  EXPECT_EQ(x.grad().item(), 8);
}

TEST(Recompute, GradOfAParameterInsideAndOutsideTheSegment) {
  Tensor w = leaf({2}), x = leaf({3});
  Tensor y = recompute([&](const Tensors& in) -> Tensors { return {in[0] * w}; }, {x * w})[0];
  Tensors g = grad(sum(y * w), {w, x});  // x w³
  EXPECT_EQ(g[0].item(), 36);
  EXPECT_EQ(g[1].item(), 8);
  EXPECT_FALSE(w.grad());
}

// ---- the ops of autograd/ itself, which knows no other ops to be checked with

const Gradcheck checks[] = {
    {"recompute",
     [](Sampler& s) {
       Tensor x = s.normal({3}), w = s.normal({3});
       return recompute([](const Tensors& in) -> Tensors { return {in[0] * tanh(in[1])}; }, {x, w})[0];
     }},
    {"sum_of_uses",
     [](Sampler& s) {
       EnableGrad recorded;  // the derivative of x³, in whose recorded backward three uses meet
       Tensor x = s.normal({3});
       return grad(sum(x * x * x), {x}, {}, {.create_graph = true})[0];
     }},
};

// ---- pictures

TEST(Graph, TextAndDotShowNodesShapesAndSavedBytes) {
  Tensor x = leaf({1, 2, 3});
  x.set_name("x");
  Tensor y = sum(x * exp(x));
  std::string text = graph_text(y);
  EXPECT_THAT(text, HasSubstr("#1 sum"));
  EXPECT_THAT(text, HasSubstr("mul  (3,) f64  saves 48 bytes"));
  EXPECT_THAT(text, HasSubstr("accumulate_grad x  (3,) f64"));
  std::string dot = graph_dot(y);
  EXPECT_THAT(dot, HasSubstr("digraph gradus"));
  EXPECT_THAT(dot, HasSubstr("shape=box"));
  EXPECT_EQ(graph_size(y).nodes, 3);
}

}  // namespace
}  // namespace gradus
