#include "parallel/call_ledger.h"

#include <gtest/gtest.h>

namespace gradus::parallel {
namespace {

const Call kSum{.op = "all_reduce", .shape = {3}, .dtype = DType::f32};

TEST(CallLedger, CallsThatAgreeAreForgotten) {
  CallLedger ledger;
  for (int call = 0; call < 3; ++call)
    for (int rank : {2, 0, 1}) ledger.enter("world", {}, 3, rank, kSum);
}

TEST(CallLedger, ARankMayBeCallsAhead) {
  CallLedger ledger;
  Call other = kSum;
  other.op = "broadcast";
  ledger.enter("world", {}, 2, 0, kSum);
  ledger.enter("world", {}, 2, 0, other);
  ledger.enter("world", {}, 2, 1, kSum);
  ledger.enter("world", {}, 2, 1, other);
}

// The Error names both ranks and what each called: operation, shape, type, and for messages the tag.
TEST(CallLedger, TheErrorNamesTwoThatDisagree) {
  Call longer = kSum, halves = kSum, tagged = kSum;
  longer.shape = {4}, halves.dtype = DType::bf16, tagged.tag = 7;
  for (const Call& call : {longer, halves, tagged}) {
    CallLedger ledger;
    ledger.enter("dp", {}, 2, 0, kSum);
    try {
      ledger.enter("dp", {}, 2, 1, call);
      ADD_FAILURE() << "no Error";
    } catch (const Error& e) {
      const std::string text = e.what();
      EXPECT_NE(text.find("the ranks of dp do not agree in call 1: rank 0 called all_reduce"),
                text.npos)
          << text;
      EXPECT_NE(text.find("rank 1 called"), text.npos) << text;
    }
  }
}

TEST(CallLedger, EachDirectionBetweenTwoRanksIsCountedByItself) {
  CallLedger ledger;
  Call there = kSum, back = kSum;
  there.op = back.op = "message", there.tag = 1, back.tag = 2;
  ledger.enter("pp", {0, 1}, 2, 0, there);
  ledger.enter("pp", {1, 0}, 2, 0, back);
  ledger.enter("pp", {1, 0}, 2, 1, back);
  EXPECT_THROW(ledger.enter("pp", {0, 1}, 2, 1, back), Error);
}

TEST(CallLedger, RanksThatGiveTheSameIdShareOne) {
  const auto a = CallLedger::of("an id"), b = CallLedger::of("an id");
  EXPECT_EQ(a, b);
  EXPECT_NE(a, CallLedger::of("another"));
}

}  // namespace
}  // namespace gradus::parallel
