#include "core/workers.h"

#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace gradus {
namespace {

thread_local bool inside = false;

void pause() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

/// Waits until `value` is no longer `old`: some tens of microseconds at full speed, which covers the
/// gaps between the loops of a training step, then asleep.
template <class T>
void wait_while(const std::atomic<T>& value, T old) {
  constexpr int kSpins = 2000;
  for (int i = 0; i < kSpins; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
    pause();
  }
  value.wait(old, std::memory_order_acquire);
}

/// A loop that is being run. Whoever has claimed a part of it may read it: it ends with its last part.
struct Loop {
  void (*part)(void* body, int i) = nullptr;
  void* body = nullptr;
  std::mutex error_lock;
  std::exception_ptr error;

  void run(int i) {
    inside = true;
    try {
      part(body, i);
    } catch (...) {
      std::lock_guard guard(error_lock);
      if (!error) error = std::current_exception();
    }
    inside = false;
  }
};

/// Never destroyed, as its workers are never joined: they sleep when the process ends. After a fork,
/// which takes no worker along, the caller finds nobody to help and does every part.
class Workers {
 public:
  /// False when another thread's loop has the workers.
  bool run(Loop& loop, int parts) {
    std::unique_lock lock(one_loop_, std::try_to_lock);
    if (!lock) return false;
    while (count_ < parts - 1) start();
    loop_ = &loop;
    left_to_end_.store(parts, std::memory_order_relaxed);
    const uint32_t number = number_.load(std::memory_order_relaxed) + 1;
    left_to_begin_.store(uint64_t(number) << 32 | uint32_t(parts), std::memory_order_release);
    number_.store(number, std::memory_order_release);
    number_.notify_all();
    help(number);
    for (int left; (left = left_to_end_.load(std::memory_order_acquire)) > 0;)
      wait_while(left_to_end_, left);
    return true;
  }

 private:
  void start() {
    std::thread([this] {
      for (uint32_t seen = 0;;) {
        wait_while(number_, seen);
        seen = number_.load(std::memory_order_acquire);
        help(seen);
      }
    }).detach();
    ++count_;
  }

  /// Takes parts of that loop until all are taken.
  void help(uint32_t number) {
    for (;;) {
      uint64_t left = left_to_begin_.load(std::memory_order_acquire);
      do
        if (left >> 32 != number || uint32_t(left) == 0) return;
      while (!left_to_begin_.compare_exchange_weak(left, left - 1, std::memory_order_acq_rel));
      loop_->run(int(uint32_t(left)) - 1);
      if (left_to_end_.fetch_sub(1, std::memory_order_acq_rel) == 1) left_to_end_.notify_one();
    }
  }

  std::mutex one_loop_;
  int count_ = 0;
  Loop* loop_ = nullptr;
  std::atomic<uint32_t> number_{0};         // of the newest loop
  std::atomic<uint64_t> left_to_begin_{0};  // number of the loop, and parts that nobody has claimed
  std::atomic<int> left_to_end_{0};
};

Workers workers;

}  // namespace

bool in_loop() { return inside; }

void run_parts(int parts, void (*part)(void* body, int i), void* body) {
  Loop loop{part, body, {}, {}};
  if (parts <= 1 || inside || !workers.run(loop, parts))
    for (int i = 0; i < parts; ++i) part(body, i);
  if (loop.error) std::rethrow_exception(loop.error);
}

}  // namespace gradus
