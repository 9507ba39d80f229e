#include <cstdio>

#include "train/consistency.h"

namespace gradus::train {
namespace {

template <class... Values>
std::string format(const char* pattern, Values... values) {
  char text[256];
  std::snprintf(text, sizeof(text), pattern, values...);
  return text;
}

std::string padded(std::string text, size_t width) {
  text.resize(std::max(width, text.size()), ' ');
  return text;
}

// Where the differences come from: a tensor that is no nearer than its own values moved by one place is
// another one, one that is near its bound lacks precision.
std::string roll_text(const TensorDifference& t) {
  const char* guess = t.rel > t.rolled / 2    ? "the two are unrelated"
                      : t.rel < 100 * t.bound ? "a matter of precision"
                                              : "related, but one is wrong";
  return format("    moved by one place, rel would be %.2e: ", t.rolled) + guess;
}

void print_numbers(std::ostream& out, const ConsistencyReport& report) {
  for (const NumberDifference& n : report.numbers)
    out << padded(n.name, 16) << format("%-24.16g %-24.16g rel %.2e", n.left, n.right, n.rel)
        << (n.bound > 0 ? format("  bound %.2e", n.bound) : std::string("  must be equal"))
        << (n.agrees ? "  ok\n" : "  DIFFERS\n");
}

}  // namespace

void print(std::ostream& out, const ConsistencyReport& report, bool only_failures) {
  size_t widest = 4;
  for (const TensorDifference& t : report.tensors) widest = std::max(widest, t.name.size());
  print_numbers(out, report);
  bool head = false;
  for (const TensorDifference& t : report.tensors) {
    if (only_failures && t.agrees) continue;
    if (!head)
      out << padded("tensor", widest)
          << "  rel       row rel   bound     verdict  largest difference at: left, right\n";
    head = true;
    out << padded(t.name, widest)
        << format("  %.2e  %.2e  %.2e  %-7s  ", t.rel, t.row_rel, t.bound,
                  t.agrees ? "ok" : "DIFFERS")
        << t.place << format(": %.9g, %.9g", t.left, t.right) << "\n";
    if (!t.agrees) out << roll_text(t) << "\n";
  }
  for (const std::string& w : report.warnings) out << "warning: " << w << "\n";
  for (const std::string& f : report.faults) out << "FAULT: " << f << "\n";
  out << report.summary() << "\n";
}

}  // namespace gradus::train
