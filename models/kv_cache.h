#pragma once
// Keys and values of the tokens that a model has read: to go on by one token, only that token's query,
// key and value are computed.
//
//   keys of a layer (B, Hkv, capacity, d)     ├─ length ──┤◀─ new ─▶
//                                             │ k k k k k │ k k     │ · · · │
#include <utility>

#include "models/config.h"
#include "ops/ops.h"

namespace gradus {

class KvCache {
 public:
  /// Room for `capacity` tokens of each of `batch` sequences.
  KvCache(const GptConfig& config, int64_t batch, int64_t capacity, DType dtype = DType::f32,
          Device device = kCpu);

  int64_t batch() const { return keys_[0].size(0); }
  int64_t capacity() const { return keys_[0].size(2); }
  int64_t length() const { return length_; }

  /// Writes k and v (B, Hkv, T, d) of the next T tokens in one layer, and returns those of all tokens
  /// so far. Never recorded.
  std::pair<Tensor, Tensor> append(int64_t layer, const Tensor& k, const Tensor& v);
  /// Counts T more tokens, once all layers have them.
  void advance(int64_t T) { length_ += T; }
  /// Forgets all but the first `length` tokens.
  void truncate(int64_t length);

 private:
  std::vector<Tensor> keys_, values_;
  int64_t length_ = 0;
};

}  // namespace gradus
