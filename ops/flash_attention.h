#pragma once
// Attention without storing the scores, on a GPU: see flash_attention.cu for the derivation.
#include "autograd/tensor.h"
#include "core/index_map.h"
#include "core/random.h"

namespace gradus {

/// G query heads share each of the Hkv heads of keys and values. Strides are arbitrary but for the
/// last, which is 1: queries, keys and values may lie in one packed tensor, and so may gradients.
struct FlashInputs {
  Tensor q;             // (B, Hkv, G, Tq, d)
  Tensor k, v;          // (B, Hkv, Tk, d)
  bool causal = false;  // query i sees keys j ≤ i + Tk − Tq
  double scale = 1;
  Tensor lengths{};  // i32 (B), or none: the keys of sequence b are its first lengths[b], 0 … Tk
  Philox stream{};   // dropout: probability (head_rows(b H + h) Tq + i) Tk + j is kept if its word
  IndexMap head_rows{};  // of the stream reaches the threshold, and then multiplied with keep_scale
  uint64_t threshold = 0;
  double keep_scale = 1;
};

/// Whether the rows of x are contiguous and 16-byte aligned: what all operands here must be.
bool flash_attention_reads(const Tensor& x);

/// Whether the fast kernels take these operands: bf16 or f16 on a GPU, head size 64 or 128,
/// readable as above.
bool flash_attention_fits(const Tensor& q, const Tensor& k, const Tensor& v);

/// Writes o, in the shape of q, and lse (B, Hkv·G, Tq) f32: the log-sum-exp of each row of scores, −∞
/// where no key is visible.
void flash_forward(const FlashInputs& in, const Tensor& o, const Tensor& lse);

/// The same without the instructions of Hopper.
void flash_forward_mma(const FlashInputs& in, const Tensor& o, const Tensor& lse);

/// Where the gradients go, in the shapes of q, k, v.
struct FlashGradients {
  Tensor dq, dk, dv;
};
/// o and lse as written by flash_forward; d_o in the shape of q. Equal calls give equal bits. Where sums over
/// positions are wanted and can be had in passing (on Hopper, G = 1, Tq = Tk) it returns f32 (parts, Hkv, 3, d):
/// over all parts they are Σ_b Σ_t of dq, dk, dv. Else it returns an undefined tensor.
Tensor flash_backward(const FlashInputs& in, const Tensor& o, const Tensor& lse, const Tensor& d_o,
                      const FlashGradients& to, bool wants_sums = false);

/// The same without the instructions of Hopper.
void flash_backward_mma(const FlashInputs& in, const Tensor& o, const Tensor& lse,
                        const Tensor& d_o, const FlashGradients& to);

}  // namespace gradus
