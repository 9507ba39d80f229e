// Tutorial 12: data parallel training
//
// Many ranks have the same model, and each sees other samples. A gradient is a sum over samples, which
// may be cut anywhere:
//
//   L = 1/N Σ_i ℓ_i(θ)        dL/dθ = Σ_ranks ( 1/N Σ_{i of the rank} dℓ_i/dθ )
//
//   rank 0   samples 0 … 3   ─▶ forward ─▶ backward ─▶ g₀ ─┐         ┌─▶ update ─▶ θ
//   rank 1   samples 4 … 7   ─▶ forward ─▶ backward ─▶ g₁ ─┼─ Σ g_r ─┼─▶ update ─▶ θ
//   rank 2   samples 8 … 11  ─▶ forward ─▶ backward ─▶ g₂ ─┘         └─▶ update ─▶ θ
//
// Nobody sends parameters: what begins alike and is updated alike stays alike. Here ranks are threads.
//
//   make tutorials && build/cpu/tutorials/12_data_parallel
#include "nn/init.h"
#include "nn/linear.h"
#include "optim/adam.h"
#include "parallel/data_parallel.h"
#include "parallel/run_ranks.h"
#include "train/machine.h"
#include "tutorials/tutorial.h"

using namespace gradus;
using namespace gradus::tutorial;
using namespace gradus::parallel;

// ---- Data and model: twelve samples of a function of four numbers.
constexpr int64_t kSamples = 12;
Tensor drawn(const Shape& shape, uint64_t seed) {
  Generator g(seed);
  return normal(shape, g, 0, 1, DType::f64);
}
const Tensor x = drawn({kSamples, 4}, 1), y = sum(x * x, {1}, true);
const Tensor kMean = full({kSamples, 1}, 1.0 / kSamples, DType::f64);  // weights of the losses

struct Mlp final : nn::Module {
  nn::Linear first{4, 16}, second{16, 1};
  Mlp() {
    cast(DType::f64);
    nn::initialize(*this, 7);  // the same seed on each rank: the same parameters
  }
  void fields(nn::Fields& f) override { f("first", first)("second", second); }
  /// Σ w_i ℓ_i over the samples of a rank.
  Tensor loss(const Tensor& w, const Communicator& world = {}) const {
    const int64_t n = kSamples / world.size(), from = n * world.rank();
    const auto mine = [&](const Tensor& t) { return slice(t, 0, from, from + n); };
    const Tensor error = second(tanh(first(mine(x)))) - mine(y);
    return sum(mine(w) * error * error);
  }
};
/// Of one parameter; the others are no different.
Tensor gradient(const Mlp& mlp, const Tensor& loss) { return grad(loss, {mlp.first.weight})[0]; }

// f64 rounds by 1.1e-16; twelve samples of size 10 in another order differ by a hundred times that.
const double kTiny = 1e-12;

void one_sum_many_ranks() {
  section("A gradient is a sum, and sums may be cut");
  const Mlp alone;
  const Tensor want = gradient(alone, alone.loss(kMean));
  Tensors got(3);  // by rank
  run_ranks(3, [&](Communicator world) {
    const Mlp mlp;
    got[size_t(world.rank())] = world.all_reduce(gradient(mlp, mlp.loss(kMean, world)));
  });
  expect_near("the sum over three ranks is the gradient of one", got[0], want, kTiny);
  expect("every rank has the same bits of it", got[0].to_vector() == got[2].to_vector());
}

// ---- 2.  Of the twelve, eight count: six of rank 0 and two of rank 1.
void counts() {
  section("A mean of means is not the mean");
  const Tensor w = tensor({1, 1, 1, 1, 1, 1, 0, 1, 0, 0, 0, 1}, {kSamples, 1}, DType::f64);
  const Mlp mlp;
  const Tensor want = gradient(mlp, mlp.loss(w * (1.0 / 8)));
  Tensor of_means, of_sums;
  run_ranks(2, [&](Communicator world) {
    const Mlp own;
    const Tensor mine = sum(slice(w, 0, 6 * world.rank(), 6 * world.rank() + 6));
    const double n = mine.item(), all = world.all_reduce(mine).item();
    const auto over_ranks = [&](double factor) {
      return world.all_reduce(gradient(own, own.loss(w * factor, world)));
    };
    const Tensor means = over_ranks(1 / n) * 0.5, sums = over_ranks(1 / all);
    if (world.rank() == 0) of_means = means, of_sums = sums;
  });
  const double off = max(abs(of_means - want)).item() / max(abs(want)).item();
  say("the mean of two means is wrong by ", int(100 * off + 0.5), " %");
  expect("which no test with equal counts would see", off > 0.05);
  expect_near("sum the counts first, begin each backward from 1/N", of_sums, want, kTiny);
}

// ---- 3.  How a sum travels: each rank talks to its neighbours. Of n parts, part p goes once around and is
// added to, and once more as it is: 2 (n − 1)/n of the numbers a rank, however many ranks there are. The even
// ranks send first: if all did, and a send waited until it is received, as those of GPUs do, none would end.
Tensor ring_sum(const Communicator& world, const Tensor& mine, int& sent) {
  const int n = world.size(), r = world.rank();
  const int64_t size = mine.numel() / n;
  const Tensor all = clone(mine), incoming = empty({size}, mine.dtype());
  const auto part = [&](int p) { return slice(all, 0, p % n * size, (p % n + 1) * size); };
  for (int step = 0; step < 2 * (n - 1); ++step) {
    const Tensor outgoing = part(r + 2 * n - step);
    if (r % 2 == 0) world.send(outgoing, (r + 1) % n);
    world.receive_into(incoming, (r + n - 1) % n);
    if (r % 2 == 1) world.send(outgoing, (r + 1) % n);
    const Tensor to = part(r + 2 * n - step - 1);
    copy_(to, step < n - 1 ? to + incoming : incoming);
    sent += int(size);
  }
  return all;
}

void a_ring() {
  section("An all-reduce by hand: a ring of four");
  const auto rank = [](Communicator world) {
    int sent = 0;
    const Tensor mine = drawn({24}, uint64_t(world.rank()));
    const Tensor ring = ring_sum(world, mine, sent), library = world.all_reduce(mine);
    if (world.rank() != 3) return;
    expect_near("it yields what all_reduce does", ring, library, kTiny);
    expect("and a rank sent 24 · 2 · 3/4 numbers", sent == 36);
  };
  run_ranks(4, rank, {.strict_send = true});
}

// ---- 4.  The sums start while backward is at work: DataParallel listens to the leaves and sends a
// bucket of the arena as soon as all its gradients are there (parallel/data_parallel.h).
std::vector<double> trained(const Communicator& world) {
  Mlp mlp;
  optim::Adam adam(optim::default_groups(mlp), {}, {.bucket = 32});  // elements: several buckets
  DataParallel data(adam.flat(), world);
  for (int step = 0; step < 30; ++step) {
    adam.zero_grad();
    data.expect_last_backward();
    mlp.loss(kMean, world).backward();
    data.finish();
    adam.step(1e-2);
  }
  return mlp.first.weight.to_vector();
}

void training() {
  section("Thirty steps of Adam on three ranks");
  const std::vector<double> alone = trained({});
  std::vector<std::vector<double>> got(3);
  run_ranks(3, [&](Communicator world) { got[size_t(world.rank())] = trained(world); });
  double worst = 0;
  for (size_t i = 0; i < alone.size(); ++i) worst = std::max(worst, std::abs(got[0][i] - alone[i]));
  expect_near("the parameters are those of one rank, but for rounding", worst, 0, 1e-9);
  expect("the same bits on all ranks, and never sent", got[0] == got[1] && got[1] == got[2]);
}

int main() {
  train::use_threads(1);  // the ranks are threads themselves
  int result =
      lesson("Tutorial 12: data parallel training", {one_sum_many_ranks, counts, a_ring, training});
  question(
      "Backward takes a rank t per sample; to sum the gradients takes s, whatever the number of "
      "ranks.\n"
      "How many samples a rank hide the sum behind backward, and what becomes of that when the "
      "same\n"
      "batch is shared by twice as many ranks?");
  return result;
}
