#include "parallel/send_schedule.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace gradus::parallel {
namespace {

// ms without traffic after which NVLink sleeps, as `nvidia-smi nvlink -gLowPwrInfo` says of an H200
constexpr double kAwake = 50;
// how many times longer than the traffic the backward is that hides it: times vary, and sends that come
// together wait for the kernels of backward and slow them down
constexpr double kMargin = 2;
constexpr size_t kSteps = 4;  // that are timed; the shortest counts

}  // namespace

int buckets_to_hold(const std::vector<double>& until_end, const std::vector<double>& traffic,
                    double step) {
  size_t last = 0;
  double together = 0;
  for (size_t i = 0; i < traffic.size(); ++i) {
    together += traffic[i];
    if (until_end[i] >= kMargin * together) last = i;
  }
  // After the backward parameters may be gathered, which takes as long (ZeRO-1); then all is quiet.
  const double quiet = step - until_end[last] - together;
  return quiet > kAwake ? int(last) : 0;
}

bool SendTimes::are_complete() const { return ends_.size() > kSteps; }

std::vector<int64_t> SendTimes::shortest() const {
  ends_[kSteps - 1].wait();
  sends_[3 * buckets_ * kSteps - 1].wait();
  std::vector<int64_t> least(2 * buckets_ + 1, std::numeric_limits<int64_t>::max());
  const auto take = [&](size_t i, double ms) {
    least[i] = std::min<int64_t>(least[i], std::llround(ms * 1e3));
  };
  for (size_t s = 0; s < kSteps; ++s) {
    for (size_t b = 0; b < buckets_; ++b) {
      const TimeMark* send = &sends_[3 * (s * buckets_ + b)];
      take(b, ends_[s].since(send[0]));
      take(buckets_ + b, send[2].since(send[1]));
    }
    if (s > 0) take(2 * buckets_, ends_[s].since(ends_[s - 1]));
  }
  return least;
}

int common_buckets_to_hold(const std::vector<int64_t>& of_all_ranks, size_t buckets) {
  const size_t n = 2 * buckets + 1;
  std::vector<double> ms(n, std::numeric_limits<double>::max());
  for (size_t i = 0; i < of_all_ranks.size(); ++i)
    ms[i % n] = std::min(ms[i % n], double(of_all_ranks[i]) * 1e-3);
  const auto traffic = ms.begin() + int64_t(buckets);
  return buckets_to_hold(std::vector<double>(ms.begin(), traffic),
                         std::vector<double>(traffic, ms.end() - 1), ms.back());
}

}  // namespace gradus::parallel
