#include "parallel/collectives.h"

#include <gtest/gtest.h>

#include "autograd/node.h"
#include "tests/parallel/each_world.h"
#include "tests/parallel/rank_helpers.h"

namespace gradus::parallel {
namespace {

// ---- the adjoint test: Σ_r ⟨(C x)_r, y_r⟩ = Σ_r ⟨x_r, (Cᵀ y)_r⟩, where what is the same on all ranks
// counts once: on threads, or on processes where mpirun started this program; and on GPUs.

struct Sides {
  bool replicated_input = false, replicated_output = false;
};

/// Calls body(world, device) for each kind of `ranks` ranks that there is.
void on_ranks(int ranks, const std::function<void(Communicator, Device)>& body) {
  if (launched_by_mpi()) {
    const Communicator world = mpi_world();
    if (world.size() != ranks) return;
    body(world, kCpu);
    return nccl_carries(ranks) ? body(world, gpu_of(world)) : void();
  }
  run_ranks(ranks, [&](Communicator world) { body(world, kCpu); });
  if (nccl_carries(ranks))
    run_ranks(ranks, [&](Communicator world) { body(world, gpu_of(world)); });
}

// Both sides are sums of up to 40,000 products of size 1, so of size 200, whose roundoff is 2⁻⁴⁶ = 1.4e-14;
// they are summed in blocks, and some tens of roundings stay below 1e-12.
struct AdjointTest {
  Communicator world;
  Device device;
  Shape shape;

  template <class Collective>
  void operator()(const char* what, Sides sides, Collective c) const {
    SCOPED_TRACE(testing::Message() << what << " on " << world.size() << " ranks, " << device);
    const auto own = uint64_t(world.rank() + 1);
    Tensor x = to(random_values(shape, sides.replicated_input ? 100 : 100 + own), device);
    Tensor y = c(world, x.requires_grad_());
    Tensor dy = to(random_values(y.shape(), sides.replicated_output ? 200 : 200 + own), device);
    y.backward(dy);
    ASSERT_TRUE(x.grad());
    ASSERT_EQ(x.grad().shape(), shape);
    double left = over_ranks(world, dot(y, dy)), right = over_ranks(world, dot(x, x.grad()));
    if (sides.replicated_output) left /= world.size();
    if (sides.replicated_input) right /= world.size();
    EXPECT_GT(std::abs(left), 0.1);
    EXPECT_NEAR(left, right, 1e-12);
  }
};

void expect_adjoints(const Communicator& world, Device device) {
  const AdjointTest expect_adjoint{world, device, {12, 24, 36}};
  expect_adjoint("copy_to", {.replicated_input = true},
                 [](const Communicator& g, const Tensor& x) { return copy_to(g, x); });
  expect_adjoint("reduce_from", {.replicated_output = true},
                 [](const Communicator& g, const Tensor& x) { return reduce_from(g, x); });
  for (int dim : {0, 1, 2, -1}) {
    expect_adjoint("scatter_to", {.replicated_input = true},
                   [=](const Communicator& g, const Tensor& x) { return scatter_to(g, x, dim); });
    expect_adjoint("gather_from, replicated", {.replicated_output = true},
                   [=](const Communicator& g, const Tensor& x) {
                     return gather_from(g, x, dim, Consumer::replicated);
                   });
    expect_adjoint("gather_from, split", {}, [=](const Communicator& g, const Tensor& x) {
      return gather_from(g, x, dim, Consumer::split);
    });
    expect_adjoint("reduce_scatter", {}, [=](const Communicator& g, const Tensor& x) {
      return reduce_scatter(g, x, dim);
    });
    expect_adjoint("all_to_all", {}, [=](const Communicator& g, const Tensor& x) {
      return all_to_all(g, x, dim, 1);
    });
  }
  for (int root = 0; root < world.size(); ++root)
    expect_adjoint("broadcast", {},
                   [=](const Communicator& g, const Tensor& x) { return broadcast(g, x, root); });
}

TEST(Collectives, BackwardIsTheTranspose) {
  for (int n : {2, 3, 4}) on_ranks(n, expect_adjoints);
}

// Rank 0 sends x to rank 1; the gradient comes back the same way.
TEST(Collectives, TheTransposeOfSendIsReceive) {
  run_ranks(2, [](Communicator world) {
    const Shape shape{3, 4};
    Tensor x = random_values(shape, 5), dy = random_values(shape, 6);
    if (world.rank() == 0) {
      x.requires_grad_();
      Tensor token = send(world, x, 1, 7);
      EXPECT_EQ(token.item(), 0);
      token.backward();
      EXPECT_EQ(x.grad().to_vector(), dy.to_vector());
    } else {
      Tensor y = receive(world, shape, DType::f64, kCpu, 0, 7);
      EXPECT_EQ(y.to_vector(), x.to_vector());
      y.backward(dy);
    }
  });
}

// Second derivatives: y = C(x²) has dx = 2 x Cᵀ(dy), and the gradient of Σ dx is 2 Cᵀ(dy).
TEST(Collectives, BackwardCanBeRecorded) {
  run_ranks(3, [](Communicator world) {
    using Collective = std::function<Tensor(const Tensor&)>;
    const Collective all[] = {
        [&](const Tensor& x) { return copy_to(world, x); },
        [&](const Tensor& x) { return reduce_from(world, x); },
        [&](const Tensor& x) { return scatter_to(world, x, 1); },
        [&](const Tensor& x) { return gather_from(world, x, 0, Consumer::replicated); },
        [&](const Tensor& x) { return gather_from(world, x, 1, Consumer::split); },
        [&](const Tensor& x) { return reduce_scatter(world, x, 0); },
        [&](const Tensor& x) { return all_to_all(world, x, 0, 1); },
        [&](const Tensor& x) { return broadcast(world, x, 1); },
    };
    for (const Collective& c : all) {
      Tensor x = random_values({6, 3}, uint64_t(1 + world.rank())).requires_grad_();
      Tensor y = c(x * x), dy = random_values(y.shape(), uint64_t(9 + world.rank()));
      Tensor dx = grad(y, {x}, dy, {.create_graph = true})[0];
      Tensor again = grad(sum(dx), {x})[0];
      EXPECT_LE(row_error(again * x, dx), 1e-15);
    }
  });
}

// ---- values

// World 8 in two groups of 4, each rank giving its own number in the world.
TEST(Collectives, OracleOfTwoGroupsOfFour) {
  run_ranks(8, [](Communicator world) {
    const int rank = world.rank();
    Communicator tp = world.split(rank / 4, rank, "tp");
    EXPECT_EQ(reduce_from(tp, full({1}, rank)).item(), rank < 4 ? 6 : 22);
    Tensor rows = reshape(arange(4, DType::f64), {4, 1});  // row k holds k
    Tensor part = reduce_scatter(tp, rows, 0);
    EXPECT_EQ(part.shape(), (Shape{1, 1}));
    EXPECT_EQ(part.item(), 4 * tp.rank());
  });
}

TEST(Collectives, PartsLieInTheOrderOfRanksAlongAnyDimension) {
  run_ranks(3, [](Communicator world) {
    const double r = world.rank();
    Tensor mine = tensor({10 * r, 10 * r + 1, 10 * r + 2, 10 * r + 3}, {2, 2}, DType::f64);
    Tensor side_by_side = gather_from(world, mine, 1, Consumer::replicated);
    EXPECT_EQ(side_by_side.to_vector(),
              (std::vector<double>{0, 1, 10, 11, 20, 21, 2, 3, 12, 13, 22, 23}));
    EXPECT_EQ(scatter_to(world, side_by_side, 1).to_vector(), mine.to_vector());
    EXPECT_EQ(reduce_scatter(world, side_by_side, -1).to_vector(), (mine * 3.0).to_vector());
    Tensor turned = all_to_all(world, side_by_side, 1, 0);  // (2, 6) → (6, 2)
    EXPECT_EQ(turned.shape(), (Shape{6, 2}));
    EXPECT_EQ(slice(turned, 0, 0, 2).to_vector(), mine.to_vector());
    EXPECT_EQ(broadcast(world, mine, 2).at(3), 23);
  });
}

// The wrong consumer is wrong by the size of the group, here 2.
TEST(Collectives, TheConsumerOfAGatherDecidesItsBackward) {
  run_ranks(2, [](Communicator world) {
    auto gradient = [&](Consumer consumer) {
      Tensor x = full({2}, world.rank(), DType::f64).requires_grad_();
      sum(gather_from(world, x, 0, consumer) * 3.0).backward();
      return x.grad().to_vector();
    };
    EXPECT_EQ(gradient(Consumer::replicated), (std::vector<double>{3, 3}));
    EXPECT_EQ(gradient(Consumer::split), (std::vector<double>{6, 6}));
  });
}

TEST(Collectives, AnInputIsNeverWrittenTo) {
  run_ranks(2, [](Communicator world) {
    Tensor x = random_values({4, 4}, uint64_t(world.rank())).requires_grad_();
    std::vector<double> before = x.to_vector();
    Tensor y = x * x;  // saves x
    Tensor all = reduce_from(world, x) +
                 gather_from(world, reduce_scatter(world, x, 1), 1, Consumer::replicated);
    (sum(all) + sum(y)).backward();
    EXPECT_EQ(x.to_vector(), before);
  });
}

TEST(Collectives, AGroupOfOneIsTheIdentityAndRecordsNothing) {
  const Communicator one;
  Tensor x = random_values({3, 5}, 1).requires_grad_();
  const Tensor all[] = {copy_to(one, x),           reduce_from(one, x),
                        scatter_to(one, x, 0),     gather_from(one, x, 0, Consumer::split),
                        reduce_scatter(one, x, 1), all_to_all(one, x, 0, 1),
                        broadcast(one, x, 0)};
  for (const Tensor& y : all) EXPECT_TRUE(y.is_same(x));
}

TEST(Collectives, WhatDoesNotDivideIsAnError) {
  run_ranks(2, [](Communicator world) {
    Tensor x = random_values({3, 4}, 1);
    EXPECT_THROW(scatter_to(world, x, 0), Error);
    EXPECT_THROW(reduce_scatter(world, x, 0), Error);
    EXPECT_THROW(all_to_all(world, x, 0, 1), Error);
    EXPECT_NO_THROW(scatter_to(world, x, 1));
  });
}

}  // namespace
}  // namespace gradus::parallel
