#include "optim/grad_scaler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

namespace gradus::optim {
namespace {

struct Trace {
  std::vector<double> scale;
  std::vector<int64_t> good, hysteresis;
};

/// The scaler after each step of a script: G(ood) or I(nf).
Trace trace_of(GradScaler scaler, const std::string& script) {
  Trace t;
  for (char c : script) {
    scaler.update(c == 'I');
    t.scale.push_back(scaler.scale);
    t.good.push_back(scaler.good);
    t.hysteresis.push_back(scaler.hysteresis);
    EXPECT_EQ(double(scaler.seed), scaler.scale);
  }
  return t;
}

TEST(GradScaler, FollowsTheTraceOfTheReference) {
  const GradScalerOptions options{.initial = 1024, .interval = 3};
  validate(options);
  const Trace t = trace_of({.options = options}, "GGIIIGGGIIGGG");
  EXPECT_EQ(t.scale, (std::vector<double>{1024, 1024, 1024, 512, 256, 256, 256, 512, 512, 256, 256,
                                          256, 512}));
  EXPECT_EQ(t.good, (std::vector<int64_t>{1, 2, 0, 0, 0, 1, 2, 0, 0, 0, 1, 2, 0}));
  EXPECT_EQ(t.hysteresis, (std::vector<int64_t>{2, 2, 1, 0, -1, -1, -1, 2, 1, 0, 0, 0, 2}));
}

// O5: never below the floor, and it says when it should have gone there.
TEST(GradScaler, O5_StaysAtItsFloor) {
  GradScaler scaler{.options = {.initial = 4, .hysteresis = 1}};
  EXPECT_EQ(trace_of(scaler, "IIII").scale, (std::vector<double>{2, 1, 1, 1}));
  EXPECT_TRUE(scaler.update(true));
  EXPECT_TRUE(scaler.update(true));
  EXPECT_FALSE(scaler.update(true));
  EXPECT_TRUE(scaler.update(false));
  GradScaler uneven{.options = {.initial = 4, .minimum = 3, .hysteresis = 1}};
  EXPECT_EQ(trace_of(uneven, "II").scale, (std::vector<double>{3, 3}));
}

TEST(GradScaler, DefaultsAreThoseOfTheReference) {
  const GradScaler s;
  EXPECT_EQ(s.scale, 4294967296.0);
  EXPECT_EQ(s.options.minimum, 1);
  EXPECT_EQ(s.options.growth, 2);
  EXPECT_EQ(s.options.backoff, 0.5);
  EXPECT_EQ(s.options.interval, 1000);
  EXPECT_EQ(s.hysteresis, 2);
}

TEST(GradScaler, AConstantScaleStays) {
  GradScaler s{.options = GradScalerOptions::constant(128)};
  for (double scale : trace_of(s, "GGIIIIGGGG").scale) EXPECT_EQ(scale, 128);
}

TEST(GradScaler, GrowsNoFurtherThanAnF32Holds) {
  GradScaler s{.options = {.initial = 0x1p125, .interval = 1}};
  EXPECT_EQ(trace_of(s, "GGGG").scale, (std::vector<double>{0x1p126, 0x1p126, 0x1p126, 0x1p126}));
}

TEST(GradScaler, GoesOnFromASavedState) {
  const std::string script = "GGIIIGGGIIGGG";
  const GradScalerOptions options{.initial = 1024, .interval = 3};
  const Trace whole = trace_of({.options = options}, script);
  for (size_t k = 0; k < script.size(); ++k) {
    GradScaler first{.options = options}, second{.options = options};
    for (size_t i = 0; i < k; ++i) first.update(script[i] == 'I');
    second.restore(first.state());
    const Trace rest = trace_of(second, script.substr(k));
    EXPECT_EQ(rest.scale, std::vector<double>(whole.scale.begin() + int64_t(k), whole.scale.end()));
  }
}

TEST(GradScaler, WrongOptionsAreErrors) {
  EXPECT_THROW(validate(GradScalerOptions{.initial = 0}), Error);
  EXPECT_THROW(validate(GradScalerOptions{.initial = 1, .minimum = 2}), Error);
  EXPECT_THROW(validate(GradScalerOptions{.initial = INFINITY}), Error);
  EXPECT_THROW(validate(GradScalerOptions{.backoff = 1}), Error);
  EXPECT_THROW(validate(GradScalerOptions{.growth = 0.5}), Error);
  EXPECT_THROW(validate(GradScalerOptions{.hysteresis = 0}), Error);
  EXPECT_THROW(validate(GradScalerOptions{.interval = -1}), Error);
}

}  // namespace
}  // namespace gradus::optim
