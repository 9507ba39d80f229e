#pragma once
// The work of a training step by kind, and the least time that each kind can take.
//
//   floor = FLOPs / the rate of a large matrix product,   or   bytes / the rate of a large copy
//
// Both rates were measured on the device in question, not taken from a data sheet. With u = s B T C the
// bytes of one activation (s bytes an element), L layers, N elements in matrices, P parameters:
//
//   GEMM                6 N FLOPs a token
//   attention           forward 2 L T C FLOPs a token, causal: half of 4 L T C.  backward 5 L T C (five
//                       products for two: the scores are computed again), and dO · O, which reads 2u
//                       bytes a layer
//   norm                with the residual sum, two a layer: forward 4u (x and the branch in, the sum and
//                       the norm out), backward 4u; the last one's backward 3u
//   cross-entropy       logits read once and written once, in place: 2 s B T V
//   embedding           forward with the first norm 3u, backward 3u
//   SwiGLU, RoPE        (3 + 5) u F/C a layer;  4 (1 + KV heads / heads) u a layer, in place
//   optimizer           norm 4 P, then 28 P (gradient, master, both moments in f32 read, the last three
//                       written); f16: 4 P and 30 P (its parameters are no part of the masters)
//
// Biases, GELU and gaps between kernels have no floor: what is launched well hides them. Nor has
// communication: what is counted is the time in which the stream waits for other ranks; what goes on beside it
// (parallel/pending.h) is hidden already.
#include <array>
#include <optional>
#include <string_view>

#include "core/dtype.h"
#include "core/scope.h"
#include "train/flops.h"

namespace gradus::train {

enum class KernelClass {
  gemm,
  attention_forward,
  attention_backward,
  norm,
  cross_entropy,
  embedding,
  gate_and_rope,
  elementwise,
  optimizer,
  communication,
  other,
  gaps,
};
inline constexpr int kKernelClasses = int(KernelClass::gaps) + 1;

const char* name_of(KernelClass c);

/// The class of an op by its name. A scope "optimizer" is the optimizer, and what a scope "step" does
/// outside of all ops is gaps.
KernelClass class_of(const Activity& activity);

/// What a step computes.
struct StepSize {
  ModelSize model;
  int64_t rows = 0;        // windows a step
  int64_t parameters = 0;  // all
  DType dtype = DType::bf16;
  int64_t tokens() const { return rows * model.context; }
};

/// What a device reached at best.
struct Ceiling {
  double flops;  // a second, in matrix products
  double bytes;  // a second, read and written, in copies
};
/// Absent for a device that was not measured.
std::optional<Ceiling> measured_ceiling(std::string_view device_name, DType dtype);

/// Milliseconds a step.
using ClassTimes = std::array<double, kKernelClasses>;
ClassTimes floor_of(const StepSize& step, const Ceiling& ceiling);

}  // namespace gradus::train
