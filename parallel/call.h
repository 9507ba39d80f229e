#pragma once
// What a rank says when it comes to a collective. All ranks of the group must say the same: what is
// mixed otherwise is data of different operations, and nothing would crash.
#include <string>
#include <string_view>
#include <vector>

#include "parallel/communicator.h"

namespace gradus::parallel {

struct Call {
  const char* op = "";
  Shape shape{};
  DType dtype = DType::u8;
  Reduce how = Reduce::sum;
  int root = -1;              // −1: no rank is special
  int peer = -1, tag = 0;     // of a message: the other rank, in the whole program
  std::string_view inside{};  // the op of the graph that it happens in: core/scope.h
  bool has_data = true;       // false: a barrier

  bool agrees_with(const Call& other) const;
  /// "all_reduce (max) of (3,) f32 in linear, backward".
  friend std::ostream& operator<<(std::ostream& out, const Call& call);
};

/// A call of `op` on `x`, made by this thread now.
Call call_of(const char* op, const Tensor& x);
Call call_of(const char* op);  // without data

/// "ranks 0 to 3" or "ranks 0, 4": for messages.
std::string ranks_text(const std::vector<int>& ranks);

}  // namespace gradus::parallel
