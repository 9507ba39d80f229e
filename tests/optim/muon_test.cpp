#include "optim/muon.h"

#include <gtest/gtest.h>

#include <cmath>

#include "models/gpt.h"
#include "nn/init.h"
#include "ops/ops.h"
#include "tests/devices.h"

namespace gradus::optim {
namespace {

std::vector<ParameterGroup> matrices(const Tensors& leaves) {
  ParameterGroup group{.name = "matrices", .whole_matrices = true};
  for (const Tensor& x : leaves) group.parameters.emplace_back(x);
  return {group};
}

void give_gradient(const Tensor& x, const Tensor& g) { mul(x, 1).backward(g); }

TEST(Muon, ThreeStepsByHand) {
  const double g[3][2] = {{3, 4}, {-1, 2}, {0.5, -3}};
  const double plain[3][2] = {
      {0.964513667, 1.964763879}, {0.929502061, 1.930433239}, {0.894331056, 1.896174677}};
  const double nesterov[3][2] = {
      {0.964513667, 1.964763879}, {0.928939030, 1.929823671}, {0.894060047, 1.964399105}};
  for (Device device : test_devices())
    for (bool ahead : {false, true}) {
      Tensor p = tensor({1, 0, 0, 0, 2, 0}, {2, 3}, DType::f64, device).requires_grad_();
      Muon muon(matrices({p}), {.nesterov = ahead});
      for (int t = 0; t < 3; ++t) {
        muon.zero_grad();
        give_gradient(p, tensor({g[t][0], 0, 0, 0, g[t][1], 0}, {2, 3}, DType::f64, device));
        EXPECT_TRUE(muon.step(0.02).applied());
        const auto& want = ahead ? nesterov[t] : plain[t];
        EXPECT_NEAR(p.at(0), want[0], 5.1e-10) << ahead << t;  // nine decimals are given
        EXPECT_NEAR(p.at(4), want[1], 5.1e-10) << ahead << t;
      }
    }
}

TEST(Muon, TheScaleOfGradientsDoesNotMatter) {
  for (Device device : test_devices())
    for (DType dtype : {DType::f64, DType::f32, DType::bf16}) {
      Generator random(2);
      const Tensor g = normal({4, 6}, random, 0, 1, DType::f32, device);
      std::vector<std::vector<double>> after;
      for (double scale : {1.0, 1e-12, 1e12}) {
        Tensor p = zeros({4, 6}, dtype, device).requires_grad_();
        Muon muon(matrices({p}));
        give_gradient(p, cast(g, dtype));
        muon.update(0.02, scale);
        after.push_back(muon.flat().master(muon.flat().slots()[0]).read().to_vector());
        EXPECT_GT(std::abs(after.back()[0]), 1e-4);
      }
      for (size_t i = 0; i < after[0].size(); ++i)
        for (int k : {1, 2})
          EXPECT_NEAR(after[size_t(k)][i], after[0][i],
                      dtype == DType::f64 ? 1e-13 : 2000 * roundoff(DType::f32) * 0.02 * 2.5);
    }
}

TEST(Muon, StepsAreAsLongAsTheScaleSays) {
  const struct {
    MuonScale scale;
    double tall, wide;  // (8, 2), (2, 8)
  } table[] = {{MuonScale::spectral, std::sqrt(8), std::sqrt(8)},
               {MuonScale::shape, 2, 1},
               {MuonScale::unit_rms, 2, 0.5}};
  for (const auto& row : table)
    for (bool tall : {true, false}) {
      const Shape shape = tall ? Shape{8, 2} : Shape{2, 8};
      Tensor p = zeros(shape, DType::f64).requires_grad_(), g = zeros(shape, DType::f64);
      g.set(0, 3);  // one singular value: f(1) = 0.978346
      Muon muon(matrices({p}), {.scale = row.scale, .extra_scale = 0.5});
      give_gradient(p, g);
      muon.step(1);
      EXPECT_NEAR(p.at(0), -0.5 * (tall ? row.tall : row.wide) * 0.978346, 2e-6);
    }
}

// Rows of two groups, each with two query heads of 2 rows, a key and a value head of 2.
TEST(Muon, PiecesAreOrthogonalisedByThemselves) {
  Generator random(3);
  const Tensor g = normal({16, 5}, random, 0, 1, DType::f64);
  Tensor p = zeros({16, 5}, DType::f64).requires_grad_();
  MuonOptions options{.weight_decay = 0};
  options.pieces = [](const nn::Parameter&) { return std::vector<int64_t>{4, 2, 2}; };
  Muon muon(matrices({p}), options);
  give_gradient(p, g);
  muon.step(1);
  const int64_t sizes[] = {4, 2, 2};
  for (int64_t k = 0, first = 0; k < 3; first += sizes[k++]) {
    auto rows = [&](const Tensor& x, int64_t unit) {
      return slice(x, 0, unit * 8 + first, unit * 8 + first + sizes[k]);
    };
    const Tensor piece = cat({rows(g, 0), rows(g, 1)}, 0);
    const Tensor o = orthogonalize(piece, {}, DType::f64);
    const Tensor moved = cat({rows(p.detach(), 0), rows(p.detach(), 1)}, 0);
    const double scale = std::sqrt(double(std::max<int64_t>(2 * sizes[k], 5)));
    for (int64_t i = 0; i < o.numel(); ++i) EXPECT_NEAR(moved.at(i), -scale * o.at(i), 1e-13);
  }
  options.pieces = [](const nn::Parameter&) { return std::vector<int64_t>{4, 3}; };
  EXPECT_THROW(Muon(matrices({p}), options), Error);
}

GptConfig small_gpt() {
  GptConfig c;
  c.layers = 2, c.width = 8, c.heads = 2, c.ffn = 16, c.vocab = 11, c.max_length = 6;
  c.tied = false;
  return c;
}

TEST(Muon, TakesMatricesAndLeavesTheRestToAdamW) {
  Gpt gpt(small_gpt()), twin(small_gpt());
  for (Gpt* g : {&gpt, &twin}) nn::initialize(*g, 1), g->cast(DType::f64);
  const std::vector<std::string> not_matrices = {"positions", "head"};
  Muon muon(matrix_groups(gpt, not_matrices), {.weight_decay = 0.1});
  Adam adam(twin, {.weight_decay = 0.1});
  std::vector<std::string> names;
  for (const nn::Parameter& p : muon.flat().groups().back().parameters) names.push_back(p.name());
  EXPECT_EQ(names.size(), 8u);  // qkv, out, up and down of two blocks
  const Tensor ids = tensor({1, 2, 3, 4, 5, 6}, {1, 6}, DType::i32);
  for (int t = 0; t < 2; ++t) {
    for (Gpt* g : {&gpt, &twin}) {
      g->zero_grad();
      sum(g->hidden(ids)).backward();  // the same gradients where parameters are the same
    }
    if (t == 0) muon.step(1e-3, {.max_norm = 1}), adam.step(1e-3, {.max_norm = 1});
  }
  const auto a = gpt.named_parameters(), b = twin.named_parameters();
  for (size_t i = 0; i < a.size(); ++i) {
    const bool is_matrix = std::count(names.begin(), names.end(), a[i].name) > 0;
    double difference = 0;
    for (int64_t k = 0; k < a[i].parameter.numel(); ++k)
      difference += std::abs(a[i].parameter.at(k) - b[i].parameter.at(k));
    EXPECT_EQ(difference > 0, is_matrix) << a[i].name;
  }
  for (const NamedState& s : muon.state()) {  // no second moment of matrices
    const std::string name = s.name.substr(0, s.name.rfind('.'));
    EXPECT_FALSE(s.name.ends_with(".v") && std::count(names.begin(), names.end(), name)) << s.name;
  }
}

TEST(Muon, SkippedStepsLeaveNoTraceAndStateRestoresBitForBit) {
  for (Device device : test_devices()) {
    Generator random(7);
    Tensor x = normal({4, 3}, random, 0, 1, DType::f32, device).requires_grad_();
    Tensor y = ones({3}, DType::f32, device).requires_grad_();
    auto groups = [](const Tensor& matrix, const Tensor& vector) {
      ParameterGroup rest{.name = "rest"};
      rest.parameters.emplace_back(vector);
      return std::vector<ParameterGroup>{rest, matrices({matrix})[0]};
    };
    auto step = [](Muon& muon, const Tensor& m, const Tensor& v, double extra = 0) {
      muon.zero_grad();
      sum(mul(mul(m, m), v) + extra * m).backward();
      return muon.step(0.01).applied();
    };
    Muon first(groups(x, y), {.nesterov = true});
    for (int t = 0; t < 3; ++t) EXPECT_TRUE(step(first, x, y));
    Tensor x2 = clone(x.detach()).requires_grad_(), y2 = clone(y.detach()).requires_grad_();
    Muon second(groups(x2, y2), {.nesterov = true});
    const auto from = first.state(), to = second.state();
    ASSERT_EQ(from.size(), 3u);  // m and v of the vector, m of the matrix
    for (size_t i = 0; i < from.size(); ++i) to[i].value.write(from[i].value.read());
    second.restore_steps(first.steps());
    EXPECT_FALSE(step(second, x2, y2, NAN));
    for (int t = 0; t < 2; ++t) EXPECT_TRUE(step(first, x, y) && step(second, x2, y2));
    EXPECT_EQ(x.to_vector(), x2.to_vector());
    EXPECT_EQ(y.to_vector(), y2.to_vector());
    EXPECT_EQ(second.steps(), 5);
  }
}

TEST(Muon, WrongUseIsAnError) {
  Tensor matrix = ones({2, 2}).requires_grad_(), vector = ones({2}).requires_grad_();
  EXPECT_THROW(Muon(matrices({vector})), Error);
  EXPECT_THROW(Muon(matrices({matrix}), {.momentum = 1}), Error);
  EXPECT_THROW(Muon(matrices({matrix}), {.orthogonal = {Polynomials::cubic5, 3}}), Error);
  EXPECT_THROW(Muon(matrices({matrix}), {.scale = MuonScale(9)}), Error);
  ParameterGroup rest{.name = "rest"};
  rest.parameters.emplace_back(vector);
  EXPECT_THROW(Muon({matrices({matrix})[0], rest}), Error);
}

}  // namespace
}  // namespace gradus::optim
