#pragma once
// The numbers of a step, and how they are decided where the gradients are.
//
//   host                        mailbox, slot k                 device
//   request(lr, max_norm) ────▶ request ──────────────┐   measure  Σ g²
//   enqueues the kernels                              └─▶ decide   norm, clip, skip, t    StepNumbers
//   … goes on with step k + 1 …                           update   θ, by these numbers
//   result.grad_norm()    ◀──── record ◀── decide
//
// No step waits for the host, and the host waits for no step: it asks for what was found when it wants
// to know it. Neither side copies: the mailbox is host memory that the device can address. So the
// kernels of a step are the same each time and can be recorded once, as a CUDA graph.
//
// Note [the rate of a step that cannot be known]
// A schedule is a function of the updates applied, and a skipped step is not one. When the host asks
// for step k, steps before it may be undecided, so it sends the rates of all possible counts, and the
// device takes the one that has become true.
#include <cmath>
#include <limits>

#include "optim/grad_scaler.h"

namespace gradus::optim {

inline constexpr int kAhead = 8;  // steps that the host may be ahead of the device
inline constexpr double kNoLimit = std::numeric_limits<double>::infinity();

/// The factors of one update.
struct Rates {
  double lr = 0, weight_decay = 0;
};

/// What the host asks for.
struct StepRequest {
  int64_t first_update = 0;  // rates[i]: for an update that comes after first_update + i others
  Rates rates[kAhead] = {};
  double max_norm = kNoLimit;    // longer gradients are shortened to it
  double skip_above = kNoLimit;  // the step is skipped when they are longer than this
  double gradient_scale = 1;
};

/// What the device found. Written once, `attempt` last.
struct StepRecord {
  int64_t attempt = 0;  // the step's number from 1, skipped ones included
  int64_t updates = 0;  // applied so far, this one included
  bool applied = true;
  bool device_error = false;    // a kernel recorded an Error: nothing was changed
  bool scale_at_floor = false;  // the loss scale should have been lowered, and could not be
  double lr = 0, grad_norm = 0;
  double loss_scale = 1, next_loss_scale = 1;
  int64_t zeros = -1;      // gradients that are exactly 0; negative: not counted
  int64_t non_finite = 0;  // the first element of the arena that is not finite; its size: none
};

struct MailSlot {
  StepRequest request;
  StepRecord record;
};

/// What was found in gradients. All doubles, so that ranks can send it as one tensor.
struct Measured {
  double squares = 0;     // Σ g², of the scaled gradients
  double zeros = -1;      // that are exactly 0; negative: not counted
  double non_finite = 0;  // place in the arena of the first that is not finite; its size: none
};

/// What several ranks found, each in its own gradients; added in their order, so the same on all.
GRADUS_HD inline Measured join(const Measured* found, int ranks) {
  Measured all = found[0];
  for (int r = 1; r < ranks; ++r) {
    all.squares += found[r].squares, all.zeros += found[r].zeros;
    if (found[r].non_finite < all.non_finite) all.non_finite = found[r].non_finite;
  }
  return all;
}

/// On the device: what the kernels of a step tell each other.
struct StepNumbers : Measured {
  unsigned blocks_done = 0;  // of the kernel that measures
  // decided
  int64_t attempts = 0;  // steps so far
  int64_t updates = 0;   // applied so far: t in the rules of update
  bool applied = true;
  double lr = 0, weight_decay = 0;
  double gradient_scale = 1;    // clip factor / loss scale
  double rest1 = 1, rest2 = 1;  // 1 − β₁ᵗ, 1 − β₂ᵗ
};

/// How much the moments of a rule keep of their past in each update; 0: it has none.
struct Betas {
  double first = 0, second = 0;
};

/// c = max_norm / (norm + 1e-6), at most 1.
GRADUS_HD inline double clip_to(double max_norm, double norm) {
  double c = max_norm / (norm + 1e-6);
  return c < 1 ? c : 1;
}

/// Unscale, check, clip, count: all that lies between gradients and an update, for one thread.
GRADUS_HD inline StepRecord decide(StepNumbers& n, const StepRequest& request, const Betas& betas,
                                   GradScaler* scaler, bool device_error) {
  const double scale = scaler ? scaler->scale : 1;
  const double norm = std::sqrt(n.squares) / scale;
  const bool finite = std::isfinite(n.squares);
  const Rates rates = request.rates[n.updates - request.first_update];
  const bool good_scale = !scaler || device_error || scaler->update(!finite);
  n.applied = finite && norm <= request.skip_above && !device_error;
  ++n.attempts;
  if (n.applied) {
    ++n.updates;
    n.lr = rates.lr, n.weight_decay = rates.weight_decay;
    n.gradient_scale = request.gradient_scale * clip_to(request.max_norm, norm) / scale;
    n.rest1 = 1 - std::pow(betas.first, double(n.updates));
    n.rest2 = 1 - std::pow(betas.second, double(n.updates));
  }
  return {.attempt = n.attempts,
          .updates = n.updates,
          .applied = n.applied,
          .device_error = device_error,
          .scale_at_floor = !good_scale,
          .lr = rates.lr,
          .grad_norm = norm,
          .loss_scale = scale,
          .next_loss_scale = scaler ? scaler->scale : 1,
          .zeros = int64_t(n.zeros),
          .non_finite = int64_t(n.non_finite)};
}

}  // namespace gradus::optim
