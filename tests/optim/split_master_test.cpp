#include "optim/split_master.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ops/ops.h"
#include "optim/adam.h"
#include "tests/devices.h"

namespace gradus::optim {
namespace {

/// f32 numbers with every upper half, and with lower halves around zero, one half and one.
std::vector<uint32_t> all_patterns() {
  std::vector<uint32_t> patterns;
  for (uint32_t upper = 0; upper < 0x10000; ++upper)
    for (uint32_t lower : {0x0000, 0x0001, 0x1234, 0x7fff, 0x8000, 0x8001, 0xabcd, 0xffff})
      patterns.push_back(upper << 16 | lower);
  return patterns;
}

/// What comes back of a number with these bits, by the definition of rounding to nearest even.
uint32_t expected(uint32_t bits) {
  const bool tie_to_the_number_below = (bits & 0x1ffff) == 0x8000;
  return tie_to_the_number_below ? bits - 1 : bits;
}

TEST(SplitMaster, ComesBackBitForBitButForTiesRoundedDown) {
  for (uint32_t bits : all_patterns()) {
    const auto theta = bits_of<float>(bits);
    const bf16 p(theta);
    const float back = master_of(p, low_of(theta, p));
    if (std::isnan(theta)) {
      ASSERT_TRUE(std::isnan(back) && std::isnan(float(p))) << std::hex << bits;
      continue;
    }
    ASSERT_EQ(bits_of<uint32_t>(back), expected(bits)) << std::hex << bits;
    ASSERT_EQ(bf16(back).bits, p.bits) << std::hex << bits;
    ASSERT_EQ(bits_of<uint32_t>(master_of(p, low_of(back, p))), bits_of<uint32_t>(back));
  }
}

// On tensors, and on what a GPU makes of a NaN.
TEST(SplitMaster, AViewReadsWhatWasWritten) {
  const std::vector<uint32_t> patterns = all_patterns();
  const Tensor host = empty({int64_t(patterns.size())});
  std::memcpy(host.raw(), patterns.data(), size_t(bytes_of(host)));
  for (Device device : test_devices()) {
    const StateView view(zeros(host.shape(), DType::bf16, device),
                         zeros(host.shape(), DType::bf16, device));
    EXPECT_EQ(view.dtype(), DType::f32);
    view.write(host);
    const Tensor back = to(view.read(), kCpu), p = to(view.values, kCpu);
    for (size_t i = 0; i < patterns.size(); ++i) {
      const auto theta = bits_of<float>(patterns[i]), read = back.data<float>()[i];
      if (std::isnan(theta)) {
        ASSERT_TRUE(std::isnan(read) && std::isnan(float(p.data<bf16>()[i])));
        continue;
      }
      ASSERT_EQ(bits_of<uint32_t>(read), expected(patterns[i])) << std::hex << patterns[i];
      ASSERT_EQ(p.data<bf16>()[i].bits, bf16(theta).bits) << std::hex << patterns[i];
    }
  }
}

TEST(SplitMaster, WhatIsWrittenHasTheShapeOfTheView) {
  const StateView split(ones({2, 3}, DType::bf16), zeros({2, 3}, DType::bf16)),
      plain = ones({2, 3});
  for (const StateView& view : {split, plain}) {
    EXPECT_THROW(view.write(zeros({3, 2})), Error);
    EXPECT_THROW(view.write(zeros({3})), Error);
    EXPECT_EQ(view.read().to_vector(), std::vector<double>(6, 1));
  }
}

TEST(SplitMaster, AViewOfATensorIsThatTensor) {
  const Tensor x = zeros({2});
  const StateView view = x;
  view.write(tensor({1, 2}, {2}, DType::f64));
  EXPECT_EQ(x.to_vector(), (std::vector<double>{1, 2}));
  EXPECT_EQ(view.read().raw(), x.raw());
}

TEST(SplitMaster, WhatIsWrittenToAParameterMovesItsMaster) {
  for (Device device : test_devices()) {
    Tensor x = ones({2}, DType::bf16, device).requires_grad_();
    Adam adam(default_groups({x}), {.weight_decay = 0});
    adam.state()[2].value.write(tensor({1 + 0x1p-20, -3 - 0x1p-20}, {2}));
    EXPECT_EQ(x.to_vector(), (std::vector<double>{1, -3}));
    copy_(x.detach(), tensor({8, -4}, {2}, DType::bf16, device));
    EXPECT_EQ(adam.state()[2].value.read().to_vector(),
              (std::vector<double>{8 + 0x1p-17, -4 - 0x1p-19}));
    adam.step(0.1);  // the gradient is 0
    EXPECT_EQ(x.to_vector(), (std::vector<double>{8, -4}));
    adam.flat().reload_masters();
    EXPECT_EQ(adam.state()[2].value.read().to_vector(), (std::vector<double>{8, -4}));
  }
}

}  // namespace
}  // namespace gradus::optim
