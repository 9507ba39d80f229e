#include "parallel/tensor_parallel.h"

#include "autograd/node.h"
#include "parallel/collectives.h"
#include "parallel/run_ranks.h"
#include "tests/parallel/rank_helpers.h"

namespace gradus::parallel {
namespace {

constexpr int64_t kIn = 6, kInner = 24, kOut = 5;

/// A column layer, an activation, a row layer.
struct Pair final : nn::Module {
  ColumnLinear up;
  RowLinear down;
  bool fused;

  explicit Pair(const TensorParallel& tp, bool fused = false)
      : up(kIn, kInner, tp), down(kInner, kOut, tp), fused(fused) {
    cast(DType::f64);
    nn::initialize(*this, 3);
    for (nn::Parameter* bias : {&up.bias, &down.bias}) {  // that they are 0 would hide a factor
      bias->init = nn::init::normal(1);
      nn::initialize(*bias, Philox::at(4, uint64_t(bias == &up.bias)));
    }
  }
  Tensor operator()(const Tensor& x) const {
    if (!fused) return down(gelu(up(x), GeluKind::tanh));
    return column_gelu_row(up.tp, x, up.weight, up.bias, down.weight) + down.bias;
  }
  void fields(nn::Fields& f) override { f("up", up)("down", down); }
};

/// Rows `rank` of `ranks` of x (…, C), seen as rows.
Tensor rows_of_rank(const Communicator& g, const Tensor& x) {
  Tensor rows = reshape(x.detach(), {-1, x.size(-1)});
  const int64_t n = rows.size(0) / g.size();
  return clone(slice(rows, 0, g.rank() * n, g.rank() * n + n));
}

struct Case {
  int ranks;
  bool sequence, fused;
};

// Sums of at most 24 products in another order: a few roundoffs of 1e-16.
TEST(TensorParallel, APairIsTheDensePair) {
  const Shape shape{3, 4, kIn};  // an odd batch
  Pair serial{TensorParallel{}};
  Tensor x = random_values(shape, 1).requires_grad_();
  Tensor y = serial(x), dy = random_values(y.shape(), 2);
  y.backward(dy);
  const Gradients expected = gradients_of(serial);
  for (Case c : {Case{1, true, true}, Case{2, false, false}, Case{2, false, true},
                 Case{2, true, false}, Case{2, true, true}, Case{4, false, false},
                 Case{4, true, false}, Case{4, true, true}, Case{3, true, true}})
    run_ranks(c.ranks, [&](Communicator world) {
      const TensorParallel tp{world, c.sequence};
      const std::string what = std::to_string(c.ranks) + " ranks, sequence " +
                               std::to_string(c.sequence) + ", fused " + std::to_string(c.fused);
      Pair pair(tp, c.fused);
      auto mine = [&](const Tensor& t) {
        return tp.splits_tokens() ? rows_of_rank(world, t) : t.detach();
      };
      Tensor in = clone(mine(x)).requires_grad_();
      Tensor out = pair(in);
      out.backward(mine(dy));
      expect_close(out.to_vector(), mine(y).to_vector(), kOut, 1e-13, what + ": y");
      expect_close(in.grad().to_vector(), mine(x.grad()).to_vector(), kIn, 1e-13, what + ": dx");
      expect_gradients(pair, expected, world, 1e-13, what);
    });
}

// The pair as one function of everything that all ranks hold: central differences in f64, ε = 1e-5, have a
// truncation of ε² f‴/6 ~ 1e-10 and a rounding of 2⁻⁵³ f/ε ~ 1e-10 for f ~ 10.
TEST(TensorParallel, A15_GradientsOfAPairByDifferences) {
  for (bool sequence : {false, true})
    run_ranks(2, [&](Communicator world) {
      const TensorParallel tp{world, sequence};
      Pair pair(tp, true);
      // Whole tokens are the same x and y on both ranks, and count once.
      const double copies = sequence ? 1 : world.size();
      const auto seed = uint64_t(sequence ? world.rank() : 0);
      const Tensor x = random_values({2, kIn}, 10 + seed).requires_grad_();
      const Tensor dy = random_values({2, kOut}, 20 + seed);
      auto f = [&] {
        NoGrad guard;
        return over_ranks(world, dot(pair(x), dy)) / copies;
      };
      pair(x).backward(dy);
      auto expect_slope = [&](const Tensor& t, bool everywhere, const std::string& what) {
        Tensor gradient = t.grad();
        if (everywhere && sequence) gradient = world.all_reduce(gradient);
        for (int64_t i = 0; i < t.numel(); i += 5)
          for (int rank = 0; rank < (everywhere ? 1 : world.size()); ++rank) {
            const bool mine = everywhere || rank == world.rank();
            const double value = t.at(i);
            auto at = [&](double step) {
              if (mine) t.detach().set(i, value + step);
              const double result = f();
              if (mine) t.detach().set(i, value);
              return result;
            };
            const double slope = (at(1e-5) - at(-1e-5)) / 2e-5;
            if (!mine) continue;
            EXPECT_NEAR(gradient.at(i), slope, 1e-8) << what << ", element " << i;
          }
      };
      expect_slope(x, !sequence, "x");
      expect_slope(pair.up.weight, false, "up.weight");
      expect_slope(pair.up.bias, false, "up.bias");
      expect_slope(pair.down.weight, false, "down.weight");
      expect_slope(pair.down.bias, true, "down.bias");
    });
}

TEST(TensorParallel, ShapesAndShards) {
  run_ranks(2, [](Communicator world) {
    const TensorParallel plain{world}, cut{world, true};
    ColumnLinear column(kIn, kInner, plain, {.pieces = 2});
    EXPECT_EQ(column.weight.shape(), (Shape{12, kIn}));
    EXPECT_EQ(column.weight.global_shape(), (Shape{kInner, kIn}));
    EXPECT_EQ(column.weight.shard.pieces, 2);
    EXPECT_EQ(column.bias.shard.dim, 0);
    RowLinear row(kInner, kOut, cut);
    EXPECT_EQ(row.weight.shape(), (Shape{kOut, 12}));
    EXPECT_EQ(row.bias.shape(), (Shape{kOut}));
    EXPECT_TRUE(row.bias.shard.partial_grad);
    EXPECT_FALSE(RowLinear(kInner, kOut, plain).bias.shard.partial_grad);
    EXPECT_FALSE(column.weight.shard.partial_grad);
  });
}

// A column layer that gathers its output and a row layer that cuts its input are dense layers each.
TEST(TensorParallel, LayersThatGatherAndCutAreWholeByThemselves) {
  const Tensor x = random_values({3, 2, kIn}, 1), dy = random_values({3, 2, 4}, 2);
  auto run = [&](const TensorParallel& tp, auto check) {
    ColumnLinear column(kIn, 4, tp, {.gather_output = true});
    RowLinear row(kIn, 4, tp, {.input_is_parallel = false});
    for (nn::Module* m : {static_cast<nn::Module*>(&column), static_cast<nn::Module*>(&row)}) {
      m->cast(DType::f64);
      nn::initialize(*m, 5);
    }
    Tensor a = clone(x).requires_grad_(), b = clone(x).requires_grad_();
    Tensor y = column(a), z = row(b);
    y.backward(dy), z.backward(dy);
    check(column, y, a.grad());
    check(row, z, b.grad());
  };
  std::vector<Gradients> gradients;
  std::vector<std::vector<double>> values;
  run({}, [&](nn::Module& m, const Tensor& y, const Tensor& dx) {
    gradients.push_back(gradients_of(m));
    values.push_back(y.to_vector()), values.push_back(dx.to_vector());
  });
  run_ranks(2, [&](Communicator world) {
    size_t i = 0;
    run({world}, [&](nn::Module& m, const Tensor& y, const Tensor& dx) {
      expect_close(y.to_vector(), values[2 * i], 4, 1e-14, "y");
      expect_close(dx.to_vector(), values[2 * i + 1], size_t(kIn), 1e-14, "dx");
      expect_gradients(m, gradients[i++], world, 1e-14, "layer");
    });
  });
}

// A main gradient is added to in place, as by linear: twice used, twice added, nothing else arrives.
TEST(TensorParallel, WeightGradientsAreAddedToMainGradients) {
  Pair serial{TensorParallel{}};
  const Tensor x = random_values({4, kIn}, 1);
  auto loss = [&](const Pair& p, const Tensor& in) { return sum(p(in)) + sum(p(in * 0.5)) * 2.0; };
  loss(serial, x).backward();
  const Gradients expected = gradients_of(serial);
  for (bool fused : {false, true})
    run_ranks(2, [&](Communicator world) {
      Pair pair({world}, fused);
      std::map<std::string, Tensor> buffers;
      for (const auto& [name, p] : pair.named_parameters()) {
        buffers[name] = full(p.shape(), NAN, DType::f64);  // never read before it is written
        p.set_main_grad(buffers[name]);
      }
      loss(pair, x).backward();
      for (const auto& [name, p] : pair.named_parameters())
        expect_close(buffers[name].to_vector(), shard_of(expected.at(name), p), 1, 1e-12, name);
    });
}

TEST(TensorParallel, AFrozenWeightStillHasAnInputGradient) {
  Pair serial{TensorParallel{}};
  Tensor x = random_values({4, kIn}, 1).requires_grad_();
  sum(serial(x)).backward();
  run_ranks(2, [&](Communicator world) {
    Pair pair({world, true});
    for (const nn::Parameter& p : pair.parameters()) p.requires_grad_(false);
    Tensor in = rows_of_rank(world, x).requires_grad_();
    sum(pair(in)).backward();
    expect_close(in.grad().to_vector(), rows_of_rank(world, x.grad()).to_vector(), kIn, 1e-13, "");
    for (const nn::Parameter& p : pair.parameters()) EXPECT_FALSE(p.grad());
  });
}

TEST(TensorParallel, ASuppliedWeightIsUsedAndChecked) {
  run_ranks(2, [](Communicator world) {
    const TensorParallel tp{world};
    Tensor x = random_values({3, kIn}, 1), table = random_values({4, kIn}, 2);
    EXPECT_EQ(column_linear(tp, x, table).to_vector(), linear(x, table).to_vector());
    EXPECT_THROW(column_linear(tp, x, {}), Error);
    EXPECT_THROW(column_linear(tp, x, random_values({4, kIn + 1}, 2)), Error);
    EXPECT_THROW(column_linear(tp, x, random_values({4, kIn}, 2), random_values({8}, 3)), Error);
  });
}

TEST(TensorParallel, WhatDoesNotFitIsAnError) {
  run_ranks(2, [](Communicator world) {
    const TensorParallel plain{world}, cut{world, true};
    EXPECT_THROW(ColumnLinear(kIn, 7, plain), Error);
    EXPECT_THROW(RowLinear(7, kOut, plain), Error);
    EXPECT_THROW(ColumnLinear(kIn, 9, plain, {.pieces = 2}), Error);  // not 8 of the 9
    EXPECT_THROW(ColumnLinear(kIn, 8, plain, {.pieces = 2, .gather_output = true}), Error);
    EXPECT_THROW(ColumnLinear(kIn, kInner, cut, {.gather_output = true}), Error);
    EXPECT_THROW(RowLinear(kInner, kOut, cut, {.input_is_parallel = false}), Error);
    RowLinear row(kIn, kOut, cut);
    row.cast(DType::f64);
    EXPECT_THROW(row(random_values({3, kIn / 2}, 1)), Error);  // 3 tokens over 2 ranks
    EXPECT_NO_THROW(row(random_values({4, kIn / 2}, 1)));
  });
}

TEST(TensorParallel, AGroupOfOneIsTheDenseLayer) {
  ColumnLinear column(kIn, kInner, {{}, true});  // there is nothing to cut
  Tensor y = column(cast(random_values({3, kIn}, 1), DType::f32));
  EXPECT_EQ(y.grad_fn()->name(), "linear");
  EXPECT_EQ(column.weight.shard.dim, -1);
  EXPECT_FALSE(RowLinear(kIn, kOut, {{}, true}).bias.shard.partial_grad);
  EXPECT_NO_THROW(ColumnLinear(kIn, kInner, {}, {.pieces = 2, .gather_output = true}));
}

}  // namespace
}  // namespace gradus::parallel
