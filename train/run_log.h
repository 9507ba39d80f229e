#pragma once
// What a run has left behind: its metrics, as curves over the steps, and its settings.
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "train/plot.h"

namespace gradus::train {

struct RunLog {
  std::string name;                                      // of the directory
  int64_t steps = 0;                                     // the last one that was recorded
  std::map<std::string, std::vector<Point>> curves;      // "loss" → (step, loss) …
  std::vector<std::pair<int64_t, std::string>> skipped;  // step, the tensor that was not finite
  std::vector<std::pair<std::string, std::string>> settings;  // empty while there is no checkpoint

  /// The points of a metric, none when it was not recorded.
  const std::vector<Point>& curve(const std::string& metric) const;
};

/// Reads metrics.jsonl, but for a last line that is still being written, and the settings in the newest
/// checkpoint. Error naming file and line when a line is not one of metrics.
RunLog read_run_log(const std::string& directory);

/// The metrics in a text of JSON lines; `path` is for errors.
RunLog parse_metrics(const std::string& text, const std::string& path);

}  // namespace gradus::train
