// What ranks as threads promise beyond what each back end does: nobody waits in vain.
#include "parallel/thread_group.h"

#include <atomic>
#include <chrono>
#include <thread>

#include "ops/ops.h"
#include "tests/parallel/each_world.h"

namespace gradus::parallel {
namespace {

constexpr RankOptions kImpatient{.timeout = 0.3};

void expect_failure(int ranks, const Body& body, const std::vector<std::string>& words,
                    RankOptions options = {}) {
  expect_error([&] { run_ranks(ranks, body, options); }, words);
}

// ---- Failure ------------------------------------------------------------------------------------

TEST(ThreadGroup, ARankThatThrowsEndsAllWaits) {
  std::atomic<int> told = 0;
  const auto ends = [&](const std::function<void()>& call) {
    const std::string text = error_of(call);
    told += text.find("another has failed: rank 3: no more") != std::string::npos;
    throw Error(text);
  };
  expect_failure(4,
                 [&](Communicator world) {
                   if (world.rank() == 0) ends([&] { world.all_reduce(zeros({3})); });
                   if (world.rank() == 1) ends([&] { world.receive_into(zeros({3}), 3); });
                   if (world.rank() == 2) ends([&] { world.send(zeros({3}), 3); });
                   std::this_thread::sleep_for(std::chrono::milliseconds(10));
                   throw Error("no more");
                 },
                 {"rank 3: no more"}, {.strict_send = true});
  EXPECT_EQ(told, 3);
}

TEST(ThreadGroup, ItEndsWaitsInOtherGroupsToo) {
  expect_failure(4,
                 [](Communicator world) {
                   const Communicator pair = world.split(world.rank() / 2, 0, "pair");
                   const Communicator cross = world.split(world.rank() % 2, 0, "cross");
                   if (world.rank() == 0) throw std::runtime_error("a foreign exception");
                   if (world.rank() == 1) pair.barrier();
                   if (world.rank() == 2) cross.barrier();
                   if (world.rank() == 3) pair.barrier();
                 },
                 {"rank 0: a foreign exception"});
}

TEST(ThreadGroup, AnythingMayBeThrown) {
  expect_failure(2,
                 [](Communicator world) {
                   if (world.rank() == 1) throw 1;
                 },
                 {"rank 1: an exception that says nothing"});
}

TEST(ThreadGroup, ARankThatReturnsEarlyIsAnError) {
  const auto returns = [](Communicator world) {
    if (world.rank() == 1) return;
    world.barrier();
  };
  expect_failure(
      3, returns,
      {"waits in barrier, call 1 of world of ranks 0 to 2 for rank 1, which has returned"});
  expect_failure(2,
                 [](Communicator world) {
                   if (world.rank() == 0) world.receive_into(zeros({2}), 1, 5);
                 },
                 {"rank 0: rank 0 waits in receive of (2,) f32",
                  "the other end being rank 1 (tag 5)", "for rank 1, which has returned"});
  expect_failure(2,
                 [](Communicator world) {
                   if (world.rank() == 0) world.send(zeros({2}), 1);
                 },
                 {"waits in send", "for rank 1, which has returned"}, {.strict_send = true});
}

TEST(ThreadGroup, AGroupThatOutlivesItsRanksSaysSo) {
  Communicator kept;
  run_ranks(2, [&](Communicator world) {
    if (world.rank() == 0) kept = world;
  });
  expect_error([&] { kept.barrier(); }, {"for rank 1, which has returned"});
}

TEST(ThreadGroup, AMessageThatNobodyReceivesIsAnError) {
  expect_failure(2,
                 [](Communicator world) {
                   if (world.rank() == 0) world.send(zeros({3}), 1, 9);
                 },
                 {"nobody has received what rank 0 sent", "(3,) f32", "rank 1 (tag 9)"});
}

TEST(ThreadGroup, AMessageThatDoesNotFitRaisesOnBothSidesWhenTheSenderWaits) {
  run_ranks(2,
            [](Communicator world) {
              const std::vector<std::string> words = {"a message does not fit",
                                                      "receive of (2,) f32", "send of (3,) f32"};
              if (world.rank() == 0) expect_error([&] { world.send(zeros({3}), 1); }, words);
              if (world.rank() == 1)
                expect_error([&] { world.receive_into(zeros({2}), 0); }, words);
            },
            {.strict_send = true});
}

TEST(ThreadGroup, OneRankRunsOnTheCallersThread) {
  std::thread::id inside;
  run_ranks(1, [&](Communicator world) {
    inside = std::this_thread::get_id();
    EXPECT_EQ(world.size(), 1);
    EXPECT_EQ(world.describe(), "world of rank 0");
  });
  EXPECT_EQ(inside, std::this_thread::get_id());
  expect_error([] { run_ranks(0, [](Communicator) {}); }, {"at least one rank", "got 0"});
  expect_error([] { run_ranks(1, [](Communicator) {}, {.timeout = 0}); }, {"timeout"});
}

// ---- Watchdog -----------------------------------------------------------------------------------

TEST(ThreadGroup, TheWatchdogSaysWhoWaitsWhereAndWhoIsMissing) {
  std::atomic<bool> over = false;
  const auto call = [&](const std::function<void()>& waits) {
    const std::string text = error_of(waits);
    over = true;
    throw Error(text);
  };
  expect_failure(
      3,
      [&](Communicator world) {
        const Communicator pair = world.split(world.rank() == 2, 0, "pair");
        if (world.rank() == 0) call([&] { world.all_reduce(zeros({3})); });
        if (world.rank() == 1) call([&] { pair.all_gather(zeros({2, 2}, DType::f64)); });
        while (!over) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      },
      {"has waited for 0.3 s in",
       "rank 0 waits in all_reduce of (3,) f32, call 2 of world of ranks 0 to 2",
       "rank 1 waits in all_gather of (2, 2) f64, call 1 of pair of ranks 0, 1",
       "rank 2 is outside of calls; its last was split, call 1 of world of ranks 0 to 2",
       "; not there: rank"},
      kImpatient);
}

TEST(ThreadGroup, TwoWhoReceiveFromEachOtherAreFound) {
  expect_failure(
      2, [](Communicator world) { world.receive_into(zeros({1}), 1 - world.rank(), 4); },
      {"rank 0 waits in receive of (1,) f32, the other end being rank 1 (tag 4)",
       "rank 1 waits in receive"},
      kImpatient);
}

// ---- Messages -----------------------------------------------------------------------------------

void both_send_first(Communicator world) {
  const Tensor x = full({2}, world.rank()), y = zeros({2});
  world.send(x, 1 - world.rank());
  world.receive_into(y, 1 - world.rank());
  EXPECT_EQ(y.at(1), 1 - world.rank());
}

TEST(ThreadGroup, StrictSendsBringOutADeadLockThatBuffersHide) {
  run_ranks(2, both_send_first);
  expect_failure(2, both_send_first, {"rank 0 waits in send", "rank 1 waits in send"},
                 {.timeout = 0.3, .strict_send = true});
}

TEST(ThreadGroup, AStrictSendReturnsWhenTheMessageWasReceived) {
  std::atomic<bool> begun = false;
  run_ranks(2,
            [&](Communicator world) {
              if (world.rank() == 0) {
                const Tensor x = ones({4});
                world.send(x, 1);
                EXPECT_TRUE(begun);
                x.set(0, 5);  // may be written again
              } else {
                std::this_thread::sleep_for(std::chrono::milliseconds(5));
                begun = true;
                const Tensor y = zeros({4});
                world.receive_into(y, 0);
                EXPECT_EQ(y.at(0), 1);
              }
            },
            {.strict_send = true});
}

TEST(ThreadGroup, ABufferedSendKeepsWhatWasSent) {
  run_ranks(2, [](Communicator world) {
    if (world.rank() == 0) {
      const Tensor x = ones({4});
      world.send(x, 1);
      x.set(0, 5);
      world.barrier();
    } else {
      world.barrier();
      const Tensor y = zeros({4});
      world.receive_into(y, 0);
      EXPECT_EQ(y.at(0), 1);
    }
  });
}

TEST(ThreadGroup, MessagesOfTwoGroupsDoNotMix) {
  run_ranks(2, [](Communicator world) {
    const Communicator other = world.split(0, 0, "other");
    if (world.rank() == 0) {
      world.send(full({1}, 1), 1);
      other.send(full({1}, 2), 1);
    } else {
      const Tensor a = zeros({1}), b = zeros({1});
      other.receive_into(b, 0);
      world.receive_into(a, 0);
      EXPECT_EQ(a.item(), 1);
      EXPECT_EQ(b.item(), 2);
    }
  });
}

// ---- All at once --------------------------------------------------------------------------------

/// Calls in a planned but irregular order, on groups that overlap.
void many_calls(Communicator world) {
  const int me = world.rank();
  const Communicator pair = world.split(me / 2, 0, "pair"), line = world.split(me % 2, 0, "line");
  for (int i = 0; i < 30; ++i) {
    const int64_t n = i % 5 == 0 ? 20000 : 8;
    EXPECT_EQ(pair.all_reduce(full({n}, me)).at(n - 1), 4 * (me / 2) + 1);
    EXPECT_EQ(line.all_gather(full({n}, me)).at(n * 2), 4 + me % 2);
    const Tensor x = full({n}, i), y = zeros({n});
    if (me % 2 == 0) pair.send(x, 1, i);
    if (me % 2 == 1) pair.receive_into(y, 0, i);
    EXPECT_EQ(y.at(n - 1), me % 2 * i);
    EXPECT_EQ(world.reduce_scatter(full({8 * n}, me)).at(0), 28);
  }
}

TEST(ThreadGroup, RandomDelaysChangeNothing) {
  for (uint64_t seed : {1, 2})
    for (bool strict : {false, true})
      run_ranks(8, many_calls, {.strict_send = strict, .delay_seed = seed});
}

}  // namespace
}  // namespace gradus::parallel
