#include "train/metrics.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

namespace gradus::train {
namespace {

using nlohmann::json;

int64_t step_in(const std::string& line, const std::string& path, int64_t number) {
  try {
    return json::parse(line).at("step").get<int64_t>();
  } catch (const json::exception& error) {
    fail("", path, ", line ", number, " is not a line of metrics (", error.what(),
         "); move the file away or choose another one");
  }
}

// Where the first line after `last_step` begins, or the first incomplete one.
off_t kept_bytes(const std::string& path, int64_t last_step) {
  std::ifstream file(path, std::ios::binary);
  off_t kept = 0;
  std::string line;
  for (int64_t number = 1; std::getline(file, line) && !file.eof(); ++number) {
    if (step_in(line, path, number) > last_step) break;
    kept += off_t(line.size()) + 1;
  }
  return kept;
}

std::string to_json(double value) {
  if (std::isnan(value)) return "\"NaN\"";
  if (std::isinf(value)) return value > 0 ? "\"Infinity\"" : "\"-Infinity\"";
  return json(value).dump();
}
std::string to_json(int64_t value) { return std::to_string(value); }
std::string to_json(const std::string& value) { return json(value).dump(); }

}  // namespace

MetricsFile::MetricsFile(std::string path, int64_t last_step)
    : path_(std::move(path)), last_step_(last_step) {
  const off_t kept = last_step < 0 ? 0 : kept_bytes(path_, last_step);
  file_ = Descriptor(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (!file_) fail_system("open", path_);
  struct stat info {};
  const bool longer = ::fstat(file_.get(), &info) == 0 && info.st_size > kept;
  if (longer && ::ftruncate(file_.get(), kept) != 0) fail_system("truncate", path_);
}

void MetricsFile::write(int64_t step, const std::vector<Metric>& metrics) {
  check(step > last_step_, "metrics of step ", step, " come after those of step ", last_step_,
        " in ", path_);
  std::string line = "{\"step\":";
  line += std::to_string(step);
  for (const auto& [name, value] : metrics) {
    line.append(1, ',').append(to_json(name)).append(1, ':');
    line += std::visit([](const auto& v) { return to_json(v); }, value);
  }
  pending_ += line + "}\n";
  last_step_ = step;
  flush();
}

void MetricsFile::flush() {
  while (!pending_.empty()) {  // usually one call a line: a reader, and a crash, meet whole lines
    const ssize_t written = ::write(file_.get(), pending_.data(), pending_.size());
    if (written < 0) fail_system("write", path_);
    pending_.erase(0, size_t(written));
  }
}

}  // namespace gradus::train
