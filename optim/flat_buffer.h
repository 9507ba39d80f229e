#pragma once
// All parameters in one piece of memory, and everything that belongs to them at the same offsets:
//
//                 group 0 (decayed)              group 1
//               ┌───────────┬────────┬────────┬─┬──────┬─┬──────┬─┐
//   parameters  │ embedding │  qkv   │   up   │ │  γ   │ │  β   │ │   type of the model
//               ├───────────┼────────┼────────┼─┼──────┼─┼──────┼─┤
//   gradients   │           │        │        │0│      │0│      │0│   f32 (f64 for f64)
//   masters     │           │        │        │0│      │0│      │0│   f32 of f16; of bf16 a lower half
//   moments …   │           │        │        │0│      │0│      │0│   one arena each
//               └───────────┴────────┴────────┴─┴──────┴─┴──────┴─┘
//
// So an update is one loop over a group instead of one for each parameter, a norm is one reduction,
// and a part of the arena can be sent to another rank as it lies. Each parameter becomes a view of the
// arena, and its gradient is summed in a view of the gradients. Parameters start at multiples of 64
// elements; the gap up to the next one is 0 in every arena, and every update leaves 0 there.
//
// Where data ranks share the update (slices, see optim/arena_layout.h), masters and moments hold this
// rank's slices only, one behind the other: those are the state arenas.
#include <functional>

#include "optim/arena_layout.h"
#include "optim/split_master.h"

namespace gradus::optim {

class FlatBuffer {
 public:
  using Slot = optim::Slot;
  using Range = optim::Range;

  /// Moves the parameters into the arena. What they hold stays, gradients included. Error unless all
  /// have one floating type and one device, and each is in one group.
  explicit FlatBuffer(std::vector<ParameterGroup> groups, const ArenaOptions& options = {});

  const Tensor& parameters() const { return parameters_; }
  const Tensor& gradients() const { return gradients_; }
  /// What an update writes to. Of f16 parameters: f32 copies (a state arena). Of bf16: the low halves of
  /// f32 masters whose upper halves are the parameters (a state arena; see optim/split_master.h). Else the
  /// parameters themselves.
  const Tensor& masters() const { return masters_; }
  bool has_masters() const { return !masters_.is_same(parameters_); }
  bool are_masters_split() const { return parameters_.dtype() == DType::bf16; }

  std::vector<ParameterGroup>& groups() { return groups_; }
  const std::vector<ParameterGroup>& groups() const { return groups_; }
  const ArenaLayout& layout() const { return layout_; }
  const std::vector<Slot>& slots() const { return layout_.slots(); }
  Range range(int group) const { return layout_.range(group); }
  int64_t padding() const;  // elements that belong to no parameter

  /// The part of the arena of parameters or gradients that belongs to a parameter, in its shape.
  Tensor view(const Tensor& arena, const Slot& slot) const;
  /// The part of a state arena that belongs to a parameter: in its shape, or (elements) where not all of
  /// it is updated here.
  Tensor state_view(const Tensor& arena, const Slot& slot) const;
  /// The same of the masters.
  StateView master(const Slot& slot) const;
  /// A new state arena of zeros.
  Tensor make_state() const;

  /// Forgets all gradients; fills nothing (see Tensor::zero_grad).
  void zero_grad();
  /// Error if a parameter was moved elsewhere since it was laid here.
  void check_in_place() const;
  /// Makes the gradients of parameters that no backward reached 0. Needed before `gradients` is read.
  void finish_gradients() { finish_gradients({0, layout_.size()}); }
  void finish_gradients(const Range& range);
  /// After parameters were written from outside (a checkpoint): masters ← parameters. Else those of f16 go
  /// on from where they were, and those of bf16 from what was written, give or take half its last bit.
  void reload_masters();

  /// In which order an update takes the buckets; as they lie, unless something better is known. It matters where
  /// each is updated by itself (slices).
  std::vector<int> order;
  /// If set, an update calls it for each bucket, once the work on the bucket's own slice was asked for.
  std::function<void(int bucket)> when_updated{};

 private:
  void move_in(const Slot& slot);

  std::vector<ParameterGroup> groups_;
  ArenaLayout layout_;
  Tensor parameters_, gradients_, masters_;
};

/// The elements of a range, as they lie.
Tensor part_of(const Tensor& arena, const Range& range);

}  // namespace gradus::optim
