#pragma once
// Errors: one exception type, one function.
//
//   check(k == b.size(0), "matmul: inner sizes differ, ", a.shape(), " and ", b.shape());
//
// Values are formatted only when the check fails. Status codes of CUDA, cuBLAS, NCCL and MPI have
// overloads beside the headers of those libraries (core/cuda.h, parallel/).
#include <source_location>
#include <sstream>
#include <stdexcept>
#include <string>

namespace gradus {

/// What every wrong use throws. The text names what was expected and what came.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A string literal that remembers the line it was written on.
struct Message {
  const char* text;
  std::source_location where;
  // NOLINTNEXTLINE(google-explicit-constructor): the literal at the call of check() becomes this.
  Message(const char* t, std::source_location w = std::source_location::current())
      : text(t), where(w) {}
};

/// Throws Error with `message`, then `values` printed one after the other.
template <class... Values>
[[noreturn]] [[gnu::noinline, gnu::cold]] void fail(Message message, const Values&... values) {
  std::ostringstream out;
  out << message.text;
  ((out << values), ...);
  out << "  [" << message.where.file_name() << ":" << message.where.line() << "]";
  throw Error(out.str());
}

/// Throws Error unless `ok`.
template <class... Values>
void check(bool ok, Message message, const Values&... values) {
  if (!ok) [[unlikely]]
    fail(message, values...);
}

}  // namespace gradus
