#include "train/flops.h"

#include <gtest/gtest.h>

#include "models/gpt.h"
#include "nn/init.h"
#include "ops/gemm_count.h"
#include "ops/ops.h"
#include "tests/train/helpers.h"
#include "train/machine.h"

namespace gradus::train {
namespace {

// L = 2, C = 8, T = 4, V = 16:  N = 2 · 12 · 64 + 16 · 8.
ModelSize small_gpt() { return {2, 8, 4, 16, 2, 2, 32, false}; }

TEST(Flops, T1_TheWorkedExample) {
  EXPECT_EQ(matrix_parameters(small_gpt()), 1664);
  EXPECT_EQ(flops_per_token(small_gpt(), AttentionCount::full), 10752);
  EXPECT_EQ(flops_per_token(small_gpt(), AttentionCount::causal), 10368);
}

// The published 124M: 12 layers of 12 · 768², 38,597,376 in the output projection.
TEST(Flops, T1_Gpt2Small) {
  const ModelSize gpt2{12, 768, 1024, 50257, 12, 12, 3072, false};
  EXPECT_EQ(matrix_parameters(gpt2), 84'934'656 + 38'597'376);
  EXPECT_EQ(flops_per_token(gpt2, AttentionCount::full), 6.0 * 123'532'032 + 113'246'208);
}

// What a forward and backward of that model really multiplies: twice the formula's FLOPs are
// multiply-adds. Backward computes the scores once more, which the formula does not count: LTC.
TEST(Flops, T1_TheProductsOfAStepAreThoseOfTheFormula) {
  const ModelSize m = small_gpt();
  for (const bool llama : {false, true}) {
    GptConfig c{.layers = m.layers,
                .width = m.width,
                .heads = m.heads,
                .ffn = m.mlp_width,
                .vocab = m.vocabulary,
                .max_length = m.context};
    ModelSize size = m;
    if (llama) {
      c.norm = NormKind::rms, c.position = PositionKind::rope, c.activation = Activation::swiglu;
      c.tied = c.bias = false;
      c.kv_heads = size.kv_heads = 1;
      size.gated_mlp = true;
    }
    Gpt gpt(c);
    nn::initialize(gpt, 1);
    use_threads(1);  // a thread counts its own products
    const Tensor ids = zeros({3, m.context}, DType::i32);
    const int64_t before = multiply_adds();
    gpt.loss(ids, ids).backward();
    const double counted = double(multiply_adds() - before) / double(3 * m.context);
    use_threads(0);
    const double scores = double(m.layers * m.context * m.width);
    EXPECT_EQ(counted, flops_per_token(size, AttentionCount::full) / 2 + scores) << llama;
  }
}

TEST(Flops, T2_ThePrintoutHasBothConventionsAndTheirValues) {
  const std::string text = explain_flops(small_gpt());
  EXPECT_TRUE(holds(
      text, {"6N + 12LTC = 10,752", "6N +  6LTC = 10,368", "N = 1,664", "L = 2", "T = 4", "C = 8"}))
      << text;
}

// Two matrices of (8, 24) become three; k and v of one head in four are a quarter of C wide.
TEST(Flops, T2_GatedMlpCountsThreeMatricesAndSharedHeadsLess) {
  const ModelSize plain{1, 8, 4, 16, 4, 4, 24, false};
  ModelSize gated = plain, grouped = plain;
  gated.gated_mlp = true;
  grouped.kv_heads = 1;
  EXPECT_EQ(matrix_parameters(gated) - matrix_parameters(plain), 8 * 24);
  EXPECT_EQ(matrix_parameters(plain) - matrix_parameters(grouped), 2 * 8 * 6);
}

TEST(Flops, HeadsMustDivideTheWidth) {
  ModelSize m = small_gpt();
  m.heads = 3;
  EXPECT_TRUE(holds(error_of([&] { matrix_parameters(m); }), {"width 8", "3 heads"}));
}

TEST(Flops, T3_APeakIsForAnExactNameOnly) {
  EXPECT_EQ(peak_flops("NVIDIA H200", Precision::bf16), 989.5e12);
  EXPECT_EQ(peak_flops("NVIDIA A100-SXM4-80GB", Precision::tf32), 156e12);
  EXPECT_EQ(peak_flops("NVIDIA A100-SXM4-80GB", Precision::f32), 19.5e12);
  for (const char* name : {"", "cpu", "NVIDIA H200 MIG 1g.18gb", "NVIDIA H", "NVIDIA H300",
                           "NVIDIA GeForce RTX 4090 Laptop GPU"})
    EXPECT_EQ(peak_flops(name, Precision::bf16), std::nullopt) << name;
}

}  // namespace
}  // namespace gradus::train
