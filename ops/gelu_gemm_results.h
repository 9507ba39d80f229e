#pragma once
// The work on the results of products with a gelu (ops/gelu_gemm_hopper.cu): what a warpgroup does with
// the accumulators of its tile while the other warpgroup multiplies.
//
// A warp has 16 rows of each row block of its tile. It moves them in units of 16 rows × 64 columns, 2 KB,
// through slots of its own in shared memory, where the copy engine takes or leaves them:
//
//   forward     registers ─▶ two slots, H and A ─▶ memory
//   backward    memory ─▶ slot, H ─▶ registers ─▶ another slot, dH ─▶ memory
#include "ops/exp2.h"
#include "ops/gelu_gemm_tiles.h"

#if defined(__CUDACC__)
#include "ops/mma.h"

namespace gradus::gelu_tiles {

#if defined(GRADUS_SM90A)

__device__ inline float reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

constexpr float kSlope = 1.5957691216057308f;  // 2 √(2/π)
constexpr float kCubic = 0.044715f, kLog2e = 1.4426950408889634f;

/// s of x, given x².
__device__ inline float sigmoid(float x, float square) {
  const float z = x * (-kSlope * kLog2e - kSlope * kLog2e * kCubic * square);
  return reciprocal(1 + exp2_fast(z));
}
__device__ inline float gelu_of(float x) { return x * sigmoid(x, x * x); }
/// Beyond ±16, s is 0 or 1 and the second term 0: without the bound it would be 0 · ∞ far out.
__device__ inline float gelu_slope(float x) {
  const float square = fminf(x * x, 256), s = sigmoid(x, square);
  return s + x * s * (1 - s) * (kSlope + 3 * kCubic * kSlope * square);
}

template <class T>
__device__ float2 unpack(uint32_t pair) {
  return {float(bits_of<T>(uint16_t(pair))), float(bits_of<T>(uint16_t(pair >> 16)))};
}

/// Where in a unit this lane stores or loads chunks 2 j and 2 j + 1 of its rows.
__device__ inline uint32_t chunk_of_lane(uint32_t unit, int j) {
  const int lane = threadIdx.x % 32, row = lane % 16, chunk = 2 * j + lane / 16;
  return unit + row * 128 + ((chunk ^ row % 8) << 4);
}

/// Waits until what copies of this thread, all but the last kLater batches, read has been read.
template <int kLater>
__device__ void wait_stores_but() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kLater) : "memory");
}

/// The corner of unit u of this warp in a tile.
template <class L>
__device__ hopper::Corner corner_of(const Place<L>& tile, int u) {
  const int warp = threadIdx.x % 128 / 32;
  return {tile.column + u / L::kBlocks * 64, tile.row + u % L::kBlocks * 64 + warp * kUnitRows, 0,
          0, 0};
}

template <class T, class L>
struct Forward {
  static constexpr hopper::Side kB = hopper::kAlong;
  const L& at;
  const CUtensorMap &h, &a;
  const T* bias;

  __device__ void begin(const Place<L>&) {}

  __device__ void finish(const Problem&, const Place<L>& tile, const Place<L>&,
                         float (&c)[L::kBlocks][L::kColumns / 2]) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int panel = 0; panel < L::kPanels; ++panel) {
      float2 biases[8] = {};
      const T* from = bias + tile.column + panel * 64 + lane % 4 * 2;
#pragma unroll
      for (int n = 0; n < 8; ++n)
        if (bias) biases[n] = {float(from[8 * n]), float(from[8 * n + 1])};
#pragma unroll
      for (int block = 0; block < L::kBlocks; ++block) {
        const int u = panel * L::kBlocks + block;
        const uint32_t to_h = at.slot(warp, u % 2 * 2), to_a = at.slot(warp, u % 2 * 2 + 1);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          uint32_t h_words[4], a_words[4];
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const float* v = c[block] + (panel * 8 + 2 * j) * 4 + 2 * i;
            const float2 b = biases[2 * j + i / 2];
            const float low = v[0] + b.x, high = v[1] + b.y;
            h_words[i] = mma::pack<T>(low, high);
            a_words[i] = mma::pack<T>(gelu_of(low), gelu_of(high));
          }
          if (j == 0) {
            if (u > 0) send(tile, u - 1);
            if (lane == 0) wait_stores_but<1>();  // unit u − 2 has left these slots
            __syncwarp();
          }
          hopper::store_tiles(chunk_of_lane(to_h, j), h_words[0], h_words[1], h_words[2],
                              h_words[3]);
          hopper::store_tiles(chunk_of_lane(to_a, j), a_words[0], a_words[1], a_words[2],
                              a_words[3]);
        }
      }
    }
    send(tile, L::kUnits - 1);
  }

  /// Has the copy engine take unit u.
  __device__ void send(const Place<L>& tile, int u) {
    const int warp = threadIdx.x / 32;
    hopper::fence_async();
    __syncwarp();
    if (threadIdx.x % 32 != 0) return;
    hopper::store(h, at.slot(warp, u % 2 * 2), corner_of(tile, u));
    hopper::store(a, at.slot(warp, u % 2 * 2 + 1), corner_of(tile, u));
    hopper::commit_stores();
  }
};

template <class T, class L>
struct Backward {
  static constexpr hopper::Side kB = hopper::kAcross;
  const L& at;
  const CUtensorMap &h, &dh;
  float* parts;   // (4 a row of tiles, columns), or null
  int first = 0;  // how many units this warp did in earlier tiles

  // Slots 0 and 1 are for units of H, 2 and 3 for units of dH.
  __device__ static int slot_in(int number) { return number % 2; }
  __device__ static int slot_out(int number) { return 2 + number % 2; }

  /// Lane 0: has unit u of a tile brought, or one of the next tile.
  __device__ void fetch(const Place<L>& tile, const Place<L>& next, int u) {
    const int warp = threadIdx.x / 32, slot = slot_in(first + u);
    const Place<L>& from = u < L::kUnits ? tile : next;
    if (!from.valid) return;
    hopper::expect(at.arrived(warp, slot), kUnit);
    hopper::load(at.slot(warp, slot), h, at.arrived(warp, slot), corner_of(from, u % L::kUnits));
  }
  __device__ void begin(const Place<L>& tile) {
    if (threadIdx.x % 32 == 0) fetch(tile, tile, 0), fetch(tile, tile, 1);
  }
  /// H of unit u.
  __device__ void take(int u, uint32_t (&words)[4][4]) {
    const int warp = threadIdx.x / 32, number = first + u, slot = slot_in(number);
    hopper::wait(at.arrived(warp, slot), number / 2 % 2);
    __syncwarp();
#pragma unroll
    for (int j = 0; j < 4; ++j) mma::load(words[j], chunk_of_lane(at.slot(warp, slot), j));
  }
  /// After what was read and stored so far: has the copy engine take dH of unit `done` and bring H of
  /// unit `ahead`; −1 for none.
  __device__ void exchange(const Place<L>& tile, const Place<L>& next, int done, int ahead) {
    hopper::fence_async();
    __syncwarp();
    if (threadIdx.x % 32 != 0) return;
    if (done >= 0) {
      hopper::store(dh, at.slot(threadIdx.x / 32, slot_out(first + done)), corner_of(tile, done));
      hopper::commit_stores();
    }
    if (ahead >= 0) fetch(tile, next, ahead);
  }

  /// Unit u is computed while unit u + 1 is read and unit u − 1 leaves: under the load of the products
  /// each step through shared memory takes hundreds of clocks.
  __device__ void finish(const Problem& p, const Place<L>& tile, const Place<L>& next,
                         float (&c)[L::kBlocks][L::kColumns / 2]) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    uint32_t words[2][4][4];
    float sums[L::kPanels][16] = {};
    take(0, words[0]);
    exchange(tile, next, -1, 2);
#pragma unroll
    for (int u = 0; u < L::kUnits; ++u) {
      const int panel = u / L::kBlocks, block = u % L::kBlocks;
      const bool last = u + 1 == L::kUnits;
      if (!last) take(u + 1, words[(u + 1) % 2]);
#pragma unroll
      for (int j = 0; j < 4; ++j)
        differentiate(words[u % 2][j], c[block] + (panel * 8 + 2 * j) * 4, sums[panel] + 4 * j);
      exchange(tile, next, u - 1, last ? -1 : u + 3);
      if (lane == 0) wait_stores_but<1>();  // unit u − 2 has left the slot
      __syncwarp();
      const uint32_t to = at.slot(warp, slot_out(first + u));
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const uint32_t(&w)[4] = words[u % 2][j];
        hopper::store_tiles(chunk_of_lane(to, j), w[0], w[1], w[2], w[3]);
      }
    }
#pragma unroll
    for (int panel = 0; panel < L::kPanels; ++panel) share<8>(sums[panel]);
    exchange(tile, next, L::kUnits - 1, -1);
    if (parts) write_sums(p, tile, sums);
    first += L::kUnits;
  }

  /// dH of 16 rows × 16 columns, in place of H; the product is in c.
  __device__ void differentiate(uint32_t (&words)[4], const float* c, float* sums) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 x = unpack<T>(words[i]);
      const float low = c[2 * i] * gelu_slope(x.x), high = c[2 * i + 1] * gelu_slope(x.y);
      sums[i / 2 * 2] += low, sums[i / 2 * 2 + 1] += high;
      words[i] = mma::pack<T>(low, high);
    }
  }

  /// The sums over a warp's rows of a panel: eight lanes have parts of the same 16 columns. A lane keeps
  /// half of its first 2 kHalf columns, and gets another lane's part of those for its own part of the
  /// rest; and so on until two are left.
  template <int kHalf>
  __device__ void share(float (&sums)[16]) {
    const bool upper = threadIdx.x & 2 * kHalf;
#pragma unroll
    for (int i = 0; i < kHalf; ++i) {
      const float low = sums[i], high = sums[i + kHalf];
      sums[i] = (upper ? high : low) + __shfl_xor_sync(~0u, upper ? low : high, 2 * kHalf);
    }
    if constexpr (kHalf > 2) share<kHalf / 2>(sums);
  }
  /// At the end of the tile: the fence of a unit would wait until what was written before has arrived.
  __device__ void write_sums(const Problem& p, const Place<L>& tile,
                             const float (&sums)[L::kPanels][16]) {
    const int warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32;
    const int n = lane / 16 * 4 + lane / 8 % 2 * 2 + lane / 4 % 2;  // of eight columns
    float* part = parts + int64_t(tile.row / L::kRows * 4 + warp) * p.columns;
#pragma unroll
    for (int panel = 0; panel < L::kPanels; ++panel)
      *reinterpret_cast<float2*>(part + tile.column + panel * 64 + 8 * n + lane % 4 * 2) = {
          sums[panel][0], sums[panel][1]};
  }
};

#endif  // GRADUS_SM90A

}  // namespace gradus::gelu_tiles
#endif
