#include "autograd/tensor.h"

#include <algorithm>

#include "autograd/accumulate.h"
#include "autograd/meta.h"
#include "core/aside.h"
#include "core/cuda.h"

namespace gradus {

TensorImpl::TensorImpl() = default;
TensorImpl::~TensorImpl() {
  if (meta && meta->accumulator) meta->accumulator->forget_leaf();
}

namespace {

Strides contiguous_or(const Shape& shape, const Strides& strides) {
  return shape.numel() == 0 ? contiguous_strides(shape) : strides;
}

bool is_dense(const Shape& shape, const Strides& strides) {
  int64_t expected = 1;
  for (int d = shape.rank() - 1; d >= 0; --d) {
    if (shape[d] == 1) continue;
    if (strides[d] != expected) return false;
    expected *= shape[d];
  }
  return true;
}

Tensor make(Ref<Storage> storage, const Shape& shape, const Strides& strides, int64_t offset,
            DType dtype) {
  Ref<TensorImpl> t(new TensorImpl);
  t->storage = std::move(storage);
  t->shape = shape;
  t->strides = contiguous_or(shape, strides);
  t->offset = offset;
  t->numel = shape.numel();
  t->dtype = dtype;
  t->contiguous = is_dense(shape, t->strides);
  return Tensor(std::move(t));
}

double read(DType dtype, const void* p) {
  return dispatch_all(dtype,
                      [&]<class T>() { return double(Compute<T>(*static_cast<const T*>(p))); });
}

/// Offset from the first element to element `i` in row-major order.
int64_t locate(const Tensor& t, int64_t i) {
  check(i >= 0 && i < t.numel(), "element ", i, " of a tensor of shape ", t.shape());
  int64_t at = 0;
  for (int d = t.rank() - 1; d >= 0; --d) {
    at += i % t.shape()[d] * t.strides()[d];
    i /= t.shape()[d];
  }
  return at;
}

}  // namespace

Tensor empty(const Shape& shape, DType dtype, Device device) {
  for (int64_t s : shape) check(s >= 0, "negative size in shape ", shape);
  size_t bytes = size_t(shape.numel()) * size_t(size_of(dtype));
  return make(Ref<Storage>(new Storage(device, bytes)), shape, contiguous_strides(shape), 0, dtype);
}

// ---- data

namespace {

/// The bytes of its storage that a tensor reaches: [begin, end).
std::pair<size_t, size_t> extent(const Tensor& t) {
  if (t.numel() == 0) return {0, 0};
  int64_t last = t.offset();
  for (int d = 0; d < t.rank(); ++d) last += (t.shape()[d] - 1) * t.strides()[d];
  const int64_t element = size_of(t.dtype());
  return {size_t(t.offset() * element), size_t((last + 1) * element)};
}

}  // namespace

void Tensor::join_before_use(std::function<void()> join) const {
  const auto [begin, end] = extent(*this);
  impl_->storage->add_late_write(begin, end, std::move(join));
}

// What is aside comes after what was written aside by itself.
void Tensor::join_late_writes() const {
  if (cuda::is_aside(device())) return;
  const auto [begin, end] = extent(*this);
  impl_->storage->join_late_writes(begin, end);
}

double Tensor::item() const {
  check(bool(*this), "item() of an undefined tensor");
  check(numel() == 1, "item() needs a tensor of one element, got shape ", shape());
  return at(0);
}

double Tensor::at(int64_t i) const {
  int64_t element = size_of(dtype());
  const char* p = static_cast<const char*>(raw()) + locate(*this, i) * element;
  if (!device().is_cuda()) return read(dtype(), p);
  alignas(8) char value[8];
  copy_bytes(value, kCpu, p, device(), size_t(element));
  return read(dtype(), value);
}

void Tensor::set(int64_t i, double value) const {
  will_write("set");
  int64_t element = size_of(dtype());
  alignas(8) char bytes[8];
  dispatch_all(dtype(), [&]<class T>() { *reinterpret_cast<T*>(bytes) = T(Compute<T>(value)); });
  copy_bytes(static_cast<char*>(raw()) + locate(*this, i) * element, device(), bytes, kCpu,
             size_t(element));
}

std::vector<double> Tensor::to_vector() const {
  std::vector<double> values(static_cast<size_t>(numel()));
  Tensor host = to_host(*this);
  int64_t element = size_of(dtype());
  for (int64_t i = 0; i < numel(); ++i)
    values[size_t(i)] = read(dtype(), static_cast<const char*>(host.raw()) + i * element);
  return values;
}

Tensor Tensor::alias(const Shape& shape, const Strides& strides, int64_t offset) const {
  int64_t last = offset;
  for (int d = 0; d < shape.rank(); ++d) last += (shape[d] - 1) * strides[d];
  bool inside = shape.numel() == 0 ||
                (offset >= 0 && (last + 1) * size_of(dtype()) <= int64_t(impl_->storage->bytes()));
  check(inside, "view ", shape, " with strides ", strides, " and offset ", offset,
        " reaches outside its storage of ", impl_->storage->bytes() / size_of(dtype()),
        " elements");
  return make(impl_->storage, shape, strides, offset, dtype());
}

Tensor Tensor::detach() const {
  return make(impl_->storage, shape(), strides(), offset(), dtype());
}

void Tensor::will_write(const char* op) const {
  if (grad_enabled() && requires_grad()) [[unlikely]]  // describe() is not for every call
    fail(op, " would write in place to ", describe(),
         ", which requires a gradient; do it under NoGrad, or write to detach()");
  ++impl_->storage->version;
}

// ---- gradient

AutogradMeta& Tensor::meta() const {
  if (!impl_->meta) impl_->meta = std::make_unique<AutogradMeta>();
  return *impl_->meta;
}

const Tensor& Tensor::requires_grad_(bool value) const {
  check(!value || is_floating(dtype()), "requires_grad_ on ", describe(),
        ": only floating tensors have gradients");
  check(is_leaf(), "requires_grad_ on a result of ", grad_fn() ? grad_fn()->name() : "",
        "; detach() it first");
  impl_->requires_grad = value;
  return *this;
}

Edge Tensor::gradient_edge() const {
  if (impl_->grad_fn) return impl_->grad_fn;
  if (!impl_->requires_grad) return {};
  AutogradMeta& m = meta();
  if (!m.accumulator) m.accumulator = Ref<AccumulateGrad>(new AccumulateGrad(impl_.get()));
  return {Ref<Node>(m.accumulator.get()), 0};
}

Tensor Tensor::grad() const {
  if (!impl_->meta) return {};
  const AutogradMeta& m = *impl_->meta;
  if (m.main_grad.buffer) return m.main_grad.written ? m.main_grad.buffer : Tensor();
  return m.grad ? *m.grad : Tensor();
}

void Tensor::set_grad(Tensor g) const {
  check(!g || g.shape() == shape(), "set_grad: gradient of shape ", g ? g.shape() : Shape(),
        " for ", describe());
  AutogradMeta& m = meta();
  if (!m.grad) m.grad = std::make_shared<Tensor>();
  *m.grad = std::move(g);
}

void Tensor::zero_grad() const {
  if (!impl_->meta) return;
  impl_->meta->main_grad.written = false;
  if (impl_->meta->grad) *impl_->meta->grad = Tensor();
}

void Tensor::set_main_grad(Tensor buffer) const {
  check(is_leaf() && impl_->requires_grad, "set_main_grad on ", describe(),
        ", which is no leaf that requires a gradient");
  check(buffer.shape() == shape() && (buffer.dtype() == DType::f32 || buffer.dtype() == DType::f64),
        "set_main_grad: buffer ", buffer.describe(), " for ", describe(),
        "; it needs the same shape, and f32 or f64");
  meta().main_grad = {.buffer = std::move(buffer)};
}

void Tensor::retain_grad() const {
  if (is_leaf()) return;
  AutogradMeta& m = meta();
  if (!m.grad) m.grad = std::make_shared<Tensor>();
  Node& node = *grad_fn();
  if (!node.retained) node.retained = std::make_unique<decltype(node.retained)::element_type>();
  node.retained->emplace_back(output_nr(), m.grad);
}

void Tensor::register_hook(Hook hook) const {
  check(requires_grad(), "register_hook on ", describe(), ", which requires no gradient");
  Edge edge = gradient_edge();
  if (!edge.node->hooks)
    edge.node->hooks = std::make_unique<decltype(edge.node->hooks)::element_type>();
  edge.node->hooks->emplace_back(edge.output_nr, std::move(hook));
}

void Tensor::register_leaf_hook(LeafHook hook) const {
  check(is_leaf() && requires_grad(), "register_leaf_hook on ", describe(),
        ", which is no leaf that requires a gradient");
  meta().leaf_hooks.push_back(std::move(hook));
}

Tensor Tensor::with_edge(Tensor t, Edge edge) {
  bool mine = t.impl_->use_count() == 1 && !t.requires_grad() && !t.impl_->meta;
  Tensor y = mine ? std::move(t) : t.detach();
  y.impl_->grad_fn = std::move(edge);
  return y;
}

bool Tensor::is_sole_owner() const {
  return impl_->use_count() == 1 && impl_->storage->use_count() == 1;
}

void Tensor::set_data(const Tensor& data) const {
  check(is_leaf(), "set_data on ", describe(), ", which is a result");
  check(data.shape() == shape() && (!requires_grad() || is_floating(data.dtype())), "set_data of ",
        describe(), " to ", data.describe(),
        ": the shape must stay, and floating leaves stay floating");
  bool same_kind = data.dtype() == dtype() && data.device() == device();
  uint32_t version = std::max(impl_->storage->version, data.version()) + 1;
  impl_->storage = data.impl()->storage;
  impl_->storage->version = version;
  impl_->strides = data.strides();
  impl_->offset = data.offset();
  impl_->dtype = data.dtype();
  impl_->contiguous = data.is_contiguous();
  if (same_kind || !impl_->meta) return;
  impl_->meta->grad.reset();
  impl_->meta->main_grad = {};
  if (impl_->meta->accumulator) impl_->meta->accumulator->outputs[0] = {shape(), dtype(), device()};
}

// ---- words

void Tensor::set_name(std::string name) const { meta().name = std::move(name); }
std::string Tensor::name() const { return impl_->meta ? impl_->meta->name : ""; }

Description Tensor::describe() const { return {*this}; }

std::ostream& operator<<(std::ostream& out, Description d) {
  const Tensor& t = d.tensor;
  if (!t) return out << "an undefined tensor";
  if (std::string name = t.name(); !name.empty()) out << name << " ";
  out << t.shape() << " " << t.dtype();
  return t.device().is_cuda() ? out << " on " << t.device() : out;
}
Description::operator std::string() const {
  std::ostringstream out;
  out << *this;
  return out.str();
}

namespace {
void print(std::ostream& out, const std::vector<double>& values, const Shape& shape, int dim,
           int64_t& at) {
  if (dim == shape.rank()) {
    out << values[size_t(at++)];
    return;
  }
  out << '[';
  for (int64_t i = 0; i < shape[dim]; ++i) {
    if (i) out << ", ";
    print(out, values, shape, dim + 1, at);
  }
  out << ']';
}
}  // namespace

std::ostream& operator<<(std::ostream& out, const Tensor& t) {
  if (!t) return out << "undefined";
  int64_t at = 0;
  if (t.numel() <= 1000) print(out, t.to_vector(), t.shape(), 0, at);
  return out << ' ' << t.describe();
}

}  // namespace gradus
