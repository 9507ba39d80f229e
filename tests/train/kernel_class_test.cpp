#include "train/kernel_class.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <numeric>
#include <thread>

#include "core/check.h"
#include "train/profile.h"

namespace gradus::train {
namespace {

double total(const ClassTimes& times) { return std::accumulate(times.begin(), times.end(), 0.0); }

// The tables of floors for one H200 that these classes come from, to the digits printed there.
TEST(KernelClass, FloorsOfTheKnownModels) {
  const auto h200 = measured_ceiling("NVIDIA H200", DType::bf16);
  ASSERT_TRUE(h200);
  const StepSize gpt2{{12, 768, 1024, 50304, 12, 12, 3072, false}, 64, 124'475'904};
  const ClassTimes a = floor_of(gpt2, *h200);
  EXPECT_NEAR(a[int(KernelClass::gemm)], 61.66, 0.02);
  EXPECT_NEAR(a[int(KernelClass::attention_forward)], 1.57, 0.005);
  EXPECT_NEAR(a[int(KernelClass::attention_backward)], 4.48, 0.01);
  EXPECT_NEAR(a[int(KernelClass::norm)], 2.25 + 2.32, 0.01);
  EXPECT_NEAR(a[int(KernelClass::cross_entropy)], 3.07, 0.005);
  EXPECT_NEAR(a[int(KernelClass::embedding)], 0.07 + 0.07, 0.01);
  EXPECT_NEAR(a[int(KernelClass::optimizer)], 0.93, 0.005);
  EXPECT_EQ(a[int(KernelClass::gate_and_rope)], 0);
  EXPECT_NEAR(total(a), 76.42, 0.05);

  const StepSize llama{{22, 2048, 2048, 32000, 32, 4, 5632, true}, 8, 1'100'048'384};
  const ClassTimes b = floor_of(llama, *h200);
  EXPECT_NEAR(b[int(KernelClass::gemm)], 129.05, 0.05);
  EXPECT_NEAR(b[int(KernelClass::gate_and_rope)], 7.55 + 1.55, 0.01);
  EXPECT_NEAR(total(b), 166.57, 0.1);
}

TEST(KernelClass, OpsAreTakenByTheirNames) {
  const auto of = [](const char* name, Phase phase) { return class_of({name, phase}); };
  EXPECT_EQ(of("attention", Phase::forward), KernelClass::attention_forward);
  EXPECT_EQ(of("attention", Phase::backward), KernelClass::attention_backward);
  EXPECT_EQ(of("linear", Phase::backward), KernelClass::gemm);
  EXPECT_EQ(of("gelu_mlp", Phase::forward), KernelClass::gemm);
  EXPECT_EQ(of("layer_norm", Phase::forward), KernelClass::norm);
  EXPECT_EQ(of("sum_parts", Phase::backward), KernelClass::norm);
  EXPECT_EQ(of("normal_cdf", Phase::forward), KernelClass::elementwise);
  EXPECT_EQ(of("gelu", Phase::backward), KernelClass::elementwise);
  EXPECT_EQ(of("slice", Phase::forward), KernelClass::other);
  EXPECT_EQ(of("optimizer", Phase::other), KernelClass::optimizer);
  EXPECT_EQ(of("step", Phase::other), KernelClass::gaps);
  EXPECT_EQ(of("", Phase::other), KernelClass::other);
}

TEST(KernelClass, AnUnknownDeviceHasNoCeiling) {
  EXPECT_FALSE(measured_ceiling("NVIDIA H20", DType::bf16));
  EXPECT_FALSE(measured_ceiling("NVIDIA H200", DType::f32));
}

TEST(Profile, TheClassesAddUpToTheStep) {
  const auto busy = [](std::string_view name, Phase phase, int ms) {
    Scope scope(name, phase);
    std::this_thread::sleep_for(std::chrono::milliseconds(ms));  // at least that long
  };
  int calls = 0;
  const Profile p = profile_steps(kCpu,
                                  [&] {
                                    ++calls;
                                    busy("linear", Phase::forward, 8);
                                    busy("linear", Phase::backward, 8);
                                    busy("gelu", Phase::forward, 1);
                                  },
                                  2, {});
  EXPECT_EQ(calls, 4);  // warm-up, timed, two traced
  EXPECT_EQ(p.ops[int(KernelClass::gemm)], 2);
  EXPECT_EQ(p.ops[int(KernelClass::elementwise)], 1);
  EXPECT_GE(p.ms[int(KernelClass::gemm)], 16);
  EXPECT_GE(p.ms[int(KernelClass::elementwise)], 1);
  EXPECT_GE(p.traced_ms, 17);
  EXPECT_DOUBLE_EQ(total(p.ms), p.traced_ms);
  EXPECT_GE(p.plain_ms, 17);
  EXPECT_FALSE(p.floor);
  const std::string table = table_of(p);
  for (const char* word : {"GEMM", "elementwise", "gaps", "step", "without the trace"})
    EXPECT_NE(table.find(word), table.npos) << table;
  EXPECT_EQ(table.find("cross-entropy"), table.npos) << table;
}

TEST(Profile, NeedsAStep) {
  EXPECT_THROW(profile_steps(kCpu, [] {}, 0, {}), Error);
}

}  // namespace
}  // namespace gradus::train
