// What ranks as threads promise beyond the values: the order of sums, and that nobody waits in vain.
#include "parallel/thread_group.h"

#include <atomic>
#include <chrono>
#include <thread>

#include "core/scope.h"
#include "ops/ops.h"
#include "tests/parallel/each_world.h"

namespace gradus::parallel {
namespace {

constexpr RankOptions kImpatient{.timeout = 0.05};

void expect_failure(int ranks, const Body& body, const std::vector<std::string>& words,
                    RankOptions options = {}) {
  expect_error([&] { run_ranks(ranks, body, options); }, words);
}

// 2²⁴ + 1 is 2²⁴ in f32: in the order of the ranks the sum is 1, in any other order 0 or 2.
TEST(ThreadGroup, SumsAreTakenInTheOrderOfRanks) {
  for (int64_t n : {3, 100000})  // one thread alone; all ranks
    run_ranks(4, [n](Communicator world) {
      const double values[] = {0x1p24, 1, -0x1p24, 1};
      const Tensor y = world.all_reduce(full({n}, values[world.rank()]));
      EXPECT_EQ(y.at(0), 1);
      EXPECT_EQ(y.at(n - 1), 1);
      const Tensor part = world.reduce_scatter(full({4 * n}, values[world.rank()]));
      EXPECT_EQ(part.at(n - 1), 1);
    });
}

// bf16 has neighbours at a distance of 2⁻⁷ above 1. 1 + 3·2⁻⁹ lies nearer to 1 + 2⁻⁷; rounding after each
// of the three additions would stay at 1.
TEST(ThreadGroup, SixteenBitsAreAddedInF32AndRoundedOnce) {
  run_ranks(4, [](Communicator world) {
    const double mine = world.rank() == 0 ? 1 : 0x1p-9;
    EXPECT_EQ(world.all_reduce(full({5}, mine, DType::bf16)).at(4), 1 + 0x1p-7);
    const double half = world.rank() == 0 ? 1 : 0x1p-12;
    EXPECT_EQ(world.all_reduce(full({5}, half, DType::f16)).at(4), 1 + 0x1p-10);
  });
}

TEST(ThreadGroup, IntegersAreExact) {
  run_ranks(3, [](Communicator world) {
    const Tensor x = empty({1}, DType::i64);
    x.data<int64_t>()[0] = (int64_t(1) << 61) + world.rank();  // no double holds these
    EXPECT_EQ(world.all_reduce(x).data<int64_t>()[0], 3 * (int64_t(1) << 61) + 3);
    EXPECT_EQ(world.all_reduce(x, Reduce::max).data<int64_t>()[0], (int64_t(1) << 61) + 2);
  });
}

TEST(ThreadGroup, NaNOfOneRankReachesAll) {
  run_ranks(3, [](Communicator world) {
    for (int bad = 0; bad < 3; ++bad) {
      const Tensor x = full({2}, world.rank() == bad ? NAN : 1.0);
      EXPECT_TRUE(std::isnan(world.all_reduce(x, Reduce::max).at(0)));
      EXPECT_TRUE(std::isnan(world.all_reduce(x).at(1)));
    }
  });
}

// ---- Agreement ----------------------------------------------------------------------------------

TEST(ThreadGroup, ADisagreementRaisesOnAllRanksAndNamesTwo) {
  using Call = std::function<void(Communicator, bool odd)>;
  struct Case {
    Call call;
    std::vector<std::string> words;
  };
  const Case cases[] = {
      {[](Communicator w, bool odd) { odd ? w.barrier() : (void)w.all_reduce(zeros({3})); },
       {"rank 0 called all_reduce of (3,) f32", "rank 2 called barrier"}},
      {[](Communicator w, bool odd) { w.all_reduce(zeros({odd ? 4 : 3})); },
       {"rank 0 called all_reduce of (3,) f32", "rank 2 called all_reduce of (4,) f32"}},
      {[](Communicator w, bool odd) { w.all_gather(zeros({3}, odd ? DType::f64 : DType::f32)); },
       {"rank 0 called all_gather of (3,) f32", "rank 2 called all_gather of (3,) f64"}},
      {[](Communicator w, bool odd) {
         w.broadcast(zeros({2, 2}), odd ? 1 : 0);
       },
       {"rank 0 called broadcast of (2, 2) f32 from root 0", "rank 2 called", "from root 1"}},
      {[](Communicator w, bool odd) { w.all_reduce(zeros({3}), odd ? Reduce::max : Reduce::sum); },
       {"rank 0 called all_reduce of", "rank 2 called all_reduce (max) of"}},
      {[](Communicator w, bool odd) { odd ? (void)w.split(0, 0, "a") : w.barrier(); },
       {"rank 0 called barrier", "rank 2 called split"}},
  };
  run_ranks(4, [&](Communicator world) {
    const bool upper = world.rank() >= 2;
    for (const Case& c : cases) {
      const std::string text = error_of([&] { c.call(world, upper); });
      EXPECT_NE(text.find("do not agree in call "), std::string::npos) << text;
      EXPECT_NE(text.find("of world of ranks 0 to 3"), std::string::npos) << text;
      for (const std::string& word : c.words)
        EXPECT_NE(text.find(word), std::string::npos) << word << " in " << text;
    }
    // Who catches it can go on.
    EXPECT_EQ(world.all_reduce(ones({1})).item(), 4);
  });
}

TEST(ThreadGroup, RanksInMessagesAreThoseOfTheWholeProgram) {
  run_ranks(4, [](Communicator world) {
    const Communicator upper = world.split(world.rank() / 2, 0, "tp");
    if (world.rank() < 2) return;
    expect_error([&] { upper.all_reduce(zeros({world.rank()})); },
                 {"call 1 of tp of ranks 2, 3", "rank 2 called all_reduce of (2,)",
                  "rank 3 called all_reduce of (3,)"});
  });
}

TEST(ThreadGroup, ACallSaysInWhichOpItHappens) {
  run_ranks(2, [](Communicator world) {
    const Scope scope("linear", Phase::backward);
    expect_error([&] { world.all_reduce(zeros({1 + world.rank()})); },
                 {"all_reduce of (1,) f32 in linear"});
  });
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
  expect_failure(
      3,
      [](Communicator world) {
        const Communicator pair = world.split(world.rank() == 2, 0, "pair");
        if (world.rank() == 0) world.all_reduce(zeros({3}));
        if (world.rank() == 1) pair.all_gather(zeros({2, 2}, DType::f64));
        if (world.rank() == 2) std::this_thread::sleep_for(std::chrono::milliseconds(150));
      },
      {"has waited for 0.05 s in",
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
                 {.timeout = 0.05, .strict_send = true});
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
