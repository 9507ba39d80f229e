#pragma once
// Attention without storing the scores, on a GPU: see flash_attention.cu for the derivation.
#include "autograd/tensor.h"

namespace gradus {

struct FlashOptions {
  bool causal = false;  // query i sees keys j ≤ i + Tk − Tq
  double scale = 1;
};

/// Whether the fast kernels take these operands: bf16 or f16 on a GPU, head size 64 or 128, rows of d
/// contiguous and 16-byte aligned.
bool flash_attention_fits(const Tensor& q, const Tensor& k, const Tensor& v);

/// q (B, H, Tq, d), k, v (B, Hkv, Tk, d) of any strides → o (B, H, Tq, d), which lies in memory as
/// (B, Tq, H, d), and lse (B, H, Tq) f32, the log-sum-exp of each row of scores (−∞: no key visible).
struct FlashForward {
  Tensor o, lse;
};
FlashForward flash_forward(const Tensor& q, const Tensor& k, const Tensor& v, FlashOptions options);

/// Gradients in the shapes of q, k, v, each lying in memory as (B, T, H, d). Equal calls give equal bits.
struct FlashBackward {
  Tensor dq, dk, dv;
};
FlashBackward flash_backward(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& o,
                             const Tensor& lse, const Tensor& d_o, FlashOptions options);

}  // namespace gradus
