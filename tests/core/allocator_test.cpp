#include "core/allocator.h"

#include <gtest/gtest.h>

#include <map>

#include "core/memory_pool.h"
#include "core/scope.h"
#include "models/gpt.h"
#include "nn/init.h"
#include "optim/adam.h"
#include "tests/devices.h"

namespace gradus {
namespace {

TEST(Allocator, ClassesAreOrderedAndAtMostAnEighthLarger) {
  int last = -1;
  for (size_t n = 1; n < kLargestBlock; n += n / 20 + 1) {
    const SizeClass c = size_class(n);
    EXPECT_GE(c.bytes, n);
    EXPECT_LE(c.bytes, n < 512 ? 512 : n + n / 8 + 1) << n;
    EXPECT_EQ(size_class(c.bytes).index, c.index) << n;  // a class holds its own size
    EXPECT_GE(c.index, last);
    last = c.index;
  }
  EXPECT_LT(size_class(kLargestBlock).index, kSizeClasses);
}

TEST(Allocator, AFreedBlockIsHandedOutAgain) {
  for (Device device : test_devices()) {
    const size_t bytes = 777'777;
    const Allocation first = allocate(device, bytes);
    const MemoryStats used = memory_stats(device);
    deallocate(first, bytes);
    const MemoryStats kept = memory_stats(device);
    EXPECT_EQ(kept.live, used.live - int64_t(bytes));
    EXPECT_EQ(kept.cached - used.cached, int64_t(size_class(bytes).bytes));
    const Allocation second = allocate(device, bytes + 3);
    EXPECT_EQ(second.data, first.data);
    EXPECT_EQ(memory_stats(device).system_allocations, used.system_allocations);
    EXPECT_EQ(memory_stats(device).reserved, used.reserved);
    deallocate(second, bytes + 3);
  }
}

TEST(Allocator, CachedBlocksGoBackToTheSystem) {
  for (Device device : test_devices()) {
    const Allocation a = allocate(device, 1 << 20), b = allocate(device, 1 << 20);
    deallocate(a, 1 << 20);
    const int64_t reserved = memory_stats(device).reserved;
    empty_cache(device);
    EXPECT_EQ(memory_stats(device).cached, 0);
    EXPECT_LE(memory_stats(device).reserved, reserved - (1 << 20));
    EXPECT_GE(memory_stats(device).reserved, 1 << 20);  // b is in use
    deallocate(b, 1 << 20);
  }
}

std::string error_of(Device device, size_t bytes) {
  try {
    allocate(device, bytes);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Allocator, RunningOutNamesWhoAsksAndWhoHolds) {
  for (Device device : test_devices()) {
    Tensors held;
    {
      Scope scope("made_up_op", Phase::forward);
      for (int i = 0; i < 3; ++i) held.push_back(empty({50'000'000}, DType::u8, device));
    }
    Scope scope("greedy_op", Phase::backward);
    // Without and with an attempt to get it: 2⁴⁷ bytes are all that a process can address.
    for (size_t bytes : {size_t(1) << 60, size_t(1) << 47}) {
      const std::string text = error_of(device, bytes);
      EXPECT_NE(text.find("greedy_op, backward asks for"), text.npos) << text;
      EXPECT_NE(text.find("150.0 MB in 3 tensors of made_up_op, forward"), text.npos) << text;
    }
    held.clear();  // the allocator still works
    deallocate(allocate(device, 100'000), 100'000);
  }
}

TEST(Allocator, OutputsOfOpsAreKnownByTheirOp) {
  for (Device device : test_devices()) {
    const Tensor x = ones({64, 1024}, DType::f32, device).requires_grad_();
    const Tensor y = softmax(x, 1);

    y.backward(ones({64, 1024}, DType::f32, device));
    std::map<std::string, int64_t> bytes;
    for (const MemoryHolder& h : memory_holders(device)) bytes[h.name] = h.bytes;
    EXPECT_EQ(bytes["softmax, forward"], 64 * 1024 * 4) << device;
    EXPECT_EQ(bytes["softmax, backward"], 64 * 1024 * 4) << device;  // the gradient of x
  }
}

// A step of a model allocates what the step before it did, so all of it is there already.
TEST(Allocator, ASteadyTrainingStepTakesNothingFromTheSystem) {
  for (Device device : test_devices()) {
    Gpt gpt({.layers = 2, .width = 64, .heads = 2, .vocab = 300, .max_length = 32});
    nn::initialize(gpt, 1);
    gpt.to(device);
    optim::Adam adam(gpt);
    const Tensor ids = zeros({4, 32}, DType::i32, device);
    const auto step = [&] {
      adam.zero_grad();
      gpt.loss(ids, ids).backward();
      adam.step(1e-3, {.max_norm = 1});
    };
    for (int i = 0; i < 2; ++i) step();
    const MemoryStats before = memory_stats(device);
    for (int i = 0; i < 3; ++i) step();
    const MemoryStats after = memory_stats(device);
    EXPECT_EQ(after.system_allocations, before.system_allocations) << device;
    EXPECT_EQ(after.live, before.live) << device;
    EXPECT_GT(before.peak, before.live) << device;
  }
}

TEST(Allocator, APrivatePoolIsForAGpu) {
  EXPECT_THROW(PrivatePool{kCpu}, Error);
  if (cuda_device_count() == 0) {
    EXPECT_THROW(PrivatePool{kCuda}, Error);
  }
}

TEST(Allocator, ABlockOfAPrivatePoolIsForNobodyElse) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no GPU";
  const size_t bytes = 3 << 20;
  empty_cache(kCuda);
  const int64_t reserved = memory_stats(kCuda).reserved;
  Allocation late;
  {
    const PrivatePool pool(kCuda);
    Allocation mine;
    {
      const UsePool use(pool);
      mine = allocate(kCuda, bytes);
      late = allocate(kCuda, bytes);
    }
    deallocate(mine, bytes);
    empty_cache(kCuda);  // leaves it
    const Allocation other = allocate(kCuda, bytes);
    EXPECT_NE(other.data, mine.data);
    {
      const UsePool use(pool);
      const Allocation again = allocate(kCuda, bytes);
      EXPECT_EQ(again.data, mine.data);
      deallocate(again, bytes);
    }
    deallocate(other, bytes);
    empty_cache(kCuda);
  }
  EXPECT_EQ(memory_stats(kCuda).reserved, reserved + int64_t(size_class(bytes).bytes));
  deallocate(late, bytes);  // of a tensor that outlived the pool
  EXPECT_EQ(memory_stats(kCuda).reserved, reserved);
}

}  // namespace
}  // namespace gradus
