#include <gtest/gtest.h>

#include <cmath>

#include "autograd/node.h"
#include "ops/ops.h"
#include "tests/devices.h"

namespace gradus {
namespace {

using Values = std::vector<double>;
constexpr double kInf = INFINITY;

struct Result {
  double loss;
  Values dz;
};

Result run(const Values& z, Shape shape, const Values& targets, CrossEntropyOptions options,
           DType t, Device device, DType ids = DType::i64) {
  Tensor logits = tensor(z, shape, t, device).requires_grad_();
  Tensor loss = cross_entropy(logits, tensor(targets, {shape[0]}, ids, device), options);
  loss.backward();
  return {loss.item(), logits.grad().to_vector()};
}

void expect_near(const Values& got, const Values& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i)
    EXPECT_NEAR(got[i], want[i], tolerance * std::max(1.0, std::abs(want[i]))) << "element " << i;
}

/// The references have 9 digits; a loss in f32 takes about 8 roundings, and so does a gradient before
/// it is rounded to the type of the logits.
double tolerance(DType t) { return 5e-9 + 8 * roundoff(t == DType::f64 ? t : DType::f32); }
double gradient_tolerance(DType t) { return tolerance(t) + roundoff(t); }

TEST(CrossEntropy, ByHand) {
  for (Device device : test_devices())
    for (DType t : kFloatingTypes) {
      Result plain = run({1, 2, 3, 0}, {1, 4}, {1}, {}, t, device);
      EXPECT_NEAR(plain.loss, 1.4401897, 4e-8 + tolerance(t));
      expect_near(plain.dz, {0.0871443187, -0.763117182, 0.64391426, 0.0320586033},
                  gradient_tolerance(t));
      // The reference states a = 0.1 as what the other classes share: s = a C/(C − 1).
      Result smooth = run({1, 2, 3, 0}, {1, 4}, {1}, {.label_smoothing = 0.4 / 3}, t, device);
      EXPECT_NEAR(smooth.loss, 1.50685637, tolerance(t));
      expect_near(smooth.dz, {0.0538109854, -0.663117182, 0.610580927, -0.00127473005},
                  gradient_tolerance(t));
    }
}

TEST(CrossEntropy, MaskedMeanByHand) {
  Values z{1, 2, 3, 0, 0, -1, 0.5, 2, 1, 1, 1, 1};
  for (Device device : test_devices())
    for (DType t : kFloatingTypes)
      for (DType ids : {DType::i32, DType::i64}) {
        Result r = run(z, {3, 4}, {1, 3, -7}, {.ignore_index = -7}, t, device, ids);
        EXPECT_NEAR(r.loss, 0.89126964, tolerance(t));
        expect_near(Values(r.dz.begin() + 4, r.dz.begin() + 8),
                    {0.0480507871, 0.0176768967, 0.0792223548, -0.144950039},
                    gradient_tolerance(t));
        EXPECT_EQ(Values(r.dz.begin() + 8, r.dz.end()), Values(4, 0.0));
        Tensor losses =
            cross_entropy(tensor(z, {3, 4}, t, device), tensor({1, 3, 0}, {3}, ids, device),
                          {.reduction = Reduction::none});
        EXPECT_EQ(losses.shape(), Shape{3});
        expect_near(losses.to_vector(), {1.4401897, 0.342349582, 1.38629436}, 4e-8 + tolerance(t));
      }
}

TEST(CrossEntropy, L1_EverythingIgnored) {
  for (Device device : test_devices())
    for (Reduction reduction : {Reduction::mean, Reduction::sum}) {
      Result r = run({1, 2, NAN, kInf}, {2, 2}, {-100, -100}, {.reduction = reduction}, DType::f32,
                     device);
      EXPECT_EQ(r.loss, 0);
      EXPECT_EQ(r.dz, Values(4, 0.0));
      EXPECT_EQ(count_targets(tensor({-100, -100}, {2}, DType::i64, device)).item(), 0);
    }
}

TEST(CrossEntropy, L2_NoRows) {
  for (Device device : test_devices())
    for (Reduction reduction : {Reduction::mean, Reduction::sum}) {
      Result r = run({}, {0, 5}, {}, {.reduction = reduction}, DType::f32, device);
      EXPECT_EQ(r.loss, 0);
      EXPECT_TRUE(r.dz.empty());
    }
}

TEST(CrossEntropy, L3_TargetOutOfRangeIsAnError) {
  for (Device device : test_devices()) {
    Tensor z = zeros({2, 10}, DType::f32, device);
    auto loss = [&](const Values& targets) {
      return cross_entropy(z, tensor(targets, {2}, DType::i64, device), {.ignore_index = -1})
          .item();
    };
    for (double bad : {-4.0, 10.0, 0x1p31}) try {
        loss({2, bad});
        ADD_FAILURE() << "no error for target " << bad;
      } catch (const Error& e) {
        std::string text = e.what(), value = std::to_string(int64_t(bad));
        for (const std::string& part : {std::string("cross_entropy"), std::string("position 1"),
                                        "value " + value, std::string("10)")})
          EXPECT_NE(text.find(part), std::string::npos) << text;
      }
    EXPECT_NEAR(loss({2, -1}), std::log(10), 1e-6);  // the device is usable, −1 is ignored
  }
}

TEST(CrossEntropy, L4_IgnoredClassStaysInTheDenominator) {
  for (Device device : test_devices()) {
    Result r = run({1, 2, 3, 1, 2, 3}, {2, 3}, {0, 2},
                   {.ignore_index = 0, .reduction = Reduction::sum}, DType::f64, device);
    EXPECT_NEAR(r.loss, 0.407605964, 1e-9);  // the second row alone
    EXPECT_EQ(Values(r.dz.begin(), r.dz.begin() + 3), Values(3, 0.0));
    expect_near(Values(r.dz.begin() + 3, r.dz.end()), {0.0900305732, 0.244728471, 0.665240956 - 1},
                1e-9);
  }
}

TEST(CrossEntropy, L5_NeverTheLogarithmOfAProbability) {
  for (Device device : test_devices()) {
    auto of = [&](Values z, double target) {
      return run(z, {1, 2}, {target}, {}, DType::f32, device);
    };
    Result wrong = of({0, 1e4}, 0), right = of({0, 1e4}, 1), tie = of({1e4, 1e4}, 0);
    EXPECT_EQ(wrong.loss, 1e4);
    EXPECT_EQ(wrong.dz, (Values{-1, 1}));
    EXPECT_EQ(right.loss, 0);
    EXPECT_EQ(right.dz, (Values{0, 0}));
    EXPECT_NEAR(tie.loss, 0.693147, 1e-6);
    expect_near(tie.dz, {-0.5, 0.5}, 1e-6);
  }
}

TEST(CrossEntropy, L6_TargetOfMinusInfinity) {
  for (Device device : test_devices()) {
    Result r = run({-kInf, 0, 0}, {1, 3}, {0}, {}, DType::f32, device);
    EXPECT_EQ(r.loss, kInf);
    expect_near(r.dz, {-1, 0.5, 0.5}, 1e-6);
    Result nothing = run({-kInf, -kInf}, {1, 2}, {0}, {}, DType::f32, device);
    EXPECT_EQ(nothing.loss, kInf);
    EXPECT_EQ(nothing.dz, (Values{0, 0}));
    for (double bad : {double(NAN), kInf})
      EXPECT_TRUE(std::isnan(run({0, bad, 0}, {1, 3}, {0}, {}, DType::f32, device).loss)) << bad;
  }
}

TEST(CrossEntropy, L7_MeanIsSumOverCount) {
  const int64_t rows = 700, C = 37;
  for (Device device : test_devices()) {
    Generator g(3);
    Tensor z = normal({rows, C}, g, 0, 2, DType::f64, device);
    Values targets;
    for (int64_t r = 0; r < rows; ++r) targets.push_back(r % 3 == 0 ? -100 : double(r * 5 % C));
    Tensor t = tensor(targets, {rows}, DType::i32, device);
    auto reduced = [&](Reduction reduction) {
      return cross_entropy(z, t, {.reduction = reduction});
    };
    double sum = reduced(Reduction::sum).item(), count = count_targets(t, -100, DType::f64).item(),
           by_row = 0;
    for (double loss : reduced(Reduction::none).to_vector()) by_row += loss;
    EXPECT_EQ(count, rows - (rows + 2) / 3);
    EXPECT_NEAR(sum, by_row, 1e-12 * by_row);
    EXPECT_NEAR(reduced(Reduction::mean).item(), sum / count, 1e-14 * sum);
  }
}

TEST(CrossEntropy, L8_LossOfHalfPrecisionIsInF32) {
  for (Device device : test_devices())
    for (DType t : {DType::bf16, DType::f16, DType::f32, DType::f64}) {
      Tensor z = zeros({1, 3}, t, device).requires_grad_();
      Tensor loss = cross_entropy(z, zeros({1}, DType::i64, device));
      EXPECT_EQ(loss.dtype(), t == DType::f64 ? DType::f64 : DType::f32);
      EXPECT_NEAR(loss.item(), std::log(3), 1e-7);
      loss.backward();
      EXPECT_EQ(z.grad().dtype(), t);
    }
}

TEST(CrossEntropy, RowsOfEveryLength) {
  for (Device device : test_devices())
    for (DType t : {DType::f32, DType::bf16})
      for (int64_t C : {1, 2, 7, 8, 31, 256, 1000, 1031, 5000, 50257, 50304, 120008}) {
        Generator g(13);
        Tensor z = normal({3, C}, g, 0, 3, t, device);
        Values targets{0, double(C / 2), double(C - 1)};
        auto in = [&](DType type, Device d) {
          return run(cast(z, DType::f64).to_vector(), {3, C}, targets, {.label_smoothing = 0.2},
                     type, d);
        };
        Result got = in(t, device), want = in(DType::f64, kCpu);
        // Σ exp has C terms of one sign, summed in lanes: a few hundred roundings at most, half of
        // them each way; 64 bounds what is left in the logarithm.
        EXPECT_NEAR(got.loss, want.loss, 64 * roundoff(DType::f32) * std::max(1.0, want.loss)) << C;
        expect_near(got.dz, want.dz, 64 * roundoff(DType::f32) + roundoff(t));
      }
}

/// Logits that came out of an op, as those of a model do: z = x · 1.
struct Made {
  Tensor x, z;
  Made(Shape shape, DType t, Device device) {
    Generator g(17);
    x = normal(shape, g, 0, 3, t, device).requires_grad_();
    z = mul(x, 1);
  }
};

TEST(CrossEntropy, TheGradientIsWrittenOverLogitsThatAreGivenAway) {
  for (Device device : test_devices())
    for (DType t : {DType::f64, DType::f32, DType::bf16})
      for (int64_t C : {5, 64}) {
        Tensor targets = tensor({3, -100, 0}, {3}, DType::i64, device);
        Made kept({3, C}, t, device), given({3, C}, t, device);
        Values before = kept.z.to_vector();
        const void* place = given.z.raw();
        const void* arrived = nullptr;
        given.z.register_hook([&](const Tensor& dz) {
          arrived = dz.raw();
          return Tensor();
        });
        cross_entropy(kept.z, targets).backward();
        cross_entropy(std::move(given.z), targets).backward();
        EXPECT_EQ(kept.z.to_vector(), before);
        EXPECT_EQ(arrived, place);
        EXPECT_EQ(kept.x.grad().to_vector(), given.x.grad().to_vector());
      }
}

TEST(CrossEntropy, LogitsThatAnotherHasAreNotOverwritten) {
  for (Device device : test_devices()) {
    Tensor targets = tensor({3, 1}, {2}, DType::i64, device);
    auto unchanged = [&](const Tensor& watched, Tensor given, const char* who) {
      Values before = watched.to_vector();
      cross_entropy(std::move(given), targets).backward();
      EXPECT_EQ(watched.to_vector(), before) << who;
    };
    Made m({2, 5}, DType::f32, device), viewed({2, 5}, DType::f32, device);
    unchanged(m.z, m.z, "a second handle");
    Tensor view = viewed.z.detach();
    unchanged(view, std::move(viewed.z), "a view");
    Made n({2, 5}, DType::f32, device);
    Tensor p = exp(n.x);  // saves its result
    cross_entropy(std::move(p), targets).backward();
    Tensor x = n.x.detach().requires_grad_(), q = exp(x);
    cross_entropy(q, targets).backward();
    EXPECT_EQ(n.x.grad().to_vector(), x.grad().to_vector());
    NoGrad guard;
    Made o({2, 5}, DType::f32, device);
    Values before = o.z.to_vector();
    Tensor* z = &o.z;  // no gradient will be asked for
    cross_entropy(std::move(*z), targets);
    EXPECT_EQ(o.z.to_vector(), before);
  }
}

TEST(CrossEntropy, BackwardAgainAndTimesANumber) {
  for (Device device : test_devices())
    for (DType t : {DType::f64, DType::f32, DType::bf16})
      for (int64_t C : {5, 64}) {
        Tensor targets = tensor({3, -100, 0}, {3}, DType::i64, device);
        Made once({3, C}, t, device), twice({3, C}, t, device);
        cross_entropy(std::move(once.z), targets).backward();
        Values d = once.x.grad().to_vector();
        Tensor loss = cross_entropy(std::move(twice.z), targets);
        for (double factor : {1.0, 4.0, -0.5, 1.0}) {  // powers of two: exact
          twice.x.zero_grad();
          loss.backward(full({}, factor, loss.dtype(), device), {.retain_graph = factor != -0.5});
          Values got = twice.x.grad().to_vector();
          for (size_t i = 0; i < d.size(); ++i) EXPECT_EQ(got[i], factor * d[i]) << factor;
          if (factor == -0.5) break;
        }
        EXPECT_THROW(loss.backward(), Error);  // the last one kept nothing
        Made third({3, C}, t, device);
        try {
          cross_entropy(std::move(third.z), targets).backward({}, {.create_graph = true});
          FAIL();
        } catch (const Error& e) {
          EXPECT_NE(std::string(e.what()).find("cross_entropy"), std::string::npos) << e.what();
        }
      }
}

TEST(CrossEntropy, ScaleIsInTheLossAndInItsGradient) {
  for (Device device : test_devices())
    for (DType t : kFloatingTypes)
      for (Reduction reduction : {Reduction::mean, Reduction::sum, Reduction::none}) {
        Tensor targets = tensor({3, -100, 0}, {3}, DType::i64, device);
        auto run = [&](double scale) {
          Made m({3, 8}, t, device);
          Tensor loss =
              cross_entropy(std::move(m.z), targets, {.reduction = reduction, .scale = scale});
          sum(loss).backward();
          return std::pair{loss.to_vector(), m.x.grad().to_vector()};
        };
        auto [loss, d] = run(1);
        auto [scaled_loss, scaled_d] = run(0.25);
        for (size_t i = 0; i < loss.size(); ++i) EXPECT_EQ(scaled_loss[i], loss[i] * 0.25);
        const double lost = t == DType::f16 ? 0x1p-25 : 0;  // a quarter of a small f16 is rounded
        for (size_t i = 0; i < d.size(); ++i) EXPECT_NEAR(scaled_d[i], d[i] * 0.25, lost);
      }
}

// More rows than blocks, some of them without loss, in the kernel that fetches the next row while it
// works on this one; against the gradient from saved m and s, which losses of rows use.
TEST(CrossEntropy, RowsThatFollowEachOtherOnAGpu) {
  for (Device device : test_devices()) {
    if (!device.is_cuda()) continue;
    for (DType t : {DType::bf16, DType::f32})
      for (int64_t C : {24, 50304, 120008}) {
        const int64_t rows = C == 24 ? 30001 : 701;
        Values ids;
        for (int64_t r = 0; r < rows; ++r)
          ids.push_back(r % 7 == 3 || r % 5 == 4 ? -100 : double(r * 7919 % C));
        Tensor targets = tensor(ids, {rows}, DType::i32, device);
        Made a({rows, C}, t, device), b({rows, C}, t, device);
        CrossEntropyOptions o{.label_smoothing = 0.1, .reduction = Reduction::sum};
        Tensor total = cross_entropy(std::move(a.z), targets, o);
        total.backward();
        o.reduction = Reduction::none;
        Tensor losses = cross_entropy(b.z, targets, o), reference = sum(losses);
        reference.backward();
        EXPECT_NEAR(total.item(), reference.item(), 1e-5 * reference.item()) << C;
        Tensor difference = cast(a.x.grad(), DType::f64) - cast(b.x.grad(), DType::f64);
        // p in f32 to some roundings, then each is rounded to T
        double most = max(abs(difference)).item();
        EXPECT_LE(most, 64 * roundoff(DType::f32) + roundoff(t)) << C << " " << t;
      }
  }
}

// m log₂e is then no number; and so many that each thread of a GPU's kernel sees several.
TEST(CrossEntropy, LogitsNearTheEndOfTheirRange) {
  constexpr int64_t C = 4096;
  for (Device device : test_devices())
    for (DType t : {DType::f32, DType::bf16})
      for (double low : {-kInf, -3.3e38, -2e38})
        for (double high : {-1.5e38, 0.0, 1.5e38, 3.3e38}) {
          Values z(2 * C, low);
          z[C + 5] = z[C + 4000] = high;  // row 0 is even: p = 1/C, or none at all
          Result got = run(z, {2, C}, {7, 5}, {.reduction = Reduction::sum}, t, device);
          const bool even = low > -kInf;
          if (even)
            EXPECT_NEAR(got.loss, std::log(C) + std::log(2), 1e-4);
          else
            EXPECT_EQ(got.loss, kInf);
          for (int64_t j : {0, 7, 5, 4000}) {
            const double in_row_0 = even ? 1.0 / C - (j == 7) : 0;
            const double in_row_1 = (j == 5 || j == 4000 ? 0.5 : 0) - (j == 5);
            EXPECT_NEAR(got.dz[j], in_row_0, gradient_tolerance(t)) << low << " " << j;
            EXPECT_NEAR(got.dz[C + j], in_row_1, gradient_tolerance(t)) << low << " " << high;
          }
        }
}

TEST(CrossEntropy, WrongUseSaysWhatWasExpected) {
  Tensor z = zeros({2, 3}), t = zeros({2}, DType::i64);
  EXPECT_THROW(cross_entropy(z, zeros({3}, DType::i64)), Error);
  EXPECT_THROW(cross_entropy(z, zeros({2}, DType::f32)), Error);
  EXPECT_THROW(cross_entropy(zeros({2, 3}, DType::i32), t), Error);
  EXPECT_THROW(cross_entropy(zeros({}), t), Error);
  EXPECT_THROW(cross_entropy(z, t, {.label_smoothing = 1.5}), Error);
  EXPECT_THROW(cross_entropy(z, {}), Error);
}

}  // namespace
}  // namespace gradus
