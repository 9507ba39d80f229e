// Tutorial 15: ZeRO-1, an optimizer in slices
//
// Data parallel ranks (tutorial 12) all do the same update: n times the work, and n times the state. For a
// model in bf16, Adam keeps more than the model itself:
//
//   bytes a parameter      2 bf16   4 gradient     2 more of its f32 master, 4 m, 4 v
//                          ─── needed by all ──   ─────── by whoever updates ──────
//
// So each rank updates a slice of the parameters, and has master, m and v of it alone [Rajbhandari et al.
// 2020]:
//
//   gradients    g₀ … on each rank ──▶ reduce-scatter ──▶ slice r of Σ g on rank r
//   update       slice r: m, v, master                     as if it were a model of its own
//   parameters   slice r on rank r ──▶ all-gather ──▶ all of θ on each rank
//
//   make tutorials && build/cpu/tutorials/15_zero
#include "nn/init.h"
#include "nn/linear.h"
#include "optim/adam.h"
#include "parallel/finalize.h"
#include "parallel/run_ranks.h"
#include "train/machine.h"
#include "tutorials/tutorial.h"

using namespace gradus;
using namespace gradus::tutorial;
using namespace gradus::parallel;

void bytes() {
  section("What a rank keeps of 7 billion parameters, in GB");
  const auto gigabytes = [](double slices) { return 7 * (2 + 4 + 10 / slices); };
  say("ranks    data parallel    ZeRO-1");
  for (int n : {1, 2, 8, 64}) std::printf("  %-8d %-16.0f %.0f\n", n, gigabytes(1), gigabytes(n));
  expect("alone, a GPU of 80 GB does not hold it", gigabytes(1) > 80);
  expect("in slices, 8 of them do", gigabytes(8) < 80);
}

// ---- By hand: a vector θ of 12, whose gradient on rank r is g_r, and one step of Adam.
Tensor drawn(const Shape& shape, uint64_t seed) {
  Generator g(seed);
  return normal(shape, g, 0, 1, DType::f64);
}
struct State {
  Tensor m, v;
};
/// θ after the first step from m = v = 0: with 1 − β out of both moments, θ − η g/(|g| + ε).
Tensor first_step(const Tensor& theta, const Tensor& g, State& s) {
  const double beta1 = 0.9, beta2 = 0.999, lr = 0.1;
  s.m = g * (1 - beta1), s.v = g * g * (1 - beta2);
  const Tensor m = s.m * (1 / (1 - beta1)), v = s.v * (1 / (1 - beta2));
  return theta - lr * (m / (sqrt(v) + 1e-8));
}

void by_hand() {
  section("A step by hand, on three ranks");
  const Tensor theta = drawn({12}, 9);
  run_ranks(3, [&](Communicator world) {
    const Tensor g = drawn({12}, uint64_t(world.rank()));
    State all, mine;
    const Tensor want =
        first_step(theta, world.all_reduce(g), all);  // data parallel: everyone, everything

    const Tensor slice_of_sum = world.reduce_scatter(g);
    const int64_t first = 4 * world.rank();
    const Tensor updated = first_step(slice(theta, 0, first, first + 4), slice_of_sum, mine);
    const Tensor got = world.all_gather(updated);
    if (world.rank() > 0) return;
    expect_near("slices, side by side, are the step of the whole", got, want, 0);
    expect("with a third of the state", 3 * mine.m.numel() == all.m.numel());
    say("The traffic is that of an all-reduce, which is a reduce-scatter and a gather.");
  });
}

// ---- A norm for clipping is over all gradients, and a rank has a slice.
void norms() {
  section("Numbers that are about all of the model");
  run_ranks(3, [&](Communicator world) {
    const Tensor g = drawn({12}, uint64_t(world.rank())), mine = world.reduce_scatter(g);
    const double whole = std::sqrt(sum(world.all_reduce(g) * world.all_reduce(g)).item());
    const double own = std::sqrt(sum(mine * mine).item());
    const double both = std::sqrt(world.all_reduce(sum(mine * mine)).item());
    const auto all = world.all_gather_values({int64_t(1000 * own)});
    if (world.rank() > 0) return;
    say("norms of the slices: ", all[0] / 1e3, ", ", all[1] / 1e3, ", ", all[2] / 1e3);
    expect("each rank would clip by another factor", all[0] != all[1]);
    expect_near("squares are summed over the slices, then the root: the norm", both, whole, 1e-12);
  });
}

// ---- The library: the arena of the parameters (optim/arena_layout.h) is cut, wherever parameters begin and end.
struct Mlp final : nn::Module {
  nn::Linear first{4, 96}, second{96, 1};
  explicit Mlp(DType dtype) {
    cast(dtype);
    nn::initialize(*this, 7);
  }
  Tensor loss(const Tensor& x) const {
    const Tensor error = gradus::cast(second(tanh(first(x))), DType::f32) -
                         gradus::cast(sum(x * x, {1}, true), DType::f32);
    return sum(error * error);
  }
  void fields(nn::Fields& f) override { f("first", first)("second", second); }
};

struct Trained {
  std::vector<double> parameters;
  int64_t state = 0;  // elements of master, m and v here
};
Trained trained(const Communicator& world, bool zero) {
  const TrainingGroups groups = training_groups(model_grid(world, {}));
  Mlp mlp(DType::bf16);
  optim::Adam adam(optim::default_groups(mlp), {}, arena_options(groups, zero));
  optim::MixedPrecision precision(adam);
  Finalizer finalizer(adam, groups);
  const int64_t mine = 12 / world.size(), first = mine * world.rank();
  const Tensor x = cast(slice(drawn({12, 4}, 1), 0, first, first + mine), DType::bf16);
  for (int step = 0; step < 20; ++step) {
    adam.zero_grad();
    finalizer.expect_last_backward();
    (mlp.loss(x) * (1.0 / 12)).backward();
    precision.request([](int64_t) { return optim::Rates{1e-2, 0.01}; });
    finalizer.run(precision);
  }
  Trained result;
  for (const nn::Parameter& p : mlp.parameters())
    for (double v : p.to_vector()) result.parameters.push_back(v);
  for (const optim::NamedState& s : adam.state()) result.state += s.value.numel();
  return result;
}

void the_library() {
  section("Twenty steps in bf16 on three ranks");
  std::vector<Trained> whole(3), sliced(3);
  run_ranks(3, [&](Communicator world) { whole[size_t(world.rank())] = trained(world, false); });
  run_ranks(3, [&](Communicator world) { sliced[size_t(world.rank())] = trained(world, true); });
  say("numbers of optimizer state a rank: ", whole[0].state, ", in slices ", sliced[0].state, ", ",
      sliced[1].state, ", ", sliced[2].state);
  expect("the slices together are the state of one",
         sliced[0].state + sliced[1].state + sliced[2].state == whole[0].state);
  expect("each update is the same sum, computed elsewhere: not a bit differs",
         sliced[0].parameters == whole[0].parameters);
  expect("and all ranks have all parameters", sliced[0].parameters == sliced[1].parameters &&
                                                  sliced[1].parameters == sliced[2].parameters);
}

int main() {
  train::use_threads(1);  // the ranks are threads themselves
  int result =
      lesson("Tutorial 15: ZeRO-1, an optimizer in slices", {bytes, by_hand, norms, the_library});
  question(
      "ZeRO-2 keeps a slice of the gradients as well. Which bytes of the first table does that "
      "save, and\n"
      "why does it not go with accumulating gradients over micro-batches without more traffic?");
  return result;
}
