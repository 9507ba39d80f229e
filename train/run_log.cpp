#include "train/run_log.h"

#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "train/run_directory.h"
#include "train/run_state.h"
#include "train/strict_json.h"

namespace gradus::train {
namespace {

using nlohmann::json;

// Numbers, and the words that MetricsFile writes for those that JSON has not.
std::optional<double> number_in(const json& value) {
  if (value.is_number()) return value.get<double>();
  if (value == json("NaN")) return std::numeric_limits<double>::quiet_NaN();
  if (value == json("Infinity")) return std::numeric_limits<double>::infinity();
  if (value == json("-Infinity")) return -std::numeric_limits<double>::infinity();
  return std::nullopt;
}

void add_line(RunLog& log, const json& line, const std::string& where) {
  check(line.is_object() && line.contains("step") && line["step"].is_number_integer(), "", where,
        " is no line of metrics: it has no step");
  const auto step = line["step"].get<int64_t>();
  check(step > log.steps || log.curves.empty(), "", where, " has step ", step, " after step ",
        log.steps);
  log.steps = step;
  for (const auto& [name, value] : line.items()) {
    if (name == "step") continue;
    if (const auto number = number_in(value)) log.curves[name].push_back({double(step), *number});
    if (name == "skipped" && value.is_string()) log.skipped.emplace_back(step, value);
  }
}

// Those of the newest checkpoint; none where the run has not saved yet.
std::vector<std::pair<std::string, std::string>> settings_in(const std::string& directory) {
  const CheckpointList list = list_checkpoints(directory);
  if (list.complete.empty()) return {};
  const Settings settings =
      settings_of(CheckpointReader(checkpoint_path(directory, list.complete.back().step)));
  std::vector<std::pair<std::string, std::string>> texts;
  Settings::each_field(
      [&](const Setting& s, const auto& value) {
        const json j = value;
        texts.emplace_back(s.name, j.is_string() ? j.get<std::string>() : j.dump());
      },
      settings);
  return texts;
}

}  // namespace

const std::vector<Point>& RunLog::curve(const std::string& metric) const {
  static const std::vector<Point> kNone;
  const auto found = curves.find(metric);
  return found == curves.end() ? kNone : found->second;
}

RunLog parse_metrics(const std::string& text, const std::string& path) {
  RunLog log;
  int64_t number = 1;
  for (size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos;
       begin = end + 1) {
    const std::string where = path + ", line " + std::to_string(number++);
    add_line(log, parse_json(std::string_view(text).substr(begin, end - begin), where), where);
  }
  return log;
}

RunLog read_run_log(const std::string& directory) {
  namespace fs = std::filesystem;
  const std::string path = directory + "/" + kMetricsFile;
  std::error_code ignored;
  check(fs::exists(path, ignored), "no run is in ", directory, ": it has no ", kMetricsFile,
        "; gradus train writes one");
  RunLog log = parse_metrics(read_file(path), path);
  check(log.steps > 0, "", path, " has no complete line yet: there is nothing to report");
  log.settings = settings_in(directory);
  log.name =
      fs::path(fs::absolute(directory) / "").parent_path().lexically_normal().filename().string();
  return log;
}

}  // namespace gradus::train
