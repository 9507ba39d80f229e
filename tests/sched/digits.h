#pragma once
// A value of a table, as it is printed there: the computed one must round to it.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

namespace gradus::sched {

/// True if `value` is within half a unit of the last printed digit of `digits`, or within a few
/// roundings of double where all digits are printed ("0.1").
inline testing::AssertionResult rounds_to(double value, const std::string& digits) {
  size_t exponent = digits.find('e'), point = digits.find('.');
  std::string mantissa = digits.substr(0, exponent);
  int power = exponent == std::string::npos ? 0 : std::stoi(digits.substr(exponent + 1));
  int decimals = point == std::string::npos ? 0 : int(mantissa.size() - point - 1);
  int significant = 0;
  for (char c : mantissa) significant += (c >= '1' && c <= '9') || (c == '0' && significant);
  double printed = std::stod(digits);
  double half_unit = 0.5000001 * std::pow(10.0, power - decimals);
  double tolerance = significant >= 8 ? half_unit : 1e-13 * std::abs(printed);
  if (std::abs(value - printed) <= tolerance) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "got " << std::to_string(value) << " = " << std::hexfloat
                                     << value << ", the table says " << digits;
}

}  // namespace gradus::sched
