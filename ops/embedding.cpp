// Embedding: y_t = W[id_t], a row of the table W (V, C) for each id. Written with one-hot rows E (T, V),
// y = E W, so that
//
//   dW = Eᵀ dy:   dW[v] = Σ_{t: id_t = v} dy_t
//
// which ops/lookup.h sums without E.
#include "autograd/gradcheck.h"
#include "ops/lookup.h"

namespace gradus {

Tensor embedding(const Tensor& table, const Tensor& ids) {
  return embedding_part(table, ids, 0, 0);
}

Tensor embedding_part(const Tensor& table, const Tensor& ids, int64_t first, int64_t total) {
  check_ids(kEmbedding, table, ids);
  check(table.rank() == 2, "embedding: the table must be (V, C), got ", table.describe());
  RowMap map{.table = table.shape(), .result = ids.shape()};
  map.result.push_back(table.shape()[1]);
  map.limit = table.shape()[0];
  map.count = ids.numel();
  map.length = table.shape()[1];
  map.first = first, map.total = total;
  return apply(TakeRows<kEmbedding>{.map = map}, table, ids);
}

static const Gradcheck checks[] = {
    {"embedding",
     [](Sampler& s) {
       return embedding(s.normal({5, 3}), s.ids({2, 4}, 5));
     },
     true},
    {"embedding",
     [](Sampler& s) {
       return embedding(s.normal({3, 2}), s.ids({7}, 3, DType::i32));
     },
     true},
    {"embedding",
     [](Sampler& s) {
       return embedding(s.normal({3, 2}), s.ids({0}, 3));
     }},
    {"embedding",  // rows 2, 3 and 4 of 7
     [](Sampler& s) {
       return embedding_part(s.normal({3, 2}), s.ids({2, 9}, 7), 2, 7);
     },
     true},
};

}  // namespace gradus
