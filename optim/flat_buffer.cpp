#include "optim/flat_buffer.h"

#include <numeric>
#include <set>

#include "autograd/meta.h"
#include "ops/ops.h"

namespace gradus::optim {
namespace {

/// That parameters can lie together.
void validate(const std::vector<ParameterGroup>& groups) {
  std::set<TensorImpl*> seen;
  const nn::Parameter* first = nullptr;
  for (const ParameterGroup& group : groups) {
    check(group.min_lr <= group.max_lr, "group '", group.name,
          "': its learning rate cannot be at least ", group.min_lr, " and at most ", group.max_lr);
    for (const nn::Parameter& p : group.parameters) {
      check(p && p.requires_grad() && p.is_leaf(),
            "an optimizer needs leaves that require a gradient, got ", p.describe());
      check(seen.insert(p.impl()).second,
            "in two parameter groups, or twice in one: ", p.describe());
      if (!first) first = &p;
      check(p.dtype() == first->dtype() && p.device() == first->device(),
            "parameters of one optimizer have one type and one device, got ", first->describe(),
            " and ", p.describe());
    }
  }
  check(first != nullptr, "an optimizer was given no parameters");
}

std::vector<ParameterGroup> valid(std::vector<ParameterGroup> groups) {
  validate(groups);
  return groups;
}

}  // namespace

Tensor part_of(const Tensor& arena, const Range& range) {
  return arena.alias({range.size()}, {1}, range.begin);
}

FlatBuffer::FlatBuffer(std::vector<ParameterGroup> groups, const ArenaOptions& options)
    : groups_(valid(std::move(groups))), layout_(groups_, options) {
  const Tensor& first = slots()[0].parameter;
  const DType wide = first.dtype() == DType::f64 ? DType::f64 : DType::f32;
  parameters_ = zeros({layout_.size()}, first.dtype(), first.device());
  gradients_ = zeros({layout_.size()}, wide, first.device());
  order.resize(layout_.buckets().size());
  std::iota(order.begin(), order.end(), 0);
  for (const Slot& slot : slots()) move_in(slot);
  masters_ = wide == first.dtype() ? parameters_
             : are_masters_split() ? zeros({layout_.own_size()}, DType::bf16, first.device())
                                   : make_state();
  reload_masters();
}

void FlatBuffer::move_in(const Slot& slot) {
  const Tensor& p = slot.parameter;
  Tensor old_grad = p.grad(), place = view(parameters_, slot);
  copy_(place, p.detach());
  p.set_data(place);
  p.set_grad({});
  p.set_main_grad(view(gradients_, slot));
  if (!old_grad) return;
  copy_(view(gradients_, slot), old_grad);
  p.impl()->meta->main_grad.written = true;
}

int64_t FlatBuffer::padding() const { return layout_.gaps({{0, layout_.size()}}); }

Tensor FlatBuffer::view(const Tensor& arena, const Slot& slot) const {
  const Shape& shape = slot.parameter.shape();
  return arena.alias(shape, contiguous_strides(shape), slot.offset);
}

Tensor FlatBuffer::state_view(const Tensor& arena, const Slot& slot) const {
  const OwnPart own = layout_.own_part(slot);
  const int64_t size = own.end - own.begin;
  const Shape shape = size == slot.parameter.numel() ? slot.parameter.shape() : Shape{size};
  return arena.alias(shape, contiguous_strides(shape), own.place);
}

StateView FlatBuffer::master(const Slot& slot) const {
  const Tensor here = state_view(masters_, slot);
  if (!are_masters_split()) return here;
  const int64_t first = slot.offset + layout_.own_part(slot).begin;
  return {parameters_.alias(here.shape(), here.strides(), first), here};
}

Tensor FlatBuffer::make_state() const {
  return zeros({layout_.own_size()}, gradients_.dtype(), gradients_.device());
}

void FlatBuffer::zero_grad() {
  for (const Slot& slot : slots()) slot.parameter.zero_grad();
}

void FlatBuffer::check_in_place() const {
  for (const Slot& slot : slots())
    check(slot.parameter.impl()->storage == parameters_.impl()->storage, "parameter ", slot.name(),
          " was moved (to(), cast(), another optimizer) since this optimizer was made; make the "
          "optimizer last");
}

void FlatBuffer::finish_gradients(const Range& range) {
  for (const Slot& slot : slots()) {
    if (slot.offset < range.begin || slot.offset >= range.end || slot.parameter.grad()) continue;
    fill_(view(gradients_, slot), 0);
    slot.parameter.impl()->meta->main_grad.written = true;  // nobody need fill it again
  }
}

void FlatBuffer::reload_masters() {
  if (!has_masters()) return;
  if (are_masters_split()) return fill_(masters_, 0);
  for (const Bucket& b : layout_.buckets())
    copy_(part_of(masters_, {b.own.begin - b.shift, b.own.end - b.shift}),
          part_of(parameters_, b.own));
}

}  // namespace gradus::optim
