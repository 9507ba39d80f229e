#pragma once
// All parameters in one piece of memory, and everything that belongs to them at the same offsets:
//
//                 group 0 (decayed)              group 1
//               ┌───────────┬────────┬────────┬─┬──────┬─┬──────┬─┐
//   parameters  │ embedding │  qkv   │   up   │ │  γ   │ │  β   │ │   type of the model
//               ├───────────┼────────┼────────┼─┼──────┼─┼──────┼─┤
//   gradients   │           │        │        │0│      │0│      │0│   f32 (f64 for f64)
//   masters     │           │        │        │0│      │0│      │0│   f32, for 16-bit parameters
//   moments …   │           │        │        │0│      │0│      │0│   one arena each
//               └───────────┴────────┴────────┴─┴──────┴─┴──────┴─┘
//
// So an update is one loop over a group instead of one for each parameter, a norm is one reduction,
// and a part of the arena can be sent to another rank as it lies. Each parameter becomes a view of the
// arena, and its gradient is summed in a view of the gradients. Parameters start at multiples of 64
// elements; the gap up to the next one is 0 in every arena, and every update leaves 0 there.
#include "optim/parameter_group.h"

namespace gradus::optim {

class FlatBuffer {
 public:
  /// Where a parameter lies.
  struct Slot {
    nn::Parameter parameter;
    int64_t offset = 0;
    int group = 0, number = 0;
    std::string name() const;  // the parameter's, or "parameter 3" (its number) if it has none
  };
  struct Range {
    int64_t begin = 0, end = 0;
  };

  /// Moves the parameters into the arena. What they hold stays, gradients included. Error unless all
  /// have one floating type and one device, and each is in one group.
  explicit FlatBuffer(std::vector<ParameterGroup> groups);

  const Tensor& parameters() const { return parameters_; }
  const Tensor& gradients() const { return gradients_; }
  /// What an update writes to: f32 copies of 16-bit parameters, else the parameters themselves.
  const Tensor& masters() const { return masters_; }
  bool has_masters() const { return !masters_.is_same(parameters_); }

  std::vector<ParameterGroup>& groups() { return groups_; }
  const std::vector<ParameterGroup>& groups() const { return groups_; }
  const std::vector<Slot>& slots() const { return slots_; }
  Range range(int group) const { return ranges_[size_t(group)]; }
  int64_t padding() const { return padding_; }  // elements that belong to no parameter

  /// The part of `arena` that belongs to a parameter, in its shape.
  Tensor view(const Tensor& arena, const Slot& slot) const;
  /// A new arena of zeros beside the gradients.
  Tensor make_state() const;

  /// Forgets all gradients; fills nothing (see Tensor::zero_grad).
  void zero_grad();
  /// Error if a parameter was moved elsewhere since it was laid here.
  void check_in_place() const;
  /// Makes the gradients of parameters that no backward reached 0. Needed before `gradients` is read.
  void finish_gradients();
  /// After parameters were written from outside (a checkpoint): masters ← parameters.
  void reload_masters();

 private:
  void lay_out();
  void move_in(const Slot& slot);

  std::vector<ParameterGroup> groups_;
  std::vector<Slot> slots_;
  std::vector<Range> ranges_;
  int64_t size_ = 0, padding_ = 0;
  Tensor parameters_, gradients_, masters_;
};

}  // namespace gradus::optim
