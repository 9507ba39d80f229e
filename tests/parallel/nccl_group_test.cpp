// Collectives of tensors on GPUs against the same on the host, bit by bit: the elements are small integers,
// exact in each type.
#include "parallel/nccl_group.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "core/delay.h"
#include "ops/ops.h"
#include "parallel/pending.h"
#include "tests/devices.h"
#include "tests/parallel/each_world.h"

namespace gradus::parallel {
namespace {

using GpuBody = std::function<void(Communicator world, Device device)>;

/// Ranks with a GPU each: the processes that mpirun started, or threads, as many as there are GPUs but at most
/// 4. Tests that need two are skipped elsewhere.
class NcclGroup : public testing::Test {
 protected:
  void SetUp() override {
    if (!nccl_carries(2))
      GTEST_SKIP() << "two GPUs and NCCL are needed; here are " << cuda_device_count() << " GPUs";
  }
  static void on_gpus(const GpuBody& body) {
    const auto on_gpu = [&](Communicator world) { body(world, gpu_of(world)); };
    if (launched_by_mpi()) return on_gpu(mpi_world());
    run_ranks(std::min(cuda_device_count(), 4), on_gpu);
  }
};

/// Threads only: an Error of processes ends them (tests/parallel/mpi_test.cpp).
class NcclThreads : public NcclGroup {
 protected:
  void SetUp() override {
    if (launched_by_mpi()) GTEST_SKIP() << "ranks are processes";
    NcclGroup::SetUp();
  }
};

/// 0 … 6, another sequence on each rank.
Tensor values(int rank, const Shape& shape, DType dtype) {
  Tensor x = empty(shape, dtype);
  for (int64_t i = 0; i < x.numel(); ++i) x.set(i, double((5 * rank + 3 * i + i / 7) % 7));
  return x;
}

/// 0 and 1: 4 ranks can add them up three times, and bf16 still has each sum.
Tensor bits(int rank, const Shape& shape, DType dtype) {
  Tensor x = empty(shape, dtype);
  for (int64_t i = 0; i < x.numel(); ++i) x.set(i, double((5 * rank + 3 * i + i / 7) % 2));
  return x;
}

void expect_equal(const Tensor& on_gpu, const Tensor& on_host, const char* what) {
  ASSERT_EQ(on_gpu.shape(), on_host.shape()) << what;
  ASSERT_EQ(on_gpu.to_vector(), on_host.to_vector()) << what << ' ' << on_host.dtype();
}

TEST_F(NcclGroup, EveryCollectiveGivesWhatTheHostGives) {
  on_gpus([](Communicator world, Device device) {
    const int64_t n = world.size();
    for (DType dtype : kAllTypes)
      for (const Shape& shape : {Shape{3 * n, 5 * n}, Shape{n, n, 1000}, Shape{0, n}}) {
        const Tensor h = values(world.rank(), shape, dtype), x = to(h, device);
        expect_equal(world.all_reduce(x), world.all_reduce(h), "all_reduce");
        expect_equal(world.all_reduce(x, Reduce::max), world.all_reduce(h, Reduce::max), "max");
        expect_equal(world.broadcast(x, int(n) - 1), world.broadcast(h, int(n) - 1), "broadcast");
        for (int dim : {0, 1}) {
          expect_equal(world.all_gather(x, dim), world.all_gather(h, dim), "all_gather");
          expect_equal(world.reduce_scatter(x, dim), world.reduce_scatter(h, dim),
                       "reduce_scatter");
          expect_equal(world.all_to_all(x, dim, 1 - dim), world.all_to_all(h, dim, 1 - dim),
                       "all_to_all");
        }
        expect_equal(x, h, "an input was written to");
      }
  });
}

TEST_F(NcclGroup, CollectivesInPlaceGiveWhatTheHostGives) {
  on_gpus([](Communicator world, Device device) {
    const int64_t n = world.size(), part = 37;
    for (DType dtype : {DType::f32, DType::bf16}) {
      const auto slice = [&](const Tensor& all) {
        return all.alias({part}, {1}, part * world.rank());
      };
      const Tensor h = values(world.rank(), {n * part}, dtype), x = to(h, device);
      world.all_gather_into(h, slice(h)), world.all_gather_into(x, slice(x));
      expect_equal(x, h, "all_gather");
      world.reduce_scatter_into(slice(h), h), world.reduce_scatter_into(slice(x), x);
      expect_equal(to(slice(x), kCpu), clone(slice(h)), "reduce_scatter");  // the rest is anything
      const Tensor a = values(world.rank(), {part}, dtype), b = to(a, device);
      world.all_reduce_into(a), world.all_reduce_into(b);
      expect_equal(b, a, "all_reduce");
    }
  });
}

// Large sums and gathers go through copy engines (parallel/peer_group.h): with sizes that do not divide, in place,
// again and again over the same memory, beside other work and not.
TEST_F(NcclGroup, LargeSumsAndGathersGiveWhatTheHostGives) {
  on_gpus([](Communicator world, Device device) {
    const int64_t n = world.size();
    for (DType dtype : {DType::f32, DType::bf16, DType::f64})
      for (int64_t part : {1 << 18, 300'001}) {
        const auto slice = [&](const Tensor& all) {
          return all.alias({part}, {1}, part * world.rank());
        };
        const Tensor h = bits(world.rank(), {n * part}, dtype), x = to(h, device);
        for (int i = 0; i < 2; ++i) {
          world.all_reduce_into(x), world.all_reduce_into(h);
          expect_equal(x, h, "all_reduce");
        }
        world.reduce_scatter_into(slice(x), x), world.reduce_scatter_into(slice(h), h);
        Pending gather = start_aside({x}, [&] { world.all_gather_into(x, slice(x)); });
        world.all_gather_into(h, slice(h));
        gather.join();
        expect_equal(x, h, "reduce_scatter, all_gather");
        const Tensor y = empty({part + 1}, dtype, device);
        world.all_gather_into(x, y.alias({part}, {1}, 1));  // what it holds does not matter
      }
  });
}

TEST_F(NcclThreads, ALargeDisagreementIsAnError) {
  EXPECT_THROW(on_gpus([](Communicator world, Device device) {
                 const int64_t n = (1 << 20) + world.rank();
                 world.all_reduce_into(full({n}, 1, DType::f32, device));
                 synchronize(device);
               }),
               Error);
}

TEST_F(NcclGroup, MessagesGoAroundARing) {
  on_gpus([](Communicator world, Device device) {
    const int n = world.size(), next = (world.rank() + 1) % n, last = (world.rank() + n - 1) % n;
    const Tensor x = to(values(world.rank(), {1000}, DType::f32), device), y = empty_like(x);
    if (world.rank() % 2 == 0) world.send(x, next, 3), world.receive_into(y, last, 3);
    if (world.rank() % 2 == 1) world.receive_into(y, last, 3), world.send(x, next, 3);
    expect_equal(y, values(last, {1000}, DType::f32), "message");
  });
}

TEST_F(NcclGroup, GroupsOfARankHaveTheirOwnCommunicators) {
  on_gpus([](Communicator world, Device device) {
    const Communicator pair = world.split(world.rank() / 2, world.rank(), "pair");
    const Tensor x = full({100}, world.rank() + 1, DType::f32, device);
    const Tensor sum = pair.all_reduce(x), all = world.all_reduce(sum);
    double expected = 0;
    for (int r : pair.world_ranks()) expected += r + 1;
    EXPECT_EQ(sum.at(99), expected);
    EXPECT_EQ(world.rank() == 0 ? all.at(0) : 0, world.rank() == 0 ? all.to_vector()[99] : 0);
  });
}

// What is begun aside and what the stream does meanwhile, many times over, with memory that is given out again.
TEST_F(NcclGroup, SumsAsideAreThoseOfTheirTime) {
  on_gpus([](Communicator world, Device device) {
    const double ranks = world.size() * (world.size() - 1) / 2.0;
    for (int i = 0; i < 50; ++i) {
      Tensor x = full({100000}, world.rank() + i, DType::f32, device);
      Pending sum = start_aside({x}, [&] { world.all_reduce_into(x); });
      Tensor other = full({100000}, -1, DType::f32, device) * 3;
      sum.join();
      const Tensor y = x + other;
      ASSERT_EQ(y.at(54321), world.size() * i + ranks - 3);
    }
  });
}

// Rule: a disagreement is an Error that names two ranks and their calls, not a mix of data.
TEST_F(NcclThreads, ADisagreementIsAnError) {
  try {
    on_gpus([](Communicator world, Device device) {
      const Tensor x = full({world.rank() == 1 ? 11 : 10}, 1, DType::f32, device);
      (void)world.all_reduce(x).item();
    });
    ADD_FAILURE() << "no Error";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("do not agree"), std::string::npos) << e.what();
  }
}

double seconds_until_error(const GpuBody& body, RankOptions options, const std::string& text) {
  const auto begun = std::chrono::steady_clock::now();
  try {
    run_ranks(
        2, [&](Communicator world) { body(world, gpu_of(world)); }, options);
    ADD_FAILURE() << "no Error";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find(text), std::string::npos) << e.what();
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
}

// Rule: a dead peer ends the run within 30 s, also where the host waits for the device.
TEST_F(NcclThreads, ARankThatThrowsEndsTheWaitsOfTheOthers) {
  const double seconds = seconds_until_error(
      [](Communicator world, Device device) {
        const Tensor x = full({1000}, 1, DType::f32, device);
        world.all_reduce_into(x);
        synchronize(device);
        check(world.rank() == 0, "this rank is ill");
        world.all_reduce_into(x);
        synchronize(device);
        ADD_FAILURE() << "the wait ended without an Error";
      },
      {}, "this rank is ill");
  EXPECT_LT(seconds, 10);
}

TEST_F(NcclThreads, ARankThatDoesNotComeIsNoticed) {
  const double seconds = seconds_until_error(
      [](Communicator world, Device device) {
        const Tensor x = full({1000}, 1, DType::f32, device);
        world.all_reduce_into(x);
        if (world.rank() == 0) world.all_reduce_into(x);
        if (world.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(3));
        synchronize(device);
      },
      {.timeout = 1}, "all_reduce of (1000,) f32, call 2, runs for 1 s on the device");
  EXPECT_LT(seconds, 15);
}

// Rule: two ranks of a process on one GPU go through the host's memory.
TEST(GpuGroup, RanksThatShareAGpuGoThroughTheHost) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "a GPU is needed";
  run_ranks(2, [](Communicator world) {
    const Tensor x = full({3}, world.rank() + 1, DType::f32, kCuda);
    EXPECT_EQ(world.all_reduce(x).to_vector(), (std::vector<double>{3, 3, 3}));
  });
}

}  // namespace
}  // namespace gradus::parallel
