#include "core/trace.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <thread>

#include "autograd/node.h"
#include "core/delay.h"
#include "ops/ops.h"
#include "tests/devices.h"

namespace gradus {
namespace {

void wait(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

const Trace::Total* find(const std::vector<Trace::Total>& totals, std::string_view name,
                         Phase phase) {
  for (const Trace::Total& t : totals)
    if (t.activity.name == name && t.activity.phase == phase) return &t;
  return nullptr;
}

TEST(Trace, ATotalCountsWhatIsNotInAnInnerSpan) {
  Trace trace(kCpu);
  {
    Scope outer("outer");
    wait(2);
    for (int i = 0; i < 2; ++i) {
      Scope inner("inner", Phase::forward);
      wait(4);
    }
  }
  const auto spans = trace.spans();
  ASSERT_EQ(spans.size(), 3u);
  EXPECT_EQ(spans[0].activity.name, "outer");
  EXPECT_EQ(spans[0].parent, -1);
  EXPECT_EQ(spans[1].parent, 0);
  EXPECT_EQ(spans[2].parent, 0);
  EXPECT_GE(spans[0].start, 0);
  EXPECT_LE(spans[1].end, spans[2].start);
  const auto totals = trace.totals();
  const auto *outer = find(totals, "outer", Phase::other),
             *inner = find(totals, "inner", Phase::forward);
  ASSERT_TRUE(outer && inner);
  EXPECT_EQ(inner->count, 2);
  EXPECT_GE(inner->self, 8);  // a sleep is never shorter than asked for
  EXPECT_GE(outer->self, 2);
  EXPECT_NEAR(outer->self + inner->self, spans[0].end - spans[0].start, 1e-9);
}

TEST(Trace, RecordsEachOpForwardAndBackward) {
  for (Device device : test_devices()) {
    Tensor x = ones({3}, DType::f32, device).requires_grad_();
    softmax(x, 0).backward(ones({3}, DType::f32, device));  // before: leaves nothing
    Trace trace(device);
    softmax(softmax(x, 0), 0).backward(ones({3}, DType::f32, device));
    const auto totals = trace.totals();
    for (Phase phase : {Phase::forward, Phase::backward}) {
      const auto* total = find(totals, "softmax", phase);
      ASSERT_TRUE(total) << device;
      EXPECT_EQ(total->count, 2);
    }
    for (const Trace::Span& s : trace.spans()) {
      EXPECT_GE(s.end, s.start);
      EXPECT_GE(s.host_end, s.host_start);
      EXPECT_EQ(s.parent, -1) << s.activity.name;
    }
  }
}

// exp's backward is a product, which is an op itself.
TEST(Trace, WhatRunsInABackwardIsBackward) {
  const Tensor x = ones({3}).requires_grad_();
  Trace trace(kCpu);
  exp(x).backward(ones({3}));
  const auto totals = trace.totals();
  EXPECT_TRUE(find(totals, "exp", Phase::forward));
  EXPECT_TRUE(find(totals, "mul", Phase::backward));
  EXPECT_FALSE(find(totals, "mul", Phase::forward));
}

TEST(Trace, RecordsItsOwnThreadWhileItLives) {
  Trace outer(kCpu);
  {
    Trace trace(kCpu);
    std::thread([] { Scope scope("elsewhere"); }).join();
    Scope scope("here");
  }
  Scope scope("open");
  EXPECT_EQ(outer.totals().size(), 1u);  // the span that is open has no time yet
  EXPECT_EQ(outer.totals()[0].self, 0);
}

TEST(Trace, AnExceptionEndsItsScopes) {
  Trace trace(kCpu);
  try {
    Scope outer("outer");
    Scope inner("inner");
    throw std::runtime_error("");
  } catch (const std::runtime_error&) {
  }
  Scope("after");
  const auto spans = trace.spans();
  ASSERT_EQ(spans.size(), 3u);
  EXPECT_EQ(spans[1].parent, 0);
  EXPECT_EQ(spans[2].parent, -1);
}

TEST(Trace, WritesWhatAViewerReads) {
  const std::string path = std::filesystem::temp_directory_path() / "gradus_trace_test.json";
  for (Device device : test_devices()) {
    {
      Trace trace(device);
      const Tensor x = ones({3}, DType::f32, device).requires_grad_();
      softmax(x, 0).backward(x);
      trace.write_chrome(path);
    }
    const auto events = nlohmann::json::parse(std::ifstream(path)).at("traceEvents");
    ASSERT_EQ(events.size(), device.is_cuda() ? 6u : 3u);  // softmax, its backward, the leaf
    EXPECT_EQ(events[0].at("name"), "softmax");
    EXPECT_EQ(events[0].at("ph"), "X");
    EXPECT_EQ(events[0].at("tid"), "host");
    for (const auto& event : events) EXPECT_GE(event.at("dur").get<double>(), 0);
  }
  std::filesystem::remove(path);
}

TEST(Trace, TheDeviceIsHeldBackUntilTheHostIsAhead) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no GPU";
  const NoGrad no_grad;
  const Tensor x = exp(ones({3}, DType::f32, kCuda));  // loads the kernel
  Trace trace(kCuda);
  delay(kCuda, 20);
  exp(x);
  const auto spans = trace.spans();
  EXPECT_GE(spans[0].start, 20);     // the device came late
  EXPECT_LT(spans[0].host_end, 20);  // the host had long passed
}

}  // namespace
}  // namespace gradus
