#pragma once
#include <functional>

#include "optim/adam.h"
#include "optim/newton_schulz.h"

namespace gradus::optim {

/// How long the step of an orthogonal direction (out, in) is.
enum class MuonScale {
  spectral,  // √max(out, in)
  shape,     // √max(1, out/in)
  unit_rms,  // √(out/in)
};

struct MuonOptions {
  double momentum = 0.95;  // μ
  bool nesterov = false;
  NewtonSchulz orthogonal{};
  MuonScale scale = MuonScale::spectral;
  double extra_scale =
      1;  // 0.2: entries as large as AdamW's, which can then share the learning rate
  double weight_decay = 0.01;
  /// The type of the matrix products; by default that of the masters. bf16 is precise enough, and
  /// several times faster on a GPU.
  std::optional<DType> products{};
  AdamOptions others{};  // for what is not a matrix; its weight decay is the one above

  /// Rows of the pieces that a matrix is made of, each orthogonalised by itself; repeated over all
  /// rows; {}: it is one piece. For packed queries, keys and values with 2 heads of 8 a group: {16, 8, 8}.
  std::function<std::vector<int64_t>(const nn::Parameter&)> pieces{};
};

/// Muon [Jordan 2024] for matrices, AdamW for the rest; the rule stands in muon.cu.
class Muon final : public Optimizer {
 public:
  /// The groups with whole_matrices come last (see matrix_groups).
  /// Error with slices: the rule needs whole matrices.
  explicit Muon(std::vector<ParameterGroup> groups, MuonOptions options = {},
                const ArenaOptions& arena = {});

  double weight_decay() const override { return options.weight_decay; }

  const MuonOptions options;

 private:
  void apply(const StepNumbers* numbers) override;
  Betas betas() const override { return {options.others.beta1, options.others.beta2}; }
  std::vector<Arena> arenas() const override;
  void update_matrix(const FlatBuffer::Slot& slot, const StepNumbers* numbers);

  int others_ = 0;  // groups before the first of matrices
  Tensor m_;        // momentum; the first moment of the others
  Tensor v_;        // the second moment of the others, which lie first
};

}  // namespace gradus::optim
