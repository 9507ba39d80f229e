// Products with a gelu on the way to memory:
//
//   forward     H = X W₁ᵀ + b₁,   A = gelu(H)         X (rows, in), W₁ (inner, in)
//   backward    dH = dY W₂ ⊙ gelu'(H)                 dY (rows, out), W₂ (out, inner)
//               and Σ_rows dH, the gradient of b₁
//
// With the sigmoid σ(z) = 1 / (1 + e^{−z}), tanh z = 2 σ(2z) − 1, so that
//
//   gelu(x) = x s,   s = σ(2v),   v = √(2/π) (x + 0.044715 x³)
//   gelu'(x) = s + 2 x s (1 − s) v',   v' = √(2/π) (1 + 3 · 0.044715 x²)
//
// which costs one power and one reciprocal an element. A is made of H before rounding.
//
// cuBLASLt does the same in an epilogue, but its tensor cores wait meanwhile: 0.54 ms for 65536 × 3072 × 768
// where the plain product takes 0.40. Here two warpgroups take turns (ops/gelu_gemm_tiles.h).
#include "core/elementwise.h"
#include "ops/gelu_gemm.h"
#include "ops/gelu_gemm_results.h"

namespace gradus {

#if defined(__CUDACC__)

namespace gelu_tiles {
namespace {

#if defined(GRADUS_SM90A)

/// The tiles of a warpgroup: every other one of the block.
template <class T, class L, class Epilogue>
__device__ void compute(const L& at, const Problem& p, Epilogue epilogue) {
  const int group = threadIdx.x / 128, steps = (p.depth + kDepth - 1) / kDepth;
  Turn<L> turn;
  turn.advance(group * steps);
  if (group == 1) hand_turn_to(0);
  Place<L> tile(p, group);
  epilogue.begin(tile);
  for (int i = group; tile.valid; i += 2) {
    const Place<L> next(p, i + 2);
    float c[L::kBlocks][L::kColumns / 2];
    multiply_tile<T, Epilogue::kB>(at, p, turn, c);
    turn.advance(steps);  // the tile of the other warpgroup
    epilogue.finish(p, tile, next, c);
    tile = next;
  }
  wait_stores_but<0>();
}

/// All roles of a block.
template <class T, class L, class Epilogue>
__device__ void run(const L& at, const Problem& p, const CUtensorMap& a, const CUtensorMap& b,
                    Epilogue epilogue) {
  if (threadIdx.x == 0) init_barriers(at);
  hopper::meet_cluster();
  if (threadIdx.x / 128 == 2) {
    hopper::shrink_registers<24>();
    if (threadIdx.x % 128 == 0) send_slices<Epilogue::kB>(at, p, a, b);
  } else {
    hopper::grow_registers<240>();
    compute<T>(at, p, epilogue);
  }
  __syncwarp();
  hopper::meet_cluster();  // the other block may still write here, or arrive at a barrier
}

#endif  // GRADUS_SM90A

template <class T, class L>
__global__ void __cluster_dims__(kCluster, 1, 1) __launch_bounds__(L::kThreads, 1)
    gelu_forward_kernel(const __grid_constant__ CUtensorMap x,
                        const __grid_constant__ CUtensorMap w,
                        const __grid_constant__ CUtensorMap h,
                        const __grid_constant__ CUtensorMap a, const T* bias, const Problem p) {
#if defined(GRADUS_SM90A)
  extern __shared__ __align__(1024) unsigned char memory[];
  const L at{uint32_t(__cvta_generic_to_shared(memory))};
  run<T>(at, p, x, w, Forward<T, L>{at, h, a, bias});
#endif
}

template <class T, class L>
__global__ void __cluster_dims__(kCluster, 1, 1) __launch_bounds__(L::kThreads, 1)
    gelu_backward_kernel(const __grid_constant__ CUtensorMap dy,
                         const __grid_constant__ CUtensorMap w,
                         const __grid_constant__ CUtensorMap h,
                         const __grid_constant__ CUtensorMap dh, float* parts, const Problem p) {
#if defined(GRADUS_SM90A)
  extern __shared__ __align__(1024) unsigned char memory[];
  const L at{uint32_t(__cvta_generic_to_shared(memory))};
  run<T>(at, p, dy, w, Backward<T, L>{at, h, dh, parts});
#endif
}

/// A matrix as the copy engine sees it, in panels of `rows` rows.
CUtensorMap map_of(const Tensor& x, int rows) {
  const int64_t m = x.size(0), n = x.size(1), ld = m > 1 ? x.strides()[0] : n;
  return hopper::tensor_map(x.alias({1, 1, m, n}, {m * ld, m * ld, ld, 1}, x.offset()), rows);
}

template <class L>
Problem problem(int64_t rows, int64_t columns, int64_t depth) {
  const int pairs = int(columns) / (kCluster * L::kColumns);
  return {int(rows), int(columns), int(depth), pairs,
          int((rows + L::kRows - 1) / L::kRows) * pairs};
}

template <class L, class Kernel, class... Arguments>
void launch(Kernel* kernel, Device device, const Problem& p, const Arguments&... arguments) {
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, L::kBytes),
        "gelu product: asking for shared memory");
  const int clusters = std::min(p.total, cuda::multiprocessors(device) / kCluster);
  kernel<<<unsigned(clusters * kCluster), L::kThreads, L::kBytes, cuda::stream(device)>>>(
      arguments..., p);
  cuda::check_launch("product with gelu");
}

// Of two tiles of one size the wider one reads less of shared memory, which is what limits the products:
// a row of A meets more columns. (Per 16-deep slice 4 + 2 · 6 KB, not 6 + 3 · 4.)
using Wide = Layout<128, 192>;
using Tall = Layout<192, 128>;
using Square = Layout<128, 128>;  // whose accumulators leave registers for a pipeline of H and dH

template <class L>
bool divides(int64_t columns) {
  return columns % (kCluster * L::kColumns) == 0;
}

template <class T, class L>
void forward(const Tensor& h, const Tensor& a, const Tensor& X, const Tensor& w1,
             const Tensor& b1) {
  launch<L>(gelu_forward_kernel<T, L>, X.device(), problem<L>(X.size(0), h.size(1), X.size(1)),
            map_of(X, L::kRows / kCluster), map_of(w1, L::kColumns), map_of(h, kUnitRows),
            map_of(a, kUnitRows), b1 ? static_cast<const T*>(b1.raw()) : nullptr);
}

template <class T, class L>
Tensor backward(const Tensor& dh, const Tensor& dY, const Tensor& w2, const Tensor& h,
                bool wants_sums) {
  const Problem p = problem<L>(dY.size(0), dh.size(1), dY.size(1));
  Tensor parts{};  // a row for each of the four warps of a row of tiles
  if (wants_sums) parts = empty({p.total / p.pairs * 4, 1, dh.size(1)}, DType::f32, dY.device());
  launch<L>(gelu_backward_kernel<T, L>, dY.device(), p, map_of(dY, L::kRows / kCluster),
            map_of(w2, kDepth), map_of(h, kUnitRows), map_of(dh, kUnitRows),
            parts ? parts.data<float>() : nullptr);
  return parts;
}

}  // namespace
}  // namespace gelu_tiles

static bool fits(const Tensor& rows, const Tensor& weight, int64_t inner) {
  auto moves = [](const Tensor& x) {  // by the copy engine
    return x.is_contiguous() && x.numel() > 0 && aligned_to(16, x.raw()) && x.size(1) % 8 == 0;
  };
  return rows.device().is_cuda() && size_of(rows.dtype()) == 2 && rows.size(0) < (1 << 30) &&
         gelu_tiles::divides<gelu_tiles::Tall>(inner) && moves(rows) && moves(weight) &&
         hopper::is_hopper(rows.device());
}

bool gelu_gemm_forward_fits(const Tensor& X, const Tensor& w1) { return fits(X, w1, w1.size(0)); }

// Beside cuBLASLt, which needs the sum of the columns of dH apart: as fast at 65,536 rows of 3072 (677 and
// 574 + 100 µs), faster at 4,096 (46 and 50 + 10), and at 32,768 of 4096 (474 and 710 + 73).
bool gelu_gemm_backward_fits(const Tensor& dY, const Tensor& w2) {
  return fits(dY, w2, w2.size(1));
}

void gelu_gemm_forward(const Tensor& h, const Tensor& a, const Tensor& X, const Tensor& w1,
                       const Tensor& b1) {
  using namespace gelu_tiles;
  auto run = [&]<class T>() {
    divides<Wide>(h.size(1)) ? forward<T, Wide>(h, a, X, w1, b1)
                             : forward<T, Tall>(h, a, X, w1, b1);
  };
  X.dtype() == DType::bf16 ? run.operator()<bf16>() : run.operator()<f16>();
}

Tensor gelu_gemm_backward(const Tensor& dh, const Tensor& dY, const Tensor& w2, const Tensor& h,
                          bool wants_sums) {
  using namespace gelu_tiles;
  return dY.dtype() == DType::bf16 ? backward<bf16, Square>(dh, dY, w2, h, wants_sums)
                                   : backward<f16, Square>(dh, dY, w2, h, wants_sums);
}

#else

bool gelu_gemm_forward_fits(const Tensor&, const Tensor&) { return false; }
// Beside cuBLASLt, which needs the sum of the columns of dH apart: as fast at 65,536 rows of 3072 (677 and
// 574 + 100 µs), faster at 4,096 (46 and 50 + 10), and at 32,768 of 4096 (474 and 710 + 73).
bool gelu_gemm_backward_fits(const Tensor&, const Tensor&) { return false; }
void gelu_gemm_forward(const Tensor&, const Tensor&, const Tensor& X, const Tensor&,
                       const Tensor&) {
  fail("a product with gelu needs a Hopper GPU, got ", X.describe());
}
Tensor gelu_gemm_backward(const Tensor&, const Tensor& dY, const Tensor&, const Tensor&, bool) {
  fail("a product with gelu needs a Hopper GPU, got ", dY.describe());
}

#endif

}  // namespace gradus
