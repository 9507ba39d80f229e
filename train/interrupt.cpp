#include "train/interrupt.h"

#include <atomic>
#include <csignal>

#include "core/check.h"

namespace gradus::train {
namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM};

std::atomic<bool> alive = false;
volatile std::sig_atomic_t received = 0;
struct sigaction previous[2];

// Only async-signal-safe calls. The default action, restored here, is what the second signal meets.
void on_signal(int signal) {
  received = signal;
  struct sigaction by_default {};
  by_default.sa_handler = SIG_DFL;
  for (int s : kSignals) ::sigaction(s, &by_default, nullptr);
}

}  // namespace

Interrupt::Interrupt() {
  check(!alive.exchange(true), "an Interrupt is alive already: a process has one");
  received = 0;
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;  // a write in progress goes on
  for (int i = 0; i < 2; ++i) ::sigaction(kSignals[i], &action, &previous[i]);
}

Interrupt::~Interrupt() {
  for (int i = 0; i < 2; ++i) ::sigaction(kSignals[i], &previous[i], nullptr);
  alive = false;
}

int Interrupt::signal() const { return int(received); }

}  // namespace gradus::train
