#include "train/units.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>

namespace gradus::train {
namespace {

template <class... Values>
std::string format(const char* pattern, Values... values) {
  char text[64];
  std::snprintf(text, sizeof(text), pattern, values...);
  return text;
}

}  // namespace

std::string with_prefix(double value) {
  constexpr const char* kPrefixes[] = {"", "k", "M", "G", "T", "P", "E"};
  int prefix = 0;
  // 999.5 would be printed as 1000.
  for (; std::abs(value) >= 999.5 && std::isfinite(value) && prefix < 6; ++prefix) value /= 1000;
  const double size = std::abs(value);
  const int decimals = size >= 99.95 || (prefix == 0 && value == std::floor(value)) ? 0
                       : size >= 9.995                                              ? 1
                                                                                    : 2;
  return format("%.*f%s", decimals, value, kPrefixes[prefix]);
}

std::string bytes_text(int64_t bytes) {
  const std::string number = with_prefix(double(bytes));
  const size_t digits = number.find_first_not_of("0123456789.-");
  if (digits == std::string::npos) return number + " B";
  return number.substr(0, digits) + " " + number.substr(digits) + "B";
}

std::string duration_text(double seconds) {
  if (!std::isfinite(seconds)) return "?";
  const long long s = std::llround(std::max(seconds, 0.0)), m = s / 60, h = m / 60, d = h / 24;
  if (m == 0) return format("%llds", s);
  if (h == 0) return format("%lldm%02llds", m, s % 60);
  if (d == 0) return format("%lldh%02lldm", h, m % 60);
  return format("%lldd%02lldh", d, h % 24);
}

std::string with_commas(int64_t value) {
  std::string text = std::to_string(value);
  for (auto at = int64_t(text.size()) - 3; at > (value < 0 ? 1 : 0); at -= 3)
    text.insert(size_t(at), 1, ',');
  return text;
}

std::string count_text(int64_t count, const std::string& noun) {
  return with_commas(count) + " " + noun + (count == 1 ? "" : "s");
}

int64_t resident_bytes() {
  int64_t total_pages = 0, resident_pages = 0;
  std::ifstream("/proc/self/statm") >> total_pages >> resident_pages;
  return resident_pages * int64_t(::sysconf(_SC_PAGESIZE));
}

}  // namespace gradus::train
