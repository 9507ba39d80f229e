#include "parallel/vocab_parallel.h"

#include "autograd/node.h"
#include "parallel/run_ranks.h"
#include "tests/devices.h"
#include "tests/parallel/rank_helpers.h"

namespace gradus::parallel {
namespace {

/// Columns of this rank, padded with what must not matter.
Tensor columns_of(const Communicator& g, const Tensor& z, double padding) {
  const int64_t V = z.size(-1), L = vocab_rows(V, g.size()), first = g.rank() * L;
  const int64_t real = std::clamp(V - first, int64_t(0), L);
  Shape rest = z.shape();
  rest[-1] = L - real;
  return cat(
      {slice(z, -1, std::min(first, V), std::min(first, V) + real), full(rest, padding, z.dtype())},
      -1);
}

TEST(VocabParallel, RowsOfARank) {
  EXPECT_EQ(vocab_rows(50257, 1), 50257);
  EXPECT_EQ(vocab_rows(50257, 2), 25136);
  EXPECT_EQ(vocab_rows(50257, 4), 12568);
  EXPECT_EQ(vocab_rows(97, 2), 56);
  EXPECT_EQ(vocab_rows(128, 4), 32);
}

// ---- the embedding

TEST(VocabParallel, EmbeddingIsThatOfTheWholeTable) {
  constexpr int64_t V = 97, C = 5;
  const Tensor ids = tensor({0, 55, 56, 96, 40, 57, 55, 7, 88, 56, 1, 2}, {3, 4}, DType::i64);
  const Tensor table = random_values({V, C}, 1), dy = random_values({3, 4, C}, 2);
  Tensor serial = clone(table).requires_grad_();
  Tensor y = embedding(serial, ids);
  y.backward(dy);
  for (int n : {1, 2, 4})
    for (bool sequence : {false, true})
      run_ranks(n, [&](Communicator world) {
        const TensorParallel tp{world, sequence};
        VocabEmbedding words(V, C, tp);
        words.cast(DType::f64);
        const std::vector<double> own = shard_of(table.to_vector(), words.weight);
        for (size_t i = 0; i < own.size(); ++i) words.weight.detach().set(int64_t(i), own[i]);
        Tensor mine = words(ids);
        Tensor rows = reshape(y.detach(), {12, C}), seed = reshape(dy, {12, C});
        if (tp.splits_tokens()) {
          rows = slice(rows, 0, 12 / n * tp.rank(), 12 / n * (tp.rank() + 1));
          seed = slice(seed, 0, 12 / n * tp.rank(), 12 / n * (tp.rank() + 1));
        }
        EXPECT_EQ(mine.to_vector(), rows.to_vector());  // one rank's row and zeros: exact
        mine.backward(reshape(seed, mine.shape()));
        expect_gradients(words, {{"weight", serial.grad().to_vector()}}, world, 1e-15, "table");
      });
}

TEST(VocabParallel, AnIdOutsideOfTheVocabularyIsAnError) {
  EXPECT_THROW(run_ranks(2,
                         [](Communicator world) {
                           VocabEmbedding words(11, 4, {world});
                           words(tensor({3, 11}, {2}, DType::i32));  // 11 would be padding
                         }),
               Error);
}

// ---- the loss. Oracles of sums of 128 and of 8 exponentials, to the digits given.

/// label_smoothing of a target that keeps 1 − a, every other class having a/(K − 1).
double smoothing(double a, double K) { return a * K / (K - 1); }

void expect_losses(const Tensor& losses, const std::vector<double>& expected, double tolerance) {
  for (int64_t i = 0; i < losses.numel(); ++i)
    EXPECT_NEAR(losses.at(i), expected[size_t(i) % expected.size()], tolerance) << "row " << i;
}

// 0 … 7, four times over, on each of four ranks: K = 128. The mistaken K = 32 would give 9.8696380, …
TEST(VocabParallel, OracleOfFourRanks) {
  Tensor all = reshape(expand(reshape(arange(8, DType::f64), {1, 8}), {16, 8}), {1, 128});
  const Tensor logits = contiguous(expand(all, {8, 128}));
  const Tensor targets = tensor({0, 2, 4, 6, 0, 2, 4, 6}, {8}, DType::i64);
  EXPECT_NEAR(smoothing(0.1, 128), 0.100787402, 1e-9);
  run_ranks(4, [&](Communicator world) {
    const Tensor mine = columns_of(world, logits, 0);
    EXPECT_EQ(mine.shape(), (Shape{8, 32}));
    CrossEntropyOptions options{.reduction = Reduction::none};
    expect_losses(vocab_cross_entropy(world, mine, targets, 128, options),
                  {10.2309283, 8.2309283, 6.2309283, 4.2309283}, 6e-8);
    options.label_smoothing = smoothing(0.1, 128);
    expect_losses(vocab_cross_entropy(world, mine, targets, 128, options),
                  {9.8781724, 8.0797472, 6.2813220, 4.4828969}, 6e-8);
  });
}

// Mistakes give 2.3916730 (local K and mean) and 2.6583396 (local K alone).
TEST(VocabParallel, OracleOfTwoRanksWithGradient) {
  const Tensor logits = reshape(arange(8, DType::f64), {1, 8});
  const Tensor target = tensor({5}, {1}, DType::i32);
  const double gradient[] = {-0.0137091, -0.0127183, -0.0100251, -0.0027041,
                             0.0171963,  -0.8144231, 0.2183365,  0.6180470};
  run_ranks(2, [&](Communicator world) {
    // Of 8 columns over 2 ranks each has 4: exact parts may do without padding.
    Tensor mine = clone(slice(logits, 1, 4 * world.rank(), 4 * world.rank() + 4)).requires_grad_();
    EXPECT_NEAR(vocab_cross_entropy(world, mine, target, 8).item(), 2.4583396, 6e-8);
    Tensor loss =
        vocab_cross_entropy(world, mine, target, 8, {.label_smoothing = smoothing(0.1, 8)});
    EXPECT_NEAR(loss.item(), 2.6297682, 6e-8);
    loss.backward();
    for (int64_t j = 0; j < 4; ++j)
      EXPECT_NEAR(mine.grad().at(j), gradient[4 * world.rank() + j], 6e-8);
    EXPECT_NEAR(over_ranks(world, sum(mine.grad()).item()), 0, 1e-15);
  });
}

struct LossCase {
  int ranks;
  CrossEntropyOptions options;
};

std::vector<LossCase> loss_cases() {
  std::vector<LossCase> all;
  for (int n : {1, 2, 3, 4, 16})  // 97 over 16: 8 columns each, and ranks 13 to 15 have none
    for (double s : {0.0, 0.3})
      for (Reduction r : {Reduction::mean, Reduction::sum, Reduction::none})
        all.push_back({n, {.ignore_index = 5, .label_smoothing = s, .reduction = r, .scale = 0.7}});
  return all;
}

// Logits of 30 and more would overflow without the maximum; those in the padding are larger still.
TEST(VocabParallel, LossIsThatOfTheWholeVocabulary) {
  constexpr int64_t V = 97;
  const Tensor z = random_values({3, 5, V}, 1) * 20.0;
  const Tensor targets =
      tensor({0, 96, 55, 56, 5, 12, 13, 8, 5, 90, 24, 23, 7, 31, 32}, {3, 5}, DType::i64);
  for (const LossCase& c : loss_cases()) {
    Tensor serial = clone(z).requires_grad_();
    Tensor loss = cross_entropy(serial, targets, c.options);
    const Tensor dy = random_values(loss.shape(), 3);
    loss.backward(dy);
    run_ranks(c.ranks, [&](Communicator world) {
      for (Device device : test_devices())
        for (bool given_away : {false, true}) {
          const Tensor ids = to(targets, device);
          Tensor mine = to(columns_of(world, z, 1000), device).requires_grad_();
          Tensor ours = given_away ? vocab_cross_entropy(world, mine * 1.0, ids, V, c.options)
                                   : vocab_cross_entropy(world, mine, ids, V, c.options);
          expect_close(ours.to_vector(), loss.to_vector(), 1, 1e-13, "loss");
          ours.backward(to(dy, device));
          expect_close(mine.grad().to_vector(), columns_of(world, serial.grad(), 0).to_vector(),
                       size_t(mine.size(-1)), 1e-13, "dz on " + std::to_string(world.size()));
        }
    });
  }
}

TEST(VocabParallel, AllTargetsIgnoredIsZero) {
  run_ranks(2, [](Communicator world) {
    Tensor z = random_values({2, 8}, 1).requires_grad_();
    Tensor loss = vocab_cross_entropy(world, z, tensor({-100, -100}, {2}, DType::i64), 12);
    EXPECT_EQ(loss.item(), 0);
    loss.backward();
    for (double g : z.grad().to_vector()) EXPECT_EQ(g, 0);
  });
}

// The caller's logits stay, given or not; what is given away and held by nobody else is written over.
TEST(VocabParallel, LogitsThatOthersHoldStay) {
  run_ranks(2, [](Communicator world) {
    const Tensor targets = tensor({1, 9}, {2}, DType::i64);
    Tensor x = random_values({2, 8}, uint64_t(world.rank())).requires_grad_();
    Tensor z = x * 1.0;
    const std::vector<double> before = z.to_vector();
    Tensor held = z;
    vocab_cross_entropy(world, std::move(z), targets, 12).backward();
    EXPECT_EQ(held.to_vector(), before);
    const std::vector<double> expected = x.grad().to_vector();
    Tensor loss = vocab_cross_entropy(world, x * 1.0, targets, 12);
    x.zero_grad();
    loss.backward({}, {.retain_graph = true});  // the logits are needed again
    loss.backward();
    for (int64_t i = 0; i < 16; ++i) EXPECT_NEAR(x.grad().at(i), 2 * expected[size_t(i)], 1e-15);
  });
}

// In 16-bit logits sums are in f32: the loss differs from that in f64 of the same logits by a few 2⁻²⁴ of
// its terms, each at most 30; a gradient below 1 is rounded once more, to 2⁻⁹.
TEST(VocabParallel, NarrowLogitsHaveALossInF32) {
  const Tensor targets = tensor({1, 9, 16, 3}, {4}, DType::i32);
  run_ranks(2, [&](Communicator world) {
    for (Device device : test_devices()) {
      const Tensor rounded = cast(random_values({4, 20}, 8) * 5.0, DType::bf16);
      const Tensor exact = columns_of(world, cast(rounded, DType::f64), 0);
      Tensor wide = clone(exact).requires_grad_();
      Tensor narrow = to(cast(exact, DType::bf16), device).requires_grad_();
      Tensor a = vocab_cross_entropy(world, wide, targets, 20);
      Tensor b = vocab_cross_entropy(world, narrow, to(targets, device), 20);
      EXPECT_EQ(b.dtype(), DType::f32);
      EXPECT_NEAR(b.item(), a.item(), 30 * 8 * 0x1p-24);
      a.backward(), b.backward();
      EXPECT_EQ(narrow.grad().dtype(), DType::bf16);
      for (int64_t i = 0; i < exact.numel(); ++i)
        EXPECT_NEAR(narrow.grad().at(i), wide.grad().at(i), 0x1p-9);
    }
  });
}

TEST(VocabParallel, GatheredLogitsAndWrongTargetsAreErrors) {
  run_ranks(2, [](Communicator world) {
    const Tensor targets = tensor({1}, {1}, DType::i64);
    EXPECT_THROW(vocab_cross_entropy(world, zeros({1, 12}), targets, 12), Error);
    EXPECT_THROW(vocab_cross_entropy(world, zeros({1, 8}), tensor({12}, {1}, DType::i64), 12),
                 Error);
    EXPECT_NO_THROW(vocab_cross_entropy(world, zeros({1, 8}), targets, 12));
  });
}

TEST(VocabParallel, GatheredLogitsAreThoseOfTheVocabulary) {
  run_ranks(2, [](Communicator world) {
    const Tensor z = random_values({3, 11}, 1);
    EXPECT_EQ(gather_logits(world, columns_of(world, z, 7), 11).to_vector(), z.to_vector());
  });
}

}  // namespace
}  // namespace gradus::parallel
