#pragma once
// The CPU side of lookup (see ops/lookup.h), and how ids are read on either side.
#include <cstring>
#include <vector>

#include "core/elementwise.h"
#include "ops/lookup.h"

namespace gradus::detail {

GRADUS_HD inline int64_t quotient(int64_t a, int64_t b) {
  return (a | b) >> 32 ? a / b : int64_t(uint32_t(a) / uint32_t(b));
}

/// Reads the ids of a RowMap, of either type.
struct Keys {
  const void* ids;
  bool wide;  // i64
  bool shared;
  int64_t limit, count, inner, first, total;

  Keys(const RowMap& m, const Tensor& t)
      : ids(t.raw()),
        wide(t.dtype() == DType::i64),
        shared(m.shared),
        limit(m.limit),
        count(m.count),
        inner(m.inner),
        first(m.first),
        total(m.total ? m.total : m.limit) {}

  GRADUS_HD int64_t id(int64_t i) const {
    return wide ? static_cast<const int64_t*>(ids)[i] : static_cast<const int32_t*>(ids)[i];
  }
  GRADUS_HD bool valid(int64_t id) const { return uint64_t(id) < uint64_t(total); }
  /// The table has that row.
  GRADUS_HD bool here(int64_t id) const { return uint64_t(id - first) < uint64_t(limit); }
  /// Where the id of row j stands.
  GRADUS_HD int64_t position(int64_t j) const {
    if (!shared) return j;
    int64_t row = quotient(j, inner);
    return row - quotient(row, count) * count;
  }
  /// The row of the table that has `id` where row j of the result looks.
  GRADUS_HD int64_t key(int64_t j, int64_t id) const {
    int64_t row = quotient(j, inner);
    return (quotient(row, count) * limit + id - first) * inner + j - row * inner;
  }
};

inline void check_range(const char* op, const Keys& k, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    if (!k.valid(k.id(i))) fail_index(op, i, k.id(i), k.total);
}

/// `length` values of Unit a row.
template <class Unit>
void cpu_take(const RowMap& m, const Keys& k, int64_t length, const void* x, void* y) {
  auto* from = static_cast<const Unit*>(x);
  auto* to = static_cast<Unit*>(y);
  parallel_for(m.rows(), kGrain / length + 1, [&](int64_t begin, int64_t end) {
    for (int64_t j = begin; j < end; ++j) {
      const int64_t id = k.id(k.position(j));
      const Unit* row = from + k.key(j, id) * length;
      if (!k.here(id))
        std::fill_n(to + j * length, length, Unit{});
      else if (length == 1)
        to[j] = *row;
      else
        memcpy(to + j * length, row, size_t(length) * sizeof(Unit));
    }
  });
}

/// The rows of the result, of one `outer`, by their place in the table: those of its row r are
/// order[begin[r]] … order[begin[r + 1] − 1], in order (a counting sort).
struct Runs {
  std::vector<int64_t> begin, order;

  void sort(const RowMap& m, const Keys& k, int64_t outer) {
    int64_t rows = m.count * m.inner, table_rows = m.limit * m.inner;
    begin.assign(size_t(table_rows) + 2, 0);
    order.resize(size_t(rows));
    auto each = [&](auto f) {
      for (int64_t j = outer * rows; j < (outer + 1) * rows; ++j) {
        const int64_t id = k.id(k.position(j));
        if (k.here(id)) f(size_t(k.key(j, id) - outer * table_rows), j);
      }
    };
    each([&](size_t key, int64_t) { ++begin[key + 2]; });
    for (size_t r = 2; r < begin.size(); ++r) begin[r] += begin[r - 1];
    each([&](size_t key, int64_t j) { order[size_t(begin[key + 1]++)] = j; });
  }
};

inline constexpr int64_t kColumns = 1024;  // summed at a time: they stay in the L1 cache

/// Row r of the table, which begins at `into`.
template <class T, class D>
void cpu_add_run(const Runs& runs, int64_t r, int64_t length, const T* dy, D* into, bool add) {
  using A = Compute<T>;
  A sum[kColumns];
  int64_t begin = runs.begin[size_t(r)], end = runs.begin[size_t(r) + 1];
  if (begin == end && add) return;
  for (int64_t c = 0; c < length; c += kColumns) {
    int64_t n = std::min(kColumns, length - c);
    D* to = into + r * length + c;
    for (int64_t j = 0; j < n; ++j) sum[j] = add ? A(to[j]) : A(0);
    for (int64_t i = begin; i < end; ++i) {
      const T* row = dy + runs.order[size_t(i)] * length + c;
      for (int64_t j = 0; j < n; ++j) sum[j] += A(row[j]);
    }
    for (int64_t j = 0; j < n; ++j) to[j] = D(sum[j]);
  }
}

/// Threads share the work, not the rows of the table: row r begins at begin[r] + r units of it.
template <class T, class D>
void cpu_add_runs(const Runs& runs, int64_t rows, int64_t length, const T* dy, D* into, bool add) {
  auto row_at = [&](int64_t work) {
    int64_t low = 0, high = rows;
    while (low < high) {
      int64_t r = (low + high) / 2;
      if (runs.begin[size_t(r)] + r < work)
        low = r + 1;
      else
        high = r;
    }
    return low;
  };
  int64_t all = rows + int64_t(runs.order.size());
  parallel_for(all, kGrain / (length + 1) + 1, [&](int64_t begin, int64_t end) {
    for (int64_t r = row_at(begin), last = row_at(end); r < last; ++r)
      cpu_add_run(runs, r, length, dy, into, add);
  });
}

template <class T, class D>
void cpu_add(const RowMap& m, const Keys& k, const T* dy, D* into, bool add) {
  int64_t table_rows = m.limit * m.inner, work = (table_rows + m.count * m.inner) * m.length;
  parallel_for(m.outer, kGrain / (work + 1) + 1, [&](int64_t begin, int64_t end) {
    Runs runs;
    for (int64_t o = begin; o < end; ++o) {
      runs.sort(m, k, o);
      cpu_add_runs(runs, table_rows, m.length, dy, into + o * table_rows * m.length, add);
    }
  });
}

}  // namespace gradus::detail
