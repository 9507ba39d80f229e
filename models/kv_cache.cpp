#include "models/kv_cache.h"

#include "autograd/node.h"

namespace gradus {

KvCache::KvCache(const GptConfig& c, int64_t batch, int64_t capacity, DType dtype, Device device) {
  Shape shape{batch, c.key_value_heads(), capacity, c.head_size()};
  for (int64_t layer = 0; layer < c.layers; ++layer) {
    keys_.push_back(zeros(shape, dtype, device));
    values_.push_back(zeros(shape, dtype, device));
  }
}

std::pair<Tensor, Tensor> KvCache::append(int64_t layer, const Tensor& k, const Tensor& v) {
  NoGrad guard;
  int64_t end = length_ + k.size(2);
  check(end <= capacity(), "a cache of ", capacity(), " tokens that holds ", length_,
        " has no room for ", k.size(2), " more");
  const Tensor &keys = keys_[size_t(layer)], &values = values_[size_t(layer)];
  copy_(slice(keys, 2, length_, end), k);
  copy_(slice(values, 2, length_, end), v);
  return {slice(keys, 2, 0, end), slice(values, 2, 0, end)};
}

void KvCache::truncate(int64_t length) {
  check(length >= 0 && length <= length_, "a cache of ", length_, " tokens cannot be cut to ",
        length);
  length_ = length;
}

}  // namespace gradus
