#include "train/kernel_class.h"

#include <numeric>

namespace gradus::train {
namespace {

using enum KernelClass;

struct Rule {
  std::string_view part;  // of an op's name
  KernelClass forward, backward;
};

// The first that fits. Names of fused ops consist of the names of their parts, the most expensive of
// which decides.
constexpr Rule kRules[] = {
    {"all_reduce", communication, communication},
    {"all_gather", communication, communication},
    {"reduce_scatter", communication, communication},
    {"all_to_all", communication, communication},
    {"broadcast", communication, communication},
    {"send", communication, communication},
    {"receive", communication, communication},
    {"join", communication, communication},
    {"attention", attention_forward, attention_backward},
    {"linear", gemm, gemm},
    {"mlp", gemm, gemm},
    {"matmul", gemm, gemm},
    {"cross_entropy", cross_entropy, cross_entropy},
    {"normal_cdf", elementwise, elementwise},
    {"norm", norm, norm},
    {"sum_parts", norm, norm},  // of γ and β, and of biases
    {"embedding", embedding, embedding},
    {"put_rows", embedding, embedding},
    {"swiglu", gate_and_rope, gate_and_rope},
    {"rope", gate_and_rope, gate_and_rope},
    {"optimizer", optimizer, optimizer},
    {"zero_grad", optimizer, optimizer},
    {"step", gaps, gaps},
};

// Ops that move values without computing any.
constexpr std::string_view kMoves[] = {"to",      "clone",   "contiguous", "cat",
                                       "reshape", "permute", "slice",      "unslice",
                                       "expand",  "split",   "copy"};

}  // namespace

const char* name_of(KernelClass c) {
  switch (c) {
    case gemm:
      return "GEMM";
    case attention_forward:
      return "attention forward";
    case attention_backward:
      return "attention backward";
    case norm:
      return "norm";
    case cross_entropy:
      return "cross-entropy";
    case embedding:
      return "embedding";
    case gate_and_rope:
      return "SwiGLU, RoPE";
    case elementwise:
      return "elementwise";
    case optimizer:
      return "optimizer";
    case communication:
      return "communication";
    case other:
      return "other";
    case gaps:
      return "gaps";
  }
  return "";
}

KernelClass class_of(const Activity& a) {
  for (const Rule& rule : kRules)
    if (a.name.find(rule.part) != a.name.npos)
      return a.phase == Phase::backward ? rule.backward : rule.forward;
  for (std::string_view move : kMoves)
    if (a.name == move) return other;
  return a.name.empty() || a.phase == Phase::other ? other : elementwise;
}

std::optional<Ceiling> measured_ceiling(std::string_view device_name, DType dtype) {
  // 8192³ bf16 on random values, and a copy of 2 GiB.
  if (device_name == "NVIDIA H200" && dtype == DType::bf16) return Ceiling{788e12, 4.3e12};
  return std::nullopt;
}

ClassTimes floor_of(const StepSize& step, const Ceiling& ceiling) {
  const ModelSize& m = step.model;
  const double tokens = double(step.tokens()), L = double(m.layers), C = double(m.width);
  const double s = double(size_of(step.dtype)), u = s * tokens * C;
  const double attention = L * double(m.context) * C * tokens;  // FLOPs, a unit of
  ClassTimes flops{}, bytes{}, ms{};

  flops[int(gemm)] = 6 * double(matrix_parameters(m)) * tokens;
  flops[int(attention_forward)] = 2 * attention;
  flops[int(attention_backward)] = 5 * attention;
  bytes[int(attention_backward)] = 2 * u * L;
  bytes[int(norm)] = (4 + 4) * u * 2 * L + 3 * u;
  bytes[int(cross_entropy)] = 2 * s * tokens * double(m.vocabulary);
  bytes[int(embedding)] = (3 + 3) * u;
  if (m.gated_mlp)
    bytes[int(gate_and_rope)] = (3 + 5) * u * double(m.mlp_width) / C * L +
                                4 * (1 + double(m.kv_heads) / double(m.heads)) * u * L;
  bytes[int(optimizer)] = (step.dtype == DType::f16 ? 4 + 30 : 4 + 28) * double(step.parameters);

  for (size_t c = 0; c < ms.size(); ++c)
    ms[c] = 1e3 * (flops[c] / ceiling.flops + bytes[c] / ceiling.bytes);
  return ms;
}

}  // namespace gradus::train
