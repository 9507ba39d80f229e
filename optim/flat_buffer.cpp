#include "optim/flat_buffer.h"

#include <set>

#include "autograd/meta.h"
#include "ops/ops.h"

namespace gradus::optim {
namespace {

constexpr int64_t kAlignment = 64;  // elements: whole vectors and cache lines, also of 16-bit types

int64_t aligned(int64_t n) { return (n + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

std::string FlatBuffer::Slot::name() const {
  std::string n = parameter.name();
  return n.empty() ? "parameter " + std::to_string(number) : n;
}

FlatBuffer::FlatBuffer(std::vector<ParameterGroup> groups) : groups_(std::move(groups)) {
  lay_out();
  const Tensor& first = slots_[0].parameter;
  DType wide = first.dtype() == DType::f64 ? DType::f64 : DType::f32;
  parameters_ = zeros({size_}, first.dtype(), first.device());
  gradients_ = zeros({size_}, wide, first.device());
  for (const Slot& slot : slots_) move_in(slot);
  masters_ = wide == first.dtype() ? parameters_ : cast(parameters_, wide);
}

/// Gives each parameter its offset, and checks that they can lie together.
void FlatBuffer::lay_out() {
  std::set<TensorImpl*> seen;
  for (size_t g = 0; g < groups_.size(); ++g) {
    check(groups_[g].min_lr <= groups_[g].max_lr, "group '", groups_[g].name,
          "': its learning rate cannot be at least ", groups_[g].min_lr, " and at most ",
          groups_[g].max_lr);
    Range range{size_, size_};
    for (const nn::Parameter& p : groups_[g].parameters) {
      check(p && p.requires_grad() && p.is_leaf(),
            "an optimizer needs leaves that require a gradient, "
            "got ",
            p.describe());
      check(seen.insert(p.impl()).second,
            "in two parameter groups, or twice in one: ", p.describe());
      slots_.push_back({p, range.end, int(g), int(slots_.size())});
      const nn::Parameter& first = slots_[0].parameter;
      check(p.dtype() == first.dtype() && p.device() == first.device(),
            "parameters of one optimizer "
            "have one type and one device, got ",
            first.describe(), " and ", p.describe());
      range.end += aligned(p.numel());
      padding_ += aligned(p.numel()) - p.numel();
    }
    ranges_.push_back(range);
    size_ = range.end;
  }
  check(!slots_.empty(), "an optimizer was given no parameters");
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

Tensor FlatBuffer::view(const Tensor& arena, const Slot& slot) const {
  const Shape& shape = slot.parameter.shape();
  return arena.alias(shape, contiguous_strides(shape), slot.offset);
}

Tensor FlatBuffer::make_state() const {
  return zeros({size_}, gradients_.dtype(), gradients_.device());
}

void FlatBuffer::zero_grad() {
  for (const Slot& slot : slots_) slot.parameter.zero_grad();
}

void FlatBuffer::check_in_place() const {
  for (const Slot& slot : slots_)
    check(slot.parameter.impl()->storage == parameters_.impl()->storage, "parameter ", slot.name(),
          " was moved (to(), cast(), another optimizer) since this optimizer was made; make the "
          "optimizer last");
}

void FlatBuffer::finish_gradients() {
  for (const Slot& slot : slots_)
    if (!slot.parameter.grad()) fill_(view(gradients_, slot), 0);
}

void FlatBuffer::reload_masters() {
  if (has_masters()) copy_(masters_, parameters_);
}

}  // namespace gradus::optim
