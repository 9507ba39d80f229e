#pragma once
// The numbers of a run as JSON lines, one a step:
//
//   {"step":100,"loss":2.4375,"lr":0.0006,"grad_norm":0.83}
//   {"step":101,"loss":"NaN","lr":0.0006,"grad_norm":"Infinity","skipped":1}
//
// JSON has no word for NaN and ∞: they are written as the strings "NaN", "Infinity" and "-Infinity",
// which float() in Python and Number() in JavaScript read.
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "train/disk.h"

namespace gradus::train {

struct Metric {
  std::string name;
  std::variant<int64_t, double, std::string> value;
};

class MetricsFile {
 public:
  /// Goes on after the line of `last_step`: later lines, of a run that got further before it stopped,
  /// are cut off, and so is a line that was being written. −1 begins an empty file. Error when a
  /// complete line is not one of ours.
  explicit MetricsFile(std::string path, int64_t last_step = -1);

  /// Appends the line of `step`. Error unless `step` is larger than the last one: a step has one line.
  /// Error, too, when the disk takes no more; the line is then kept and written before the next one.
  void write(int64_t step, const std::vector<Metric>& metrics);

  /// Writes the lines that were kept.
  void flush();

 private:
  std::string path_;
  int64_t last_step_;
  Descriptor file_;
  std::string pending_;  // not written yet
};

}  // namespace gradus::train
