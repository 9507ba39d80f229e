#include "core/random.h"

#include <algorithm>

#include "core/check.h"

namespace gradus {
namespace {

constexpr int64_t kPiece = 1024;  // elements in work at a time: their words stay in the first cache

// Blocks index … index + n − 1. No branch and no dependence between blocks: the compiler runs
// eight or sixteen of them side by side.
void fill_blocks(Philox stream, uint64_t index, uint32_t* __restrict out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    RandomBlock b = stream.block(index + i);
    out[4 * i] = b.x;
    out[4 * i + 1] = b.y;
    out[4 * i + 2] = b.z;
    out[4 * i + 3] = b.w;
  }
}

// Calls use(element, i, count) for pieces of elements first … first + n − 1 that begin at multiples
// of 4 except at the start; out[i] is the piece's first.
template <class Use>
void in_pieces(uint64_t first, int64_t n, Use use) {
  for (int64_t i = 0; i < n;) {
    int64_t count = std::min(n - i, kPiece - int64_t((first + i) % 4));
    use(first + i, i, count);
    i += count;
  }
}

// The words of one piece, in whole blocks: the first element's word is begin[0].
struct Words {
  int64_t size;
  const uint32_t* begin;
  uint32_t data[kPiece];

  Words(const Philox& stream, uint64_t first, int64_t count, uint64_t block = 0)
      : size(int64_t(first % 4 + count + 3) / 4 * 4), begin(data + first % 4) {
    fill_blocks(stream, block + first / 4, data, size / 4);
  }
};

template <class T>
void fill_normal_as(const Philox& stream, uint64_t first, T* out, int64_t n) {
  in_pieces(first, n, [&](uint64_t element, int64_t i, int64_t count) {
    Words words(stream, element, count);
    T normals[kPiece];
    for (int64_t k = 0; k < words.size / 2; ++k) {
      NormalPair pair = box_muller(words.data[2 * k], words.data[2 * k + 1]);
      normals[2 * k] = T(pair.even);
      normals[2 * k + 1] = T(pair.odd);
    }
    std::copy_n(normals + element % 4, count, out + i);
  });
}

}  // namespace

uint64_t drop_threshold(double p) {
  check(p >= 0 && p <= 1, "a probability is needed, 0 ≤ p ≤ 1, got p = ", p);
  return uint64_t(p * 0x1p32 + 0.5);
}

void fill_words(const Philox& stream, uint64_t first, uint32_t* out, int64_t n) {
  in_pieces(first, n, [&](uint64_t element, int64_t i, int64_t count) {
    std::copy_n(Words(stream, element, count).begin, count, out + i);
  });
}

void fill_uniform(const Philox& stream, uint64_t first, float* out, int64_t n) {
  in_pieces(first, n, [&](uint64_t element, int64_t i, int64_t count) {
    Words words(stream, element, count);
    for (int64_t k = 0; k < count; ++k) out[i + k] = uniform_float(words.begin[k]);
  });
}

void fill_uniform(const Philox& stream, uint64_t first, double* out, int64_t n) {
  in_pieces(first, n, [&](uint64_t element, int64_t i, int64_t count) {
    Words high(stream, element, count), low(stream, element, count, kLowBits);
    for (int64_t k = 0; k < count; ++k) out[i + k] = uniform_double(high.begin[k], low.begin[k]);
  });
}

void fill_normal(const Philox& stream, uint64_t first, float* out, int64_t n) {
  fill_normal_as(stream, first, out, n);
}

void fill_normal(const Philox& stream, uint64_t first, double* out, int64_t n) {
  fill_normal_as(stream, first, out, n);
}

}  // namespace gradus
