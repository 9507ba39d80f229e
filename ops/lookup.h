#pragma once
// Rows of a table, chosen by integers: gather, index_select and embedding are one matrix product
//
//   Y = S X      S (rows, table rows) has a single 1 in each row j, at column key(j)
//   dX = Sᵀ dY   row k of dX is the sum of the rows j of dY with key(j) = k
//
// that is never written as one. Equal keys add up in the order of their positions, in f32 (f64 for
// f64), on both devices: no atomics, the same bits on each run.
#include "autograd/apply.h"
#include "ops/ops.h"

namespace gradus {

/// What S is. The table is (outer, limit, inner) rows of `length` elements, the result (outer, count,
/// inner) rows. Each row of the result has an id of its own, or (`shared`) all of one `count` have.
struct RowMap {
  Shape table{}, result{};
  int64_t outer = 1, limit = 0, count = 0, inner = 1, length = 1;
  bool shared = true;
  // A table may be a part: rows `first` … first + limit − 1 of `total` that there are (0: limit). Rows
  // that are elsewhere are rows of zeros.
  int64_t first = 0, total = 0;

  int64_t rows() const { return outer * count * inner; }
  int64_t table_rows() const { return outer * limit * inner; }
};

/// S x. `op` is named in the Error of an id outside [0, limit) (Note [errors on the device]).
Tensor take_rows(const char* op, const RowMap& map, const Tensor& x, const Tensor& ids);

/// into ← β into + Sᵀ dy, for a contiguous `into` of dy's type or f32; β is 0 or 1, and with 0 it is
/// not read.
void add_rows(const char* op, const RowMap& map, const Tensor& into, const Tensor& dy,
              const Tensor& ids, double beta);

/// add_rows can write there.
bool can_add_rows(const Tensor& into, const Tensor& dy);

/// Sᵀ dy as a recorded op.
Tensor put_rows(const RowMap& map, const Tensor& dy, const Tensor& ids);

/// Rows `ids` (…) of a table of `total` rows of which this is the part (rows, C) from `first` on: (…, C).
/// Rows that are elsewhere are 0, and their gradient goes nowhere.
Tensor embedding_part(const Tensor& part, const Tensor& ids, int64_t first, int64_t total);

/// Error, on behalf of `op`, unless ids are i32 or i64 on the device of x.
void check_ids(const char* op, const Tensor& x, const Tensor& ids);

inline constexpr char kIndexSelect[] = "index_select", kGather[] = "gather",
                      kEmbedding[] = "embedding";

/// S x as an op. The gradient of a table with a main gradient is added there, without a tensor of the
/// table's size between.
template <const char* kName>
struct TakeRows {
  static constexpr auto name = kName;
  static constexpr bool recordable = true;
  RowMap map{};
  Saved ids{};
  Tensor forward(const Tensor& x, const Tensor& i) {
    ids = i;
    return take_rows(name, map, x, i);
  }
  Tensors backward(const Tensor& dy, Needs need) {
    MainGrad* into = need[0].into;
    if (!into || !can_add_rows(into->buffer, dy)) return {put_rows(map, dy, *ids), Tensor{}};
    add_rows(name, map, into->buffer, dy, *ids, into->beta());
    return {Tensor{}, Tensor{}};
  }
};

}  // namespace gradus
