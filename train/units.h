#pragma once
// Numbers for people.
#include <cstdint>
#include <string>

namespace gradus::train {

/// Three significant digits and a decimal prefix: 812, 45.1k, 1.20M, 989T.
std::string with_prefix(double value);

/// "812 MB", "1.40 GB": decimal units, as disks and GPUs are sold.
std::string bytes_text(int64_t bytes);

/// "41s", "3m12s", "2h05m", "3d04h"; "?" when it is not known (not finite).
std::string duration_text(double seconds);

/// Digits in groups of three: 4,434,720.
std::string with_commas(int64_t value);

/// "1 step", "2,000 steps".
std::string count_text(int64_t count, const std::string& noun);

/// Memory that this process holds in RAM now.
int64_t resident_bytes();

}  // namespace gradus::train
