#include "parallel/call.h"

#include <algorithm>
#include <cstring>
#include <sstream>

#include "core/scope.h"

namespace gradus::parallel {

bool Call::agrees_with(const Call& other) const {
  return std::strcmp(op, other.op) == 0 && shape == other.shape && dtype == other.dtype &&
         how == other.how && root == other.root;
}

std::ostream& operator<<(std::ostream& out, const Call& call) {
  out << call.op;
  if (call.how == Reduce::max) out << " (max)";
  if (call.has_data) out << " of " << call.shape << ' ' << call.dtype;
  if (call.root >= 0) out << " from root " << call.root;
  if (call.peer >= 0)
    out << ", the other end being rank " << call.peer << " (tag " << call.tag << ')';
  if (!call.inside.empty()) out << " in " << call.inside;
  return out;
}

Call call_of(const char* op, const Tensor& x) {
  return {.op = op, .shape = x.shape(), .dtype = x.dtype(), .inside = detail::activity.name};
}

Call call_of(const char* op) {
  return {.op = op, .inside = detail::activity.name, .has_data = false};
}

std::string ranks_text(const std::vector<int>& ranks) {
  std::ostringstream out;
  out << (ranks.size() == 1 ? "rank " : "ranks ");
  const bool run = ranks.size() > 2 && ranks.back() - ranks.front() == int(ranks.size()) - 1;
  if (run && std::is_sorted(ranks.begin(), ranks.end())) {
    out << ranks.front() << " to " << ranks.back();
  } else {
    for (size_t i = 0; i < ranks.size(); ++i) out << (i ? ", " : "") << ranks[i];
  }
  return out.str();
}

}  // namespace gradus::parallel
