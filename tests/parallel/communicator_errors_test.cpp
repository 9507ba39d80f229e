// What calls of collectives that do not fit together say, and to whom.
#include <functional>

#include "core/scope.h"
#include "ops/ops.h"
#include "parallel/communicator.h"
#include "tests/parallel/each_world.h"

namespace gradus::parallel {
namespace {

TEST(Communicator, ADisagreementRaisesOnAllRanksAndNamesTwo) {
  using Call = std::function<void(Communicator, bool other)>;
  struct Case {
    Call call;
    std::string first, other;
  };
  const Case cases[] = {
      {[](Communicator w, bool other) { other ? w.barrier() : (void)w.all_reduce(zeros({3})); },
       "all_reduce of (3,) f32", "barrier"},
      {[](Communicator w, bool other) { w.all_reduce(zeros({other ? 4 : 3})); },
       "all_reduce of (3,) f32", "all_reduce of (4,) f32"},
      {[](Communicator w, bool other) {
         w.all_gather(zeros({3}, other ? DType::f64 : DType::f32));
       },
       "all_gather of (3,) f32", "all_gather of (3,) f64"},
      {[](Communicator w, bool other) {
         w.broadcast(zeros({2, 2}), other ? 1 : 0);
       },
       "broadcast of (2, 2) f32 from root 0", "broadcast of (2, 2) f32 from root 1"},
      {[](Communicator w, bool other) {
         w.all_reduce(zeros({3}), other ? Reduce::max : Reduce::sum);
       },
       "all_reduce of (3,) f32", "all_reduce (max) of (3,) f32"},
      {[](Communicator w, bool other) { other ? (void)w.split(0, 0, "a") : w.barrier(); },
       "barrier", "split"},
  };
  on_each_world([&](Communicator world) {
    const int last = world.size() - 1;
    if (last == 0) return;
    for (const Case& c : cases)
      expect_error(
          [&] { c.call(world, world.rank() == last); },
          {"the ranks do not agree in call ", " of world of ranks 0", "rank 0 called " + c.first,
           "rank " + std::to_string(last) + " called " + c.other});
    EXPECT_EQ(world.all_reduce(ones({1})).item(), world.size());  // who catches it can go on
  });
}

TEST(Communicator, RanksInMessagesAreThoseOfTheWholeProgram) {
  on_each_world([](Communicator world) {
    if (world.size() < 4) return;
    const Communicator upper = world.split(world.rank() / 2, 0, "tp");
    if (world.rank() < 2) return;
    expect_error([&] { upper.all_reduce(zeros({world.rank()})); },
                 {"call 1 of tp of ranks 2, 3", "rank 2 called all_reduce of (2,)",
                  "rank 3 called all_reduce of (3,)"});
  });
}

TEST(Communicator, ACallSaysInWhichOpItHappens) {
  on_each_world([](Communicator world) {
    if (world.size() == 1) return;
    const Scope scope("linear", Phase::backward);
    expect_error([&] { world.all_reduce(zeros({1 + world.rank()})); },
                 {"all_reduce of (1,) f32 in linear"});
  });
}

// However long that is, what one rank said does not run into what another did.
TEST(Communicator, ACallInAnOpOfALongName) {
  static const std::string name(300, 'x');
  on_each_world([](Communicator world) {
    if (world.size() == 1) return;
    const Scope scope(name);
    const std::string text = error_of([&] { world.all_reduce(zeros({1 + world.rank()})); });
    size_t calls = 0;
    for (size_t at = text.find("all_reduce"); at != text.npos; at = text.find("all_reduce", at + 1))
      ++calls;
    EXPECT_EQ(calls, 2u) << text;
  });
}

TEST(Communicator, AMessageThatDoesNotFitIsAnError) {
  on_each_world([](Communicator world) {
    if (world.size() == 1) return;
    const std::vector<std::string> words = {"a message does not fit", "receive of (2,) f32",
                                            "(3,) f32"};
    if (world.rank() == 0) (void)error_of([&] { world.send(zeros({3}), 1); });
    if (world.rank() == 1) expect_error([&] { world.receive_into(zeros({2}), 0); }, words);
    world.barrier();
  });
}

TEST(Communicator, WrongUseSaysWhatWasExpected) {
  on_each_world([](Communicator world) {
    const int n = world.size();
    const std::string who = world.describe();
    if (n > 1) {
      expect_error(
          [&] {
            world.reduce_scatter(zeros({2, n + 1}), 1);
          },
          {"reduce_scatter: axis 1", "does not divide by the " + std::to_string(n), who});
      expect_error([&] { world.all_to_all(zeros({n + 1}), 0, 0); }, {"all_to_all: axis 0"});
      expect_error([&] { world.all_gather(zeros({2}), 1); }, {"out of range in all_gather"});
      expect_error([&] { world.all_reduce(Tensor{}); }, {"all_reduce of an undefined tensor"});
      expect_error(
          [&] {
            world.all_reduce_into(transpose(zeros({2, 3}), 0, 1));
          },
          {"not contiguous"});
    }
    expect_error([&] { world.all_gather_into(zeros({n * 2 + 1}), zeros({2})); },
                 {"all_gather:", "do not make (" + std::to_string(2 * n + 1)});
    expect_error([&] { world.reduce_scatter_into(zeros({2}, DType::f64), zeros({2 * n})); },
                 {"reduce_scatter:", "f64"});
    expect_error([&] { world.broadcast(zeros({2}), n); },
                 {"the root is rank " + std::to_string(n)});
    expect_error([&] { world.send(zeros({2}), world.rank()); }, {"the caller itself"});
    expect_error([&] { world.receive_into(zeros({2}), -1); }, {"the sender is rank -1"});
    world.barrier();  // all of them still work
  });
}
}  // namespace
}  // namespace gradus::parallel
