#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>

#include "autograd/node.h"
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

Tensor ids_of(const Values& values, Device device, DType dtype = DType::i64) {
  return tensor(values, {int64_t(values.size())}, dtype, device);
}

/// The text of the Error that `call` and waiting for the device throw.
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

TEST(Embedding, Oracle) {
  for (Device device : devices())
    for (DType dtype : kFloating)
      for (DType id_type : {DType::i32, DType::i64}) {  // I7
        Tensor table = tensor({0, 1, 2, 3, 4, 5, 6, 7}, {4, 2}, dtype, device).requires_grad_();
        Tensor y = embedding(table, ids_of({1, 3, 1}, device, id_type));
        EXPECT_EQ(y.to_vector(), (Values{2, 3, 6, 7, 2, 3}));
        y.backward(tensor({1, 2, 3, 4, 5, 6}, {3, 2}, dtype, device));
        EXPECT_EQ(table.grad().to_vector(), (Values{0, 0, 6, 8, 0, 0, 3, 4}));
      }
}

TEST(Embedding, I1_I2_IdsOutsideTheTableAreNamed) {
  for (Device device : devices())
    for (double bad : {-1.0, 4.0, 2147483648.0, -2147483648.0}) {
      Tensor table = tensor({0, 1, 2, 3, 4, 5, 6, 7}, {4, 2}, DType::f32, device);
      std::string text = error_of(device, [&] {
        embedding(table, ids_of({1, 3, bad, 0}, device));
      });
      std::string value = std::to_string(int64_t(bad));
      EXPECT_NE(text.find("index out of range in embedding: value " + value +
                          " at position 2 is outside [0, 4)"),
                std::string::npos)
          << text;
      EXPECT_EQ(embedding(table, ids_of({3}, device)).to_vector(), (Values{6, 7}));
    }
}

TEST(Embedding, I5_RepeatedIdsAccumulate) {
  for (Device device : devices())
    for (DType dtype : kFloating) {
      PoisonAllocations poison;
      Tensor table = ones({5, 3}, dtype, device).requires_grad_();
      embedding(table, ids_of({2, 2, 2}, device)).backward(ones({3, 3}, dtype, device));
      EXPECT_EQ(table.grad().to_vector(), (Values{0, 0, 0, 0, 0, 0, 3, 3, 3, 0, 0, 0, 0, 0, 0}));
    }
}

TEST(Embedding, I6_NoIds) {
  for (Device device : devices()) {
    PoisonAllocations poison;
    Tensor table = ones({4, 3}, DType::f32, device).requires_grad_();
    Tensor y = embedding(table, ids_of({}, device));
    EXPECT_EQ(y.shape(), Shape({0, 3}));
    y.backward(ones({0, 3}, DType::f32, device));
    EXPECT_EQ(table.grad().to_vector(), Values(12, 0.0));
  }
}

TEST(Embedding, I7_FloatingIdsAreAnError) {
  std::string text = error_of(kCpu, [] { embedding(ones({4, 3}), ones({2})); });
  EXPECT_NE(text.find("i32 or i64"), std::string::npos) << text;
  EXPECT_NE(text.find("embedding"), std::string::npos) << text;
}

/// dW by the definition, from ids and dy, in f64.
Values expected_gradient(const Values& ids, const Values& dy, int64_t V, int64_t C) {
  Values dw(size_t(V * C), 0.0);
  for (size_t t = 0; t < ids.size(); ++t)
    for (int64_t c = 0; c < C; ++c)
      dw[size_t(int64_t(ids[t]) * C + c)] += dy[t * size_t(C) + size_t(c)];
  return dw;
}

struct Batch {
  Values ids, dy;
};
/// Half of the ids are one word, as in text; the others are spread. dy are multiples of 1/8 below 2,
/// so that sums of up to 2⁸ of them are exact in bf16 and of all of them in f32.
Batch text_like(int64_t tokens, int64_t V, int64_t C) {
  Batch b;
  for (int64_t t = 0; t < tokens; ++t)
    b.ids.push_back(t % 2 ? double(V / 2) : double(t * 7919 % V));
  for (int64_t i = 0; i < tokens * C; ++i) b.dy.push_back(double(i * 2654435761u % 31) / 8 - 1.75);
  return b;
}

// Runs of equal ids inside a chunk, across chunks and over many of them, with widths that fit no vector.
TEST(Embedding, SumsLongRuns) {
  for (Device device : devices())
    for (int64_t C : {1, 3, 8, 260})
      for (int64_t tokens : {31, 64, 700}) {
        PoisonAllocations poison;
        int64_t V = 50;
        Batch b = text_like(tokens, V, C);
        Tensor table = zeros({V, C}, DType::f32, device).requires_grad_();
        embedding(table, ids_of(b.ids, device))
            .backward(tensor(b.dy, {tokens, C}, DType::f32, device));
        ASSERT_EQ(table.grad().to_vector(), expected_gradient(b.ids, b.dy, V, C))
            << C << ' ' << tokens;
      }
}

// N17 for this sum: 4,096 bf16 rows of one id. In bf16 the sum of ones would stop at 256.
TEST(Embedding, AccumulatesInF32) {
  for (Device device : devices()) {
    Tensor table = zeros({3, 4}, DType::bf16, device).requires_grad_();
    embedding(table, ids_of(Values(4096, 1.0), device))
        .backward(ones({4096, 4}, DType::bf16, device));
    EXPECT_EQ(table.grad().to_vector(), (Values{0, 0, 0, 0, 4096, 4096, 4096, 4096, 0, 0, 0, 0}));
  }
}

// The main gradient is overwritten by the first backward (also in rows that no id names) and added to
// by the second; no gradient of the table's type is made.
TEST(Embedding, AddsToTheMainGradient) {
  for (Device device : devices())
    for (DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      int64_t V = 12, C = 16, tokens = 40;
      Batch b = text_like(tokens, V, C);
      Values want = expected_gradient(b.ids, b.dy, V, C);
      Tensor table = zeros({V, C}, dtype, device).requires_grad_();
      Tensor buffer = full({V, C}, 1e9, DType::f32, device);  // left by an earlier step
      table.set_main_grad(buffer);
      table.zero_grad();
      int hooks = 0;
      table.register_leaf_hook([&](const Tensor&) { ++hooks; });
      auto step = [&] {
        embedding(table, ids_of(b.ids, device)).backward(tensor(b.dy, {tokens, C}, dtype, device));
      };
      step();
      EXPECT_EQ(buffer.to_vector(), want);
      step();
      for (double& w : want) w *= 2;
      EXPECT_EQ(buffer.to_vector(), want);
      EXPECT_EQ(hooks, 2);
    }
}

TEST(Embedding, MainGradientThatDoesNotFitIsStillSummed) {
  Tensor table = zeros({3, 2}, DType::f64).requires_grad_();
  Tensor buffer = full({3, 2}, 7, DType::f32);  // narrower than the gradient
  table.set_main_grad(buffer);
  table.zero_grad();
  embedding(table, ids_of({2, 0, 2}, kCpu))
      .backward(tensor({1, 2, 3, 4, 5, 6}, {3, 2}, DType::f64));
  EXPECT_EQ(buffer.to_vector(), (Values{3, 4, 0, 0, 6, 8}));
}

// The same numbers from any count of threads: rows with many ids are summed in the order of the ids.
TEST(Embedding, GradientDoesNotDependOnTheNumberOfThreads) {
  int64_t V = 1500, C = 200, tokens = 500;
  Batch b = text_like(tokens, V, C);
  for (double& x : b.dy) x *= 1.1;
  int before = omp_get_max_threads();
  std::vector<Values> results;
  for (int threads : {1, 2, 5}) {
    omp_set_num_threads(threads);
    Tensor table = zeros({V, C}).requires_grad_();
    embedding(table, ids_of(b.ids, kCpu)).backward(tensor(b.dy, {tokens, C}));
    results.push_back(table.grad().to_vector());
  }
  omp_set_num_threads(before);
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

TEST(Embedding, G6_OfATableAndIdsThatAreViews) {
  Tensor table = transpose(tensor({0, 2, 4, 6, 1, 3, 5, 7}, {2, 4}, DType::f64), 0, 1);
  Tensor ids = slice(ids_of({1, 9, 3, 9, 1, 9}, kCpu), 0, 0, 6, 2);
  EXPECT_EQ(embedding(table, ids).to_vector(), (Values{2, 3, 6, 7, 2, 3}));
  EXPECT_EQ(embedding(table, expand(slice(ids, 0, 1, 2), {2})).to_vector(), (Values{6, 7, 6, 7}));
}

}  // namespace
}  // namespace gradus
