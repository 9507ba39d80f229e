// Flash attention [Dao et al. 2022; Dao 2023]: attention whose T × T scores never leave the chip.
//
//   S = Q Kᵀ / √d,   P = softmax(S),   O = P V
//
// Online softmax. A block of queries walks over blocks of keys and keeps, per row, the running maximum
// m, the sum l = Σ e^{s − m} and the unnormalised output o = Σ e^{s − m} v. A new block with maximum m'
// changes what came before by the factor c = e^{m − max(m, m')}:
//
//   m ← max(m, m'),   l ← c l + Σ e^{s − m},   o ← c o + e^{S − m} V;      at the end O = o / l
//
// Saved for backward: O and one number a row, lse = m + log l, from which P = e^{S − lse} comes back
// without a second softmax. With δ_i = Σ_j P_ij dP_ij = dO_i · O_i:
//
//   dV = Pᵀ dO      dP = dO Vᵀ      dS = P ⊙ (dP − δ)      dQ = dS K / √d      dK = dSᵀ Q / √d
//
// Dropout replaces P by P̃ = P ⊙ m/(1 − p) where P meets V, and dP by dP ⊙ m/(1 − p); l sums what was there
// before, and δ is dO · O as without. Which are kept is found again, not stored (ops/flash_dropout.h).
//
// All exponentials are powers of two: e^{x} = 2^{x log₂e}, the factor folded into the scale.
//
// Sums over the positions t, the gradients of biases of q, k and v, are not three more passes over dQ, dK
// and dV where each query sees a key, no probability is dropped and no heads share keys:
//
//   Σ_j dV_j = Σ_i (Σ_j P_ij) dO_i = Σ_i dO_i        rows of P sum to 1
//   Σ_j dK_j = Σ_i (Σ_j dS_ij) Q_i / √d = 0          rows of dS to 0: one vector more in all keys moves all
//                                                    scores of a row alike, and softmax does not see it
//
// Two ways to compute it: mma.sync, which any GPU since compute capability 8.0 has and which does all that
// is asked (ops/flash_forward_mma.cu, ops/flash_backward_mma.cu), and wgmma on Hopper, two to three times
// as fast (ops/flash_forward_hopper.cu, ops/flash_backward_hopper.cu).
#include "ops/flash_attention.h"

#include "ops/flash_backward_hopper.h"
#include "ops/flash_forward_hopper.h"

namespace gradus {
namespace {

void check_inputs(const FlashInputs& in) {
  check(in.scale > 0, "flash attention: scale ", in.scale, "; needed is a positive one");
  if (!in.lengths) return;
  const Tensor& n = in.lengths;
  check(n.dtype() == DType::i32 && n.shape() == Shape{in.q.size(0)} && n.is_contiguous() &&
            n.device() == in.q.device(),
        "flash attention: lengths ", n.describe(), "; needed are i32 (", in.q.size(0), ") on ",
        in.q.device());
}

}  // namespace

bool flash_attention_reads(const Tensor& x) {
  bool aligned = uintptr_t(x.raw()) % 16 == 0;
  for (int d = 0; d + 1 < x.rank(); ++d) aligned = aligned && x.strides()[d] % 8 == 0;
  return aligned && x.strides()[-1] == 1;
}

bool flash_attention_fits(const Tensor& q, const Tensor& k, const Tensor& v) {
  bool type = q.dtype() == DType::bf16 || q.dtype() == DType::f16;
  bool size = q.size(-1) == 64 || q.size(-1) == 128;
  return q.device().is_cuda() && type && size && q.numel() > 0 && k.numel() > 0 &&
         flash_attention_reads(q) && flash_attention_reads(k) && flash_attention_reads(v) &&
         v.size(-1) == q.size(-1);
}

void flash_forward(const FlashInputs& in, const Tensor& o, const Tensor& lse) {
  check_inputs(in);
  bool hopper = flash_forward_hopper_fits(in, o);
  hopper ? flash_forward_hopper(in, o, lse) : flash_forward_mma(in, o, lse);
}

Tensor flash_backward(const FlashInputs& in, const Tensor& o, const Tensor& lse, const Tensor& d_o,
                      const FlashGradients& to, bool wants_sums) {
  check_inputs(in);
  if (flash_backward_hopper_fits(in, d_o))
    return flash_backward_hopper(in, o, lse, d_o, to, wants_sums);
  flash_backward_mma(in, o, lse, d_o, to);
  return {};
}

}  // namespace gradus
