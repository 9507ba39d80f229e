#pragma once
// Which scores dropout keeps, in the registers where flash attention has them.
//
// A score is kept if its word of the stream, word (r Tq + i) Tk + j, reaches the threshold: what the explicit
// path does, so that both drop the same scores. r is b H + h, or where the heads are some of all heads, or the
// samples some of all, which of those it is (core/index_map.h). One run of the cipher yields four words, those of
// four neighbouring keys. In a 16×8 tile of scores (ops/mma.h) two neighbouring lanes hold them: each lane
// runs the cipher for one of its two rows and sends two words to the other. In the transposed tiles of the
// backward (rows are keys) four lanes hold them, and send each other what a transposition of 4×4 words sends.
// That needs keys at multiples of four; where Tk is none, every score runs the cipher for itself.
#if defined(__CUDACC__)
#include "core/index_map.h"
#include "core/random.h"

namespace gradus {

struct FlashDropout {
  Philox stream;
  uint32_t threshold;
  int tq, tk;
  uint64_t first_head;             // of head_rows: an IndexMap
  uint32_t head_run, head_stride;  // in 32 bits, and never 0

  FlashDropout() = default;
  FlashDropout(const Philox& s, uint64_t least, int queries, int keys, const IndexMap& head_rows)
      : stream(s),
        threshold(uint32_t(least < UINT32_MAX ? least : UINT32_MAX)),
        tq(queries),
        tk(keys),
        first_head(head_rows.first),
        head_run(head_rows.run ? narrow(head_rows.run) : UINT32_MAX),
        head_stride(narrow(head_rows.stride)) {}

  /// The number of the score of query i and key j.
  __device__ uint64_t index(int head, int i, int j) const {
    uint64_t row = first_head + uint64_t(head / head_run) * head_stride + head % head_run;
    return (row * uint64_t(tq) + uint64_t(i)) * uint64_t(tk) + uint64_t(j);
  }
  __device__ uint32_t keep(uint32_t word, int bit) const {
    return word >= threshold ? 1u << bit : 0;
  }

  /// Bit 4 n + e: element e of the n-th of eight tiles side by side, which starts with query `row` and
  /// key `column + 8 n` of this lane (rows are queries; elements 2, 3 are eight further).
  __device__ uint32_t kept(int head, int row, int column) const {
    if (threshold == 0) return ~0u;
    uint32_t bits = 0;
    bool odd = threadIdx.x & 1;
    for (int n = 0; n < 8; ++n, column += 8) {
      if (tk % 4 == 0) {
        RandomBlock b = stream.block(index(head, odd ? row + 8 : row, column) / 4);
        uint32_t own[2] = {odd ? b.z : b.x, odd ? b.w : b.y}, other[2];
        other[0] = __shfl_xor_sync(~0u, odd ? b.x : b.z, 1);
        other[1] = __shfl_xor_sync(~0u, odd ? b.y : b.w, 1);
        for (int e = 0; e < 2; ++e)
          bits |= keep(odd ? other[e] : own[e], 4 * n + e) |
                  keep(odd ? own[e] : other[e], 4 * n + 2 + e);
      } else {
        for (int e = 0; e < 4; ++e)
          bits |= keep(stream.word(index(head, row + e / 2 * 8, column + e % 2)), 4 * n + e);
      }
    }
    return bits;
  }

  /// The same where rows are keys and columns queries.
  __device__ uint32_t kept_transposed(int head, int row, int column) const {
    if (threshold == 0) return ~0u;
    uint32_t bits = 0;
    int mine =
        threadIdx.x / 4 % 4;  // of the four keys; and the element whose words this lane draws
    for (int n = 0; n < 8; ++n, column += 8) {
      if (tk % 4 == 0) {
        RandomBlock b = stream.block(index(head, column + mine % 2, row + mine / 2 * 8) / 4);
        exchange(b.x, b.y, mine & 1, 4);
        exchange(b.z, b.w, mine & 1, 4);
        exchange(b.x, b.z, mine & 2, 8);
        exchange(b.y, b.w, mine & 2, 8);
        bits |=
            keep(b.x, 4 * n) | keep(b.y, 4 * n + 1) | keep(b.z, 4 * n + 2) | keep(b.w, 4 * n + 3);
      } else {
        for (int e = 0; e < 4; ++e)
          bits |= keep(stream.word(index(head, column + e % 2, row + e / 2 * 8)), 4 * n + e);
      }
    }
    return bits;
  }

 private:
  static uint32_t narrow(int64_t heads) {
    check(heads < UINT32_MAX, "flash attention: ", heads, " heads; needed are fewer than 2³²");
    return uint32_t(heads);
  }
  /// The lower of two lanes, `distance` apart, gives its `second` for the upper one's `first`.
  __device__ static void exchange(uint32_t& first, uint32_t& second, bool upper, int distance) {
    uint32_t got = __shfl_xor_sync(~0u, upper ? first : second, distance);
    (upper ? first : second) = got;
  }
};

}  // namespace gradus
#endif
