#include "parallel/peer_meeting.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace gradus::parallel {
namespace {

const Call kSum{.op = "all_reduce", .shape = {3}, .dtype = DType::f32};

/// body(rank) on threads; what each threw.
std::vector<std::string> on_threads(int n, const std::function<void(int)>& body) {
  std::vector<std::string> errors{size_t(n)};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < n; ++rank)
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (const Error& e) {
        errors[size_t(rank)] = e.what();
      }
    });
  for (std::thread& t : threads) t.join();
  return errors;
}

// Many calls over the same seats: nobody may leave a place for the next call while another reads the last.
TEST(PeerMeeting, EachRankSeesWhatAllLeftInThisCall) {
  constexpr int kRanks = 3, kCalls = 2000;
  PeerMeeting meeting("world", kRanks);
  std::vector<int> memory(size_t(kRanks * kCalls));
  const auto errors = on_threads(kRanks, [&](int rank) {
    for (int call = 0; call < kCalls; ++call) {
      meeting.come(rank, {.call = kSum, .memory = &memory[size_t(call * kRanks + rank)]}, {});
      for (int k = 0; k < kRanks; ++k)
        check(meeting.place(k).memory == &memory[size_t(call * kRanks + k)], "call ", call,
              " of rank ", k);
      meeting.part(rank, {});
    }
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

TEST(PeerMeeting, ADisagreementIsAnErrorOfAll) {
  PeerMeeting meeting("dp", 2);
  const auto errors = on_threads(2, [&](int rank) {
    Call call = kSum;
    call.shape = {3 + rank};
    meeting.come(rank, {.call = call}, {});
  });
  for (const std::string& error : errors)
    EXPECT_NE(error.find("the ranks of dp do not agree in call 1"), error.npos) << error;
}

TEST(PeerMeeting, ARankThatDoesNotComeIsNamed) {
  PeerMeeting meeting("dp", 2);
  const auto errors = on_threads(2, [&](int rank) {
    if (rank == 0) meeting.come(rank, {.call = kSum}, {.seconds = 0.1});
  });
  EXPECT_NE(errors[0].find("rank 0 of dp has waited for 0.1 s in all_reduce"), errors[0].npos)
      << errors[0];
  EXPECT_NE(errors[0].find("not there: rank 1"), errors[0].npos) << errors[0];
}

TEST(PeerMeeting, TheFailureOfAnotherEndsTheWait) {
  PeerMeeting meeting("dp", 2);
  std::atomic<bool> failed{false};
  const PeerMeeting::Patience patience{
      .seconds = 20,
      .failure = [&] { return failed ? std::string("rank 1 is ill") : std::string(); }};
  const auto errors = on_threads(2, [&](int rank) {
    if (rank == 0) meeting.come(rank, {.call = kSum}, patience);
    if (rank == 1) failed = true;
  });
  EXPECT_NE(errors[0].find("rank 1 is ill"), errors[0].npos) << errors[0];
}

}  // namespace
}  // namespace gradus::parallel
