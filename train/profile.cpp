#include "train/profile.h"

#include <cstdio>
#include <numeric>

#include "core/cuda.h"
#include "core/delay.h"
#include "core/time_mark.h"

namespace gradus::train {
namespace {

// Milliseconds until f's work is done.
double timed(Device device, const std::function<void()>& f) {
  synchronize(device);
  const TimeMark start(kCpu);
  f();
  synchronize(device);
  return TimeMark(kCpu).since(start);
}

std::string row(const char* name, double ms, const double* floor, const int64_t* ops) {
  char text[96], number[32];
  std::snprintf(text, sizeof(text), "%-20s%9.2f", name, ms);
  std::string line = text;
  std::snprintf(number, sizeof(number), "%9.2f", floor ? *floor : 0);
  line += floor && *floor > 0 ? number : std::string(9, ' ');
  std::snprintf(number, sizeof(number), "%7lld", ops ? static_cast<long long>(*ops) : 0LL);
  return line + (ops && *ops > 0 ? number : "");
}

}  // namespace

Profile profile_steps(Device device, const std::function<void()>& step, int steps,
                      const StepSize& size, const std::string& chrome) {
  check(steps > 0, "a profile needs a step at least, got ", steps);
  step();
  Profile p;
  p.steps = steps;
  p.plain_ms = timed(device, step);
  const double ahead =
      std::min(2 * p.plain_ms, 100.0);  // the host is no slower than that, or long ahead
  {
    Trace trace(device);
    for (int i = 0; i < steps; ++i) {
      delay(device, ahead);
      Scope scope("step");
      step();
    }
    p.totals = trace.totals();
    if (!chrome.empty()) trace.write_chrome(chrome);
  }
  for (const Trace::Total& total : p.totals) {
    const auto c = size_t(class_of(total.activity));
    p.ms[c] += total.self / steps;
    p.ops[c] += total.count / steps;
  }
  p.traced_ms = std::accumulate(p.ms.begin(), p.ms.end(), 0.0);
  if (const auto ceiling =
          device.is_cuda() ? measured_ceiling(device_name(device), size.dtype) : std::nullopt)
    p.floor = floor_of(size, *ceiling);
  return p;
}

std::string table_of(const Profile& p) {
  std::string text = "profile of " + std::to_string(p.steps) +
                     (p.steps == 1 ? " step " : " steps") + "         ms" +
                     (p.floor ? "    floor" : "         ") + "    ops\n";
  double floor = 0;
  for (int c = 0; c < kKernelClasses; ++c) {
    const auto i = size_t(c);
    const bool is_gaps = KernelClass(c) == KernelClass::gaps;
    if (p.ops[i] == 0) continue;
    text += row(name_of(KernelClass(c)), p.ms[i], p.floor ? &(*p.floor)[i] : nullptr,
                is_gaps ? nullptr : &p.ops[i]) +
            "\n";
    if (p.floor) floor += (*p.floor)[i];
  }
  text += row("step", p.traced_ms, p.floor ? &floor : nullptr, nullptr);
  char plain[64];
  std::snprintf(plain, sizeof(plain), "   (%.2f ms without the trace)", p.plain_ms);
  return text + plain;
}

}  // namespace gradus::train
