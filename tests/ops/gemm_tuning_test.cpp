// The file of choices, and products on a GPU while a tuning is in force.
#include "ops/gemm_tuning.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <thread>

#include "core/check.h"
#include "ops/gemm_tensor.h"
#include "ops/ops.h"
#include "tests/devices.h"

namespace gradus {
namespace {

/// A path of its own for each test, removed afterwards.
class GemmTuningTest : public testing::Test {
 protected:
  std::string path =
      (std::filesystem::temp_directory_path() / ("gradus_gemm_tuning_" + std::to_string(getpid())))
          .string();
  void TearDown() override { std::filesystem::remove(path); }

  std::string content() const {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void write(const std::string& text) const { std::ofstream(path, std::ios::binary) << text; }
  std::string error_of_reading() const {
    try {
      GemmTuning tuning(path);
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  }
};

GemmChoice choice(uint64_t seed, double time) {
  GemmChoice c{.time = time, .time_of_first = 2 * time};
  for (uint64_t& w : c.algorithm) w = seed *= 0x9e3779b97f4a7c15;
  return c;
}

TEST_F(GemmTuningTest, AFileGivesBackWhatWasKept) {
  const GemmChoice a = choice(3, 12.5), b = choice(5, 0.75);
  {
    GemmTuning tuning(path);
    EXPECT_EQ(GemmTuning::current(), &tuning);
    EXPECT_FALSE(tuning.find("a GPU, cuBLASLt 1", "bf16 NT 3 x 4 x 5"));
    tuning.keep("a GPU, cuBLASLt 1", "bf16 NT 3 x 4 x 5", a);
    tuning.keep("a GPU, cuBLASLt 2", "bf16 NT 3 x 4 x 5", b);
    // Another thread was faster: its choice stands.
    EXPECT_EQ(tuning.keep("a GPU, cuBLASLt 1", "bf16 NT 3 x 4 x 5", b).algorithm, a.algorithm);
  }
  EXPECT_EQ(GemmTuning::current(), nullptr);
  GemmTuning again(path);
  auto found = again.find("a GPU, cuBLASLt 1", "bf16 NT 3 x 4 x 5");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->algorithm, a.algorithm);
  EXPECT_EQ(found->time, 12.5);
  EXPECT_EQ(found->time_of_first, 25);
  EXPECT_EQ(again.find("a GPU, cuBLASLt 2", "bf16 NT 3 x 4 x 5")->algorithm, b.algorithm);
  EXPECT_FALSE(again.find("a GPU, cuBLASLt 3", "bf16 NT 3 x 4 x 5"));
}

TEST_F(GemmTuningTest, OneAtATime) {
  uint64_t before = GemmTuning::generation();
  {
    GemmTuning tuning;
    EXPECT_THROW(GemmTuning{}, Error);
    EXPECT_EQ(GemmTuning::current(), &tuning);
  }
  EXPECT_EQ(GemmTuning::generation(), before + 2);
}

TEST_F(GemmTuningTest, EveryDamageOfAFileIsSeen) {
  GemmTuning(path).keep("m", "p", choice(7, 1));
  const std::string good = content();
  EXPECT_EQ(error_of_reading(), "no error");
  for (size_t length = 0; length < good.size(); ++length) {
    write(good.substr(0, length));
    ASSERT_NE(error_of_reading(), "no error") << length << " bytes of " << good.size();
  }
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] ^= 1;
    write(bad);
    ASSERT_NE(error_of_reading(), "no error") << "byte " << i;
  }
  EXPECT_EQ(GemmTuning::current(), nullptr);  // none of the failed ones is in force
}

TEST_F(GemmTuningTest, ErrorsNameTheFileAndTheRemedy) {
  write("something else\n");
  EXPECT_NE(error_of_reading().find(path + " is no file of gemm tunings"), std::string::npos);
  GemmTuning(path + "x").keep("m", "p", choice(7, 1));
  std::filesystem::rename(path + "x", path);
  write(content().substr(0, content().size() - 3));
  EXPECT_NE(error_of_reading().find("its checksum does not fit; delete it"), std::string::npos);
  GemmTuning unwritable("/nonexistent/gemm.txt");
  EXPECT_THROW(unwritable.keep("m", "p", choice(7, 1)), Error);
}

// ---- on a GPU

Tensor reals(const Shape& shape, DType dtype, double seed) {
  Tensor x = empty(shape, dtype);
  for (int64_t i = 0; i < x.numel(); ++i) x.set(i, std::sin(seed + 0.7 * double(i)));
  return to(x, kCuda);
}

/// The bits of A Bᵀ for uneven reals. k is long enough that algorithms may split it.
std::vector<double> product(DType dtype) {
  return matmul(reals({64, 2048}, dtype, 1), transpose(reals({128, 2048}, dtype, 2), 0, 1))
      .to_vector();
}

TEST_F(GemmTuningTest, ReadersOfOneFileComputeEqualBits) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "needs a GPU";
  std::vector<double> timed;
  {
    GemmTuning tuning(path);
    timed = product(DType::bf16);
    EXPECT_EQ(product(DType::bf16), timed);
  }
  const std::string file = content();
  EXPECT_NE(file.find("bf16>bf16 NT 64 x 128 x 2048"), std::string::npos) << file;
  for (int reader = 0; reader < 2; ++reader) {
    GemmTuning tuning(path);
    EXPECT_EQ(product(DType::bf16), timed);
    std::vector<double> elsewhere;  // a thread has a stream, a handle and plans of its own
    std::thread([&] { elsewhere = product(DType::bf16); }).join();
    EXPECT_EQ(elsewhere, timed);
  }
  EXPECT_EQ(content(), file);
}

TEST_F(GemmTuningTest, WithoutItTheChoiceIsTheSameInAllThreads) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "needs a GPU";
  std::vector<double> here = product(DType::f32), there;
  {
    GemmTuning tuning;
    (void)product(DType::f32);
  }
  EXPECT_EQ(product(DType::f32), here);
  std::thread([&] { there = product(DType::f32); }).join();
  EXPECT_EQ(there, here);
}

// Small integers: every sum is exact, whatever the algorithm, so the first, timed product must give just
// one C + A B, at every alignment that a row can start at.
TEST_F(GemmTuningTest, TimingLeavesAnAccumulatedResultAlone) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "needs a GPU";
  GemmTuning tuning(path);
  const int64_t m = 40, n = 48, k = 56;  // sums stay below 256: exact in bf16
  for (int64_t offset : {0, 1, 2, 4, 8}) {
    auto integers = [&](const Shape& shape, DType dtype, int64_t seed) {
      Tensor x = empty({shape.numel() + offset}, dtype);
      for (int64_t i = 0; i < x.numel(); ++i) x.set(i, double((i + seed) * 7919 % 5 - 2));
      x = to(x, kCuda);
      Strides strides;
      strides.push_back(shape[1]), strides.push_back(1);
      return x.alias(shape, strides, offset);
    };
    Tensor a = integers({m, k}, DType::bf16, 1), b = integers({k, n}, DType::bf16, 2);
    for (DType type_c : {DType::bf16, DType::f32}) {
      Tensor c = integers({m, n}, type_c, 3);
      auto want = c.to_vector(), A = a.to_vector(), B = b.to_vector();
      for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < n; ++j)
          for (int64_t p = 0; p < k; ++p)
            want[size_t(i * n + j)] += A[size_t(i * k + p)] * B[size_t(p * n + j)];
      gemm_into(c, a, b, 1);
      EXPECT_EQ(c.to_vector(), want) << type_c << " at " << offset;
    }
  }
}

TEST_F(GemmTuningTest, AStoredAlgorithmThatIsNoneIsAnError) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "needs a GPU";
  {
    GemmTuning tuning(path);
    (void)product(DType::bf16);
  }
  std::string line = content().substr(content().find('\n') + 1);
  std::string machine = line.substr(0, line.find(" | "));
  std::string key = line.substr(machine.size() + 3);
  key = key.substr(0, key.find(" | "));
  GemmTuning tuning;
  tuning.keep(machine, key, choice(11, 1));
  try {
    (void)product(DType::bf16);
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("is refused by cuBLASLt"), std::string::npos) << e.what();
  }
}

// tf32 rounds a factor by at most 2⁻¹¹: a product of two by 2⁻¹⁰ (1 + 2⁻¹²) of its size, and sums in f32
// as ever. And it is really on: f32 would be a thousand times closer.
TEST(AllowTf32, RoundsFactorsToElevenBits) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "needs a GPU";
  const int64_t m = 64, n = 64, k = 256;
  Tensor a = reals({m, k}, DType::f32, 1), b = reals({k, n}, DType::f32, 2);
  Tensor want = matmul(cast(to(a, kCpu), DType::f64), cast(to(b, kCpu), DType::f64));
  Tensor sizes = matmul(abs(cast(to(a, kCpu), DType::f64)), abs(cast(to(b, kCpu), DType::f64)));
  auto worst = [&] {  // |error| / Σ|a b|
    auto got = matmul(a, b).to_vector(), w = want.to_vector(), s = sizes.to_vector();
    double most = 0;
    for (size_t i = 0; i < got.size(); ++i) most = std::max(most, std::abs(got[i] - w[i]) / s[i]);
    return most;
  };
  const double in_f32 = double(k + 1) * 0x1p-24;
  EXPECT_LE(worst(), in_f32);
  {
    AllowTf32 tf32;
    EXPECT_TRUE(AllowTf32::in_force());
    EXPECT_LE(worst(), 0x1.01p-10 + in_f32);
    EXPECT_GT(worst(), 0x1p-20);
  }
  EXPECT_FALSE(AllowTf32::in_force());
  EXPECT_LE(worst(), in_f32);
}

}  // namespace
}  // namespace gradus
