#include "train/interrupt.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "tests/train/helpers.h"

namespace gradus::train {
namespace {

volatile std::sig_atomic_t seen_by_outer = 0;
void outer_handler(int) { seen_by_outer = seen_by_outer + 1; }

TEST(Interrupt, TheFirstSignalOnlySetsTheFlag) {
  for (int signal : {SIGINT, SIGTERM}) {
    const Interrupt interrupt;
    EXPECT_FALSE(interrupt.requested());
    raise(signal);
    EXPECT_TRUE(interrupt.requested());
    EXPECT_EQ(interrupt.signal(), signal);
  }
}

TEST(Interrupt, TheSecondSignalEndsTheProcess) {
  for (int second : {SIGINT, SIGTERM}) {
    const pid_t child = fork();
    if (child == 0) {
      const Interrupt interrupt;
      raise(SIGINT);
      raise(second);
      _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
    EXPECT_EQ(WTERMSIG(status), second);
  }
}

TEST(Interrupt, TheHandlersFoundArePutBack) {
  const auto before = std::signal(SIGINT, outer_handler);
  seen_by_outer = 0;
  {
    const Interrupt interrupt;
    raise(SIGINT);
    EXPECT_EQ(seen_by_outer, 0);
  }
  raise(SIGINT);
  EXPECT_EQ(seen_by_outer, 1);
  std::signal(SIGINT, before);
}

TEST(Interrupt, OneAtATime) {
  const Interrupt interrupt;
  EXPECT_TRUE(holds(error_of([] { Interrupt second; }), {"alive already"}));
}

}  // namespace
}  // namespace gradus::train
