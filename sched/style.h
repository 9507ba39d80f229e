#pragma once
// The shapes that a user chooses by name, and their names in both directions.
#include <array>
#include <ostream>
#include <string>

#include "core/check.h"

namespace gradus::sched {

enum class Tail { linear, cosine, exponential, minus_sqrt };           // the end of WSD
enum class RateStyle { constant, linear, cosine, inverse_sqrt, wsd };  // learning rate
enum class IncrementStyle { constant, linear, cosine };                // weight decay

namespace detail {
template <class Style>
struct Names;
template <>
struct Names<Tail> {
  static constexpr auto of = "tail";
  static constexpr std::array all = {"linear", "cosine", "exponential", "minus_sqrt"};
};
template <>
struct Names<RateStyle> {
  static constexpr auto of = "learning-rate style";
  static constexpr std::array all = {"constant", "linear", "cosine", "inverse_sqrt", "wsd"};
};
template <>
struct Names<IncrementStyle> {
  static constexpr auto of = "weight-decay style";
  static constexpr std::array all = {"constant", "linear", "cosine"};
};
}  // namespace detail

template <class S>
concept Style = requires {
  detail::Names<S>::all;
};

/// The name of a style. Error if the number is none of them.
template <Style S>
const char* name_of(S style) {
  using Names = detail::Names<S>;
  check(size_t(style) < Names::all.size(), "unknown ", Names::of, ", number ", int(style));
  return Names::all[size_t(style)];
}

/// The style called `name`. Error that lists the names when there is none.
template <Style S>
S parse_style(const std::string& name) {
  using Names = detail::Names<S>;
  std::string known;
  for (size_t i = 0; i < Names::all.size(); ++i) {
    if (name == Names::all[i]) return S(i);
    known += std::string(i ? ", " : "") + Names::all[i];
  }
  fail("unknown ", Names::of, " '", name, "'; known are ", known);
}

template <Style S>
std::ostream& operator<<(std::ostream& out, S style) {
  return out << name_of(style);
}

}  // namespace gradus::sched
