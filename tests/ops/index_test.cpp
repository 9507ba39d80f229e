#include <gtest/gtest.h>

#include "core/allocator.h"
#include "core/cuda.h"
#include "ops/ops.h"

namespace gradus {
namespace {

using Values = std::vector<double>;
const DType kFloating[] = {DType::f64, DType::f32, DType::bf16, DType::f16};

std::vector<Device> devices() {
  return cuda_device_count() > 0 ? std::vector<Device>{kCpu, kCuda} : std::vector<Device>{kCpu};
}

template <class F>
std::string error_of(Device device, F call) {
  try {
    call();
    synchronize(device);
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST(Gather, ByHand) {
  for (Device device : devices())
    for (DType dtype : kFloating)
      for (DType id_type : {DType::i32, DType::i64}) {
        PoisonAllocations poison;
        Tensor x = tensor({1, 2, 3, 4, 5, 6}, {2, 3}, dtype, device).requires_grad_();
        Tensor columns = gather(x, 1, tensor({2, 0, 0, 2, 1, 1, 1, 1}, {2, 4}, id_type, device));
        EXPECT_EQ(columns.to_vector(), (Values{3, 1, 1, 3, 5, 5, 5, 5}));
        columns.backward(tensor({1, 2, 3, 4, 5, 6, 7, 8}, {2, 4}, dtype, device));
        EXPECT_EQ(x.grad().to_vector(), (Values{5, 0, 5, 0, 26, 0}));
        Tensor rows = gather(x, 0, tensor({1, 0, 1}, {1, 3}, id_type, device));
        EXPECT_EQ(rows.to_vector(), (Values{4, 2, 6}));
      }
}

TEST(Gather, OfIntegersHasNoGradient) {
  for (Device device : devices())
    for (DType dtype : {DType::i64, DType::i32, DType::u8}) {
      Tensor x = tensor({7, 8, 9}, {3}, dtype, device);
      Tensor y = gather(x, 0, tensor({2, 2, 0, 1}, {4}, DType::i64, device));
      EXPECT_EQ(y.dtype(), dtype);
      EXPECT_EQ(y.to_vector(), (Values{9, 9, 7, 8}));
    }
}

TEST(Gather, I1_I2_I4_IndicesOutsideAreNamed) {
  for (Device device : devices())
    for (double bad : {-1.0, 3.0, 2147483648.0}) {
      Tensor x = tensor({1, 2, 3, 4, 5, 6}, {2, 3}, DType::f32, device);
      Tensor index = tensor({0, 2, 1, bad}, {2, 2}, DType::i64, device);
      std::string text = error_of(device, [&] { gather(x, 1, index); });
      std::string want = "index out of range in gather: value " + std::to_string(int64_t(bad)) +
                         " at position 3 is outside [0, 3)";
      EXPECT_NE(text.find(want), std::string::npos) << text;
      EXPECT_EQ(gather(x, 1, tensor({2, 0}, {2, 1}, DType::i64, device)).to_vector(),
                (Values{3, 4}));
    }
}

TEST(Gather, I8_I9_ShapesAndTypesAreChecked) {
  Tensor x = zeros({2, 3});
  Tensor index = zeros({2, 2}, DType::i64);
  EXPECT_THROW(gather(x, 2, index), Error);
  EXPECT_THROW(gather(x, 0, index), Error);  // 2 columns of an x that has 3
  EXPECT_THROW(gather(x, 1, zeros({2}, DType::i64)), Error);
  EXPECT_THROW(gather(x, 1, zeros({2, 2})), Error);
  EXPECT_THROW(scatter_add(x, 1, index, zeros({2, 3})), Error);
  EXPECT_THROW(scatter_add(x, 1, index, zeros({2, 2}, DType::f64)), Error);
}

TEST(ScatterAdd, ByHand) {
  for (Device device : devices())
    for (DType dtype : kFloating) {
      Tensor x = tensor({1, 2, 3, 4, 5, 6}, {2, 3}, dtype, device).requires_grad_();
      Tensor source = tensor({10, 20, 30, 40}, {2, 2}, dtype, device).requires_grad_();
      Tensor index = tensor({2, 2, 0, 1}, {2, 2}, DType::i64, device);
      Tensor y = scatter_add(x, 1, index, source);
      EXPECT_EQ(y.to_vector(), (Values{1, 2, 33, 34, 45, 6}));
      EXPECT_EQ(x.to_vector(), (Values{1, 2, 3, 4, 5, 6}));
      y.backward(tensor({1, 2, 3, 4, 5, 6}, {2, 3}, dtype, device));
      EXPECT_EQ(x.grad().to_vector(), (Values{1, 2, 3, 4, 5, 6}));
      EXPECT_EQ(source.grad().to_vector(), (Values{3, 3, 4, 5}));
    }
}

TEST(ScatterAdd, ManyIntoOneAreSummedInF32) {
  for (Device device : devices()) {
    Tensor y =
        scatter_add(full({2}, 1, DType::bf16, device), 0, full({4095}, 1, DType::i64, device),
                    full({4095}, 1, DType::bf16, device));
    EXPECT_EQ(y.to_vector(), (Values{1, 4096}));
  }
}

TEST(IndexSelect, ByHand) {
  for (Device device : devices())
    for (DType dtype : kFloating) {
      PoisonAllocations poison;
      Tensor x = tensor({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, {2, 3, 2}, dtype, device);
      x.requires_grad_();
      Tensor y = index_select(x, 1, tensor({2, 0, 2}, {3}, DType::i32, device));
      EXPECT_EQ(y.shape(), Shape({2, 3, 2}));
      EXPECT_EQ(y.to_vector(), (Values{5, 6, 1, 2, 5, 6, 11, 12, 7, 8, 11, 12}));
      y.backward(tensor({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, {2, 3, 2}, dtype, device));
      EXPECT_EQ(x.grad().to_vector(), (Values{3, 4, 0, 0, 6, 8, 9, 10, 0, 0, 18, 20}));
    }
}

TEST(IndexSelect, I2_PositionIsThatInTheIds) {
  for (Device device : devices()) {
    Tensor x = zeros({4, 3, 2}, DType::f32, device);
    Tensor ids = tensor({0, 3}, {2}, DType::i64, device);
    std::string text = error_of(device, [&] { index_select(x, 1, ids); });
    std::string want =
        "index out of range in index_select: value 3 at position 1 is outside [0, 3)";
    EXPECT_NE(text.find(want), std::string::npos) << text;
  }
}

TEST(IndexSelect, N15_OfSizesWithZero) {
  for (Device device : devices()) {
    Tensor x = zeros({4, 0, 2}, DType::f32, device).requires_grad_();
    Tensor ids = tensor({3, 3}, {2}, DType::i64, device);
    Tensor y = index_select(x, 0, ids);
    EXPECT_EQ(y.shape(), Shape({2, 0, 2}));
    y.backward(zeros({2, 0, 2}, DType::f32, device));
    EXPECT_EQ(x.grad().shape(), x.shape());
    EXPECT_EQ(
        index_select(zeros({0, 2}, DType::f32, device), 0, zeros({0}, DType::i64, device)).shape(),
        Shape({0, 2}));
  }
}

}  // namespace
}  // namespace gradus
