// The file, a choice a line, those of other machines included:
//
//   gradus gemm tuning 1
//   NVIDIA H200, cuBLASLt 130100 | bf16 NT 65536 × 2304 × 768 … | 291.2 of 320.6 µs | 8 words
//   checksum 0123456789abcdef                                      XXH3 of the lines above
//
// g++ 12 warns of its own AVX-512 intrinsics, which xxhash.h inlines.
#pragma GCC diagnostic ignored "-Wuninitialized"
#include "ops/gemm_tuning.h"

#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <vector>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "core/check.h"

namespace gradus {
namespace {

constexpr const char* kTitle = "gradus gemm tuning 1\n";
constexpr const char* kChecksum = "checksum ";

std::atomic<GemmTuning*> in_force{nullptr};
std::atomic<uint64_t> changes{0};

std::string hex(uint64_t word) {
  std::ostringstream out;
  out << std::hex << std::setw(16) << std::setfill('0') << word;
  return out.str();
}

std::string checksum_line(const std::string& text) {
  return kChecksum + hex(XXH3_64bits(text.data(), text.size())) + "\n";
}

/// The fields of a line, which " | " separates.
std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> fields;
  size_t begin = 0;
  for (size_t end; (end = line.find(" | ", begin)) != std::string::npos; begin = end + 3)
    fields.push_back(line.substr(begin, end - begin));
  fields.push_back(line.substr(begin));
  return fields;
}

std::optional<GemmChoice> parse_choice(const std::string& times, const std::string& words) {
  GemmChoice choice;
  std::string of;
  std::istringstream time(times), word(words);
  time >> choice.time >> of >> choice.time_of_first;
  for (uint64_t& w : choice.algorithm) word >> std::hex >> w;
  if (!time || !word || of != "of") return {};
  return choice;
}

std::string to_line(const std::string& machine, const std::string& product, const GemmChoice& c) {
  std::ostringstream line;
  line << machine << " | " << product << " | " << c.time << " of " << c.time_of_first << " µs |";
  for (uint64_t w : c.algorithm) line << ' ' << hex(w);
  return line.str() + "\n";
}

}  // namespace

GemmTuning::GemmTuning(std::string path) : path_(std::move(path)) {
  if (!path_.empty() && std::filesystem::exists(path_)) read();
  GemmTuning* none = nullptr;
  check(in_force.compare_exchange_strong(none, this),
        "GemmTuning: one is in force already, and it serves the whole process");
  ++changes;
}

GemmTuning::~GemmTuning() {
  in_force = nullptr;
  ++changes;
}

GemmTuning* GemmTuning::current() { return in_force; }
uint64_t GemmTuning::generation() { return changes.load(std::memory_order_relaxed); }

std::optional<GemmChoice> GemmTuning::find(const std::string& machine,
                                           const std::string& product) const {
  std::lock_guard lock(mutex_);
  auto it = choices_.find({machine, product});
  return it == choices_.end() ? std::optional<GemmChoice>() : it->second;
}

GemmChoice GemmTuning::keep(const std::string& machine, const std::string& product,
                            const GemmChoice& choice) {
  std::lock_guard lock(mutex_);
  auto [it, is_new] = choices_.emplace(std::pair(machine, product), choice);
  if (is_new && !path_.empty()) write();
  return it->second;
}

void GemmTuning::read() {
  std::ifstream file(path_, std::ios::binary);
  std::string text(std::istreambuf_iterator<char>(file), {});
  check(bool(file), "GemmTuning: cannot read ", path_);
  check(text.starts_with(kTitle), "GemmTuning: ", path_,
        " is no file of gemm tunings: its first line is not '",
        std::string(kTitle, strlen(kTitle) - 1), "'");
  size_t end = text.rfind(kChecksum);
  check(end != std::string::npos && text.substr(end) == checksum_line(text.substr(0, end)),
        "GemmTuning: ", path_,
        " was cut off or edited: its checksum does not fit; delete it, and the "
        "products are timed again");
  std::istringstream lines(text.substr(0, end));
  std::string line;
  std::getline(lines, line);
  for (int number = 2; std::getline(lines, line); ++number) {
    auto fields = fields_of(line);
    auto choice = fields.size() == 4 ? parse_choice(fields[2], fields[3]) : std::nullopt;
    check(choice.has_value(), "GemmTuning: ", path_, ", line ", number,
          ": expected machine | product | times | 8 words, got '", line, "'");
    choices_[{fields[0], fields[1]}] = *choice;
  }
}

/// A reader sees the old file or the new one.
void GemmTuning::write() const {
  std::string text = kTitle;
  for (const auto& [key, choice] : choices_) text += to_line(key.first, key.second, choice);
  const std::string unfinished = path_ + "." + std::to_string(getpid()) + ".tmp";
  std::ofstream file(unfinished, std::ios::binary);
  file << text << checksum_line(text);
  file.close();
  check(bool(file), "GemmTuning: cannot write ", unfinished);
  std::error_code error;
  std::filesystem::rename(unfinished, path_, error);
  check(!error, "GemmTuning: cannot rename ", unfinished, " to ", path_, ": ", error.message());
}

}  // namespace gradus
