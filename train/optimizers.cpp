#include "train/optimizers.h"

#include "optim/adam.h"
#include "optim/muon.h"
#include "optim/sgd.h"

namespace gradus::train {
namespace {

optim::AdamOptions adam_options(const Settings& s) {
  return {
      .beta1 = s.beta1,
      .beta2 = s.beta2,
      .epsilon = s.epsilon,
      .weight_decay = s.weight_decay,
      .decay = s.optimizer == "adam" ? optim::Decay::through_gradient : optim::Decay::decoupled};
}

// Muon's steps are as long as AdamW's, so that both follow the same rate. On a GPU it multiplies in
// bf16 where the model does.
std::unique_ptr<optim::Optimizer> make_muon(const Settings& s, nn::Module& module,
                                            const optim::ArenaOptions& arena) {
  optim::MuonOptions o{.momentum = s.momentum,
                       .nesterov = true,
                       .extra_scale = 0.2,
                       .weight_decay = s.weight_decay,
                       .others = adam_options(s)};
  std::vector<optim::ParameterGroup> groups = optim::matrix_groups(module, {"positions", "head"});
  if (s.dtype == "bf16" && groups[0].parameters[0].device().is_cuda()) o.products = DType::bf16;
  const int64_t d = s.width / s.heads, queries = s.heads / s.kv_heads * d, inner = s.ffn;
  const bool gated = s.family == "llama";
  o.pieces = [=](const nn::Parameter& p) -> std::vector<int64_t> {
    if (p.name().ends_with("qkv.weight")) return {queries, d, d};
    if (gated && p.name().ends_with("up.weight")) return {inner, inner};
    return {};
  };
  return std::make_unique<optim::Muon>(std::move(groups), std::move(o), arena);
}

}  // namespace

std::unique_ptr<optim::Optimizer> make_optimizer(const Settings& s, nn::Module& module,
                                                 const optim::ArenaOptions& arena) {
  if (s.optimizer == "muon") return make_muon(s, module, arena);
  if (s.optimizer == "sgd")
    return std::make_unique<optim::Sgd>(
        optim::default_groups(module),
        optim::SgdOptions{.momentum = s.momentum, .weight_decay = s.weight_decay}, arena);
  return std::make_unique<optim::Adam>(optim::default_groups(module), adam_options(s), arena);
}

std::optional<optim::GradScalerOptions> loss_scale(const Settings& s) {
  if (s.dtype != "f16") return std::nullopt;
  if (!s.loss_scale.empty() && s.loss_scale != "dynamic")
    return optim::GradScalerOptions::constant(std::stod(s.loss_scale));
  // f16 ends at 65504: from a larger first scale the first steps would all be skipped.
  return optim::GradScalerOptions{.initial = 0x1p16};
}

}  // namespace gradus::train
