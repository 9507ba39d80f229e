#pragma once
// The line that shows how a run is getting on:
//
//   step 1200/5000  loss 1.8342  lr 5.71e-04  norm 0.41  48.3k tok/s  MFU n/a  812 MB  4m10s left
//
// On a terminal it is one line, written over in place and never wider than the terminal; in a log it is
// a new line every few seconds.
#include <cstdint>
#include <functional>
#include <optional>
#include <ostream>
#include <string>

namespace gradus::train {

/// Model FLOP utilisation by both ways to count attention (train/flops.h), and the peak rate that they
/// are fractions of.
struct Utilisation {
  double causal = 0, full = 0, peak_flops = 0;
};

struct Progress {
  int64_t step = 0, total = 0;
  double loss = 0, lr = 0, grad_norm = 0, tokens_per_second = 0;
  std::optional<Utilisation> mfu;  // absent on a device whose peak is not known
  int64_t memory = 0;              // bytes
  double seconds_left = 0;
  double loss_scale = 1;  // shown where it is another
};

/// The line in at most `width` columns: what matters least is left out first.
std::string progress_line(const Progress& progress, int width);

/// Columns of the terminal that file descriptor `fd` is, 0 when it is none.
int terminal_width(int fd);

class ProgressDisplay {
 public:
  /// `width` is asked before each line (a window may be resized): columns, 0 for a log.
  ProgressDisplay(std::ostream& out, std::function<int()> width);
  /// Ends the line in place.
  ~ProgressDisplay();
  ProgressDisplay(const ProgressDisplay&) = delete;

  /// Shows the line unless the last one is too recent; the first and the last step are always shown.
  /// `now` in seconds, from any origin.
  void show(const Progress& progress, double now);

  /// A line that stays: an evaluation, a checkpoint.
  void message(const std::string& text);

 private:
  std::ostream& out_;
  std::function<int()> width_;
  std::optional<double> last_;
  bool in_place_ = false;  // a line without its end is on the terminal
};

/// Speed of a run, from the times of its steps.
class Pace {
 public:
  explicit Pace(double start) : start_(start) {}

  /// A step that took `seconds` for `tokens` and ended at `now`.
  void step(double seconds, int64_t tokens, double now);

  /// Mean over the last steps (a step's weight halves every seven steps).
  double tokens_per_second() const { return seconds_ > 0 ? tokens_ / seconds_ : 0; }

  /// From the whole time since the start, so with evaluations and saves.
  double seconds_left(int64_t steps_left) const;

 private:
  double start_, now_ = 0, seconds_ = 0, tokens_ = 0;
  int64_t steps_ = 0;
};

}  // namespace gradus::train
