#include "train/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "train/units.h"

namespace gradus::train {
namespace {

constexpr double kTerminalSeconds = 0.1, kLogSeconds = 5;
constexpr const char* kClearToEnd = "\x1b[K";

struct Field {
  int importance;
  std::string text;
};

template <class... Values>
std::string format(const char* pattern, Values... values) {
  char text[64];
  std::snprintf(text, sizeof(text), pattern, values...);
  return text;
}

std::string mfu_text(const std::optional<Utilisation>& mfu) {
  if (!mfu) return "MFU n/a";
  return format("MFU %.1f%% causal, %.1f%% full, of ", 100 * mfu->causal, 100 * mfu->full) +
         with_prefix(mfu->peak_flops);
}

std::string join(const std::vector<Field>& fields) {
  std::string line;
  for (const Field& field : fields) line += (line.empty() ? "" : "  ") + field.text;
  return line;
}

}  // namespace

std::string progress_line(const Progress& p, int width) {
  std::vector<Field> fields{
      {9, "step " + std::to_string(p.step) + "/" + std::to_string(p.total)},
      {8, format("loss %.4f", p.loss)},
      {4, format("lr %.2e", p.lr)},
      {5, format("norm %.2f", p.grad_norm)},
      {6, with_prefix(p.tokens_per_second) + " tok/s"},
      {2, mfu_text(p.mfu)},
      {3, bytes_text(p.memory)},
      {7, duration_text(p.seconds_left) + " left"},
  };
  if (p.loss_scale != 1) fields.insert(fields.begin() + 4, {1, format("scale %g", p.loss_scale)});
  while (fields.size() > 1 && int64_t(join(fields).size()) > width)
    fields.erase(std::min_element(fields.begin(), fields.end(), [](const Field& a, const Field& b) {
      return a.importance < b.importance;
    }));
  return join(fields).substr(0, size_t(std::max(width, 0)));
}

int terminal_width(int fd) {
  struct winsize size {};
  if (!::isatty(fd)) return 0;
  // A terminal that does not know its size reports 0 columns.
  return ::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

ProgressDisplay::ProgressDisplay(std::ostream& out, std::function<int()> width)
    : out_(out), width_(std::move(width)) {}

ProgressDisplay::~ProgressDisplay() {
  if (in_place_) out_ << std::endl;
}

void ProgressDisplay::show(const Progress& progress, double now) {
  const int width = width_();
  const double interval = width > 0 ? kTerminalSeconds : kLogSeconds;
  if (last_ && now - *last_ < interval && progress.step < progress.total) return;
  last_ = now;
  if (width > 0)  // not the last column: some terminals go to the next line there
    out_ << '\r' << progress_line(progress, width - 1) << kClearToEnd << std::flush;
  else
    out_ << progress_line(progress, 1000) << std::endl;
  in_place_ = width > 0;
}

void ProgressDisplay::message(const std::string& text) {
  if (in_place_) out_ << '\r' << kClearToEnd;
  out_ << text << std::endl;
  in_place_ = false;
}

void Pace::step(double seconds, int64_t tokens, double now) {
  constexpr double kKept = 0.9;  // 0.9⁷ ≈ ½
  seconds_ = kKept * seconds_ + seconds;
  tokens_ = kKept * tokens_ + double(tokens);
  now_ = now;
  ++steps_;
}

double Pace::seconds_left(int64_t steps_left) const {
  if (steps_ == 0) return NAN;
  return (now_ - start_) / double(steps_) * double(steps_left);
}

}  // namespace gradus::train
