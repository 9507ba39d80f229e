#include "core/shape.h"

#include <algorithm>

namespace gradus {

Shape broadcast(const Shape& a, const Shape& b, const char* op) {
  int rank = std::max(a.rank(), b.rank());
  Shape out = Shape::filled(rank, 1);
  for (int i = 1; i <= rank; ++i) {
    int64_t m = i <= a.rank() ? a[-i] : 1, n = i <= b.rank() ? b[-i] : 1;
    check(m == n || m == 1 || n == 1, "shapes cannot be broadcast together in ", op, ": ", a, " and ",
          b);
    out[-i] = m == 1 ? n : m;
  }
  return out;
}

}  // namespace gradus
