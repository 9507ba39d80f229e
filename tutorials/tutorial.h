#pragma once
// What the tutorials share. A tutorial is a list of parts; each part says something, computes it and
// checks that what it said is true:
//
//   void sharing() {
//     section("A view shares memory");
//     Tensor x = tensor({1, 2, 3, 4}, {2, 2}), xt = transpose(x, 0, 1);
//     expect("the transpose starts at the same byte", xt.raw() == x.raw());
//   }
//   int main() { return lesson("1. Tensor and view", {sharing}); }
//
// The exit code is 0 if all that was expected was true: so the tutorials run as tests.
#include <chrono>
#include <cmath>
#include <concepts>
#include <cstdio>
#include <functional>
#include <initializer_list>
#include <iostream>
#include <sstream>
#include <string>

#include "ops/ops.h"

namespace gradus::tutorial {

inline int expectations = 0;  // that were met so far

inline void section(const char* title) { std::cout << "\n== " << title << "\n"; }

/// Prints values one after the other, as a line.
template <class... Values>
void say(const Values&... values) {
  std::cout << "  ";
  (std::cout << ... << values) << "\n";
}

/// Values one after the other, for a statement with numbers: expect(sentence(n, " ranks agree"), …).
template <class... Values>
std::string sentence(const Values&... values) {
  std::ostringstream text;
  (text << ... << values);
  return text.str();
}

/// States `what` and throws Error unless it is so.
inline void expect(Message what, bool is_so) {
  check(is_so, what);
  ++expectations;
  say("✓ ", what.text);
}

/// |got − want| ≤ tolerance.
inline void expect_near(Message what, double got, double want, double tolerance) {
  check(std::abs(got - want) <= tolerance, what, ": got ", got, ", expected ", want, " ± ",
        tolerance);
  ++expectations;
  say("✓ ", what.text, ": ", got);
}

/// The same for every element, and the shapes agree.
inline void expect_near(Message what, const Tensor& got, const Tensor& want, double tolerance) {
  check(got.shape() == want.shape(), what, ": got shape ", got.shape(), ", expected ",
        want.shape());
  for (int64_t i = 0; i < want.numel(); ++i)
    check(std::abs(got.at(i) - want.at(i)) <= tolerance, what, ": element ", i, " is ", got.at(i),
          ", expected ", want.at(i), " ± ", tolerance);
  ++expectations;
  say("✓ ", what.text);
}

/// The same of a sentence.
void expect(const std::same_as<std::string> auto& what, bool is_so) { expect(what.c_str(), is_so); }
void expect_near(const std::same_as<std::string> auto& what, const auto& got, const auto& want,
                 double tolerance) {
  expect_near(what.c_str(), got, want, tolerance);
}

/// `action` throws an Error whose text contains `words`; the text is printed.
inline void expect_error(Message what, const char* words, const std::function<void()>& action) {
  std::string text;
  try {
    action();
  } catch (const Error& error) {
    text = error.what();
  }
  check(text.find(words) != std::string::npos, what, ": expected an Error with the words \"", words,
        "\", got ", text.empty() ? "none" : text);
  ++expectations;
  say("✓ ", what.text, ":\n      ", text);
}

/// Something for the reader to find out.
inline void question(const char* text) { std::cout << "\nQuestion: " << text << "\n"; }

/// Runs the parts in order. The result is that of main(): 0, or 1 after the first that is not so.
inline int lesson(const char* title, std::initializer_list<void (*)()> parts) {
  auto start = std::chrono::steady_clock::now();
  std::cout << title << "\n";
  try {
    for (auto part : parts) part();
  } catch (const Error& error) {
    std::cout << "  ✗ " << error.what() << "\n";
    return 1;
  }
  std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  std::printf("\n%d statements checked, all true, in %.1f s\n", expectations, seconds.count());
  return 0;
}

}  // namespace gradus::tutorial
