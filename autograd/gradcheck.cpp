#include "autograd/gradcheck.h"

#include <algorithm>
#include <cmath>

#include "autograd/accumulate.h"
#include "autograd/engine.h"
#include "autograd/node.h"
#include "core/cuda.h"
#include "core/random.h"

namespace gradus {
namespace {

/// Uneven weights c_i of the loss Σ c_i y_i; `phase` makes a second, different set.
double weight(int64_t i, double phase = 0) { return std::cos(1 + 2.3 * double(i) + phase); }

double rounded(double v, DType to) {
  return dispatch_floating("rounded", to, [&]<class T>() { return double(Compute<T>(T(Compute<T>(v)))); });
}

/// A tensor whose elements lie apart in memory: the view a user would have of a larger one.
Tensor laid_out(const Shape& shape, DType dtype, Device device, Layout layout) {
  int rank = shape.rank();
  if (layout == Layout::transposed && rank >= 2) {
    Shape stored = shape;
    std::swap(stored[rank - 2], stored[rank - 1]);
    Tensor t = empty(stored, dtype, device);
    Strides strides = t.strides();
    std::swap(strides[rank - 2], strides[rank - 1]);
    return t.alias(shape, strides, 0);
  }
  if (layout == Layout::sliced && rank >= 1) {
    Shape stored = shape;
    stored[rank - 1] = 2 * shape[rank - 1] + 3;
    Tensor t = empty(stored, dtype, device);
    Strides strides = t.strides();
    strides[rank - 1] = 2;
    return t.alias(shape, strides, shape.numel() ? 3 : 0);
  }
  return empty(shape, dtype, device);
}

Tensor weights_for(const Tensor& y, double phase = 0) {
  Tensor c = empty(y.shape(), y.dtype());
  for (int64_t i = 0; i < c.numel(); ++i) c.set(i, weight(i, phase));
  if (!y.device().is_cuda()) return c;
  Tensor there = empty(y.shape(), y.dtype(), y.device());
  copy_bytes(there.raw(), y.device(), c.raw(), kCpu, size_t(bytes_of(c)));
  return there;
}

Tensors gradients(const Gradcheck::Example& f, Sampler& s, BackwardOptions options = {}) {
  s.rewind();
  Tensor y = f(s);
  Tensors x = s.differentiable();
  return grad(y, x, weights_for(y), options);
}

double loss(const Gradcheck::Example& f, Sampler& s) {
  NoGrad guard;
  s.rewind();
  std::vector<double> y = f(s).to_vector();
  double sum = 0;
  for (size_t i = 0; i < y.size(); ++i) sum += weight(int64_t(i)) * y[i];
  return sum;
}

/// (g(x + ε) − g(x − ε)) / 2ε in element i of x.
template <class G>
double central_difference(const Tensor& x, int64_t i, G g) {
  const double epsilon = 1e-6, v = x.at(i);
  NoGrad guard;
  x.set(i, v + epsilon);
  double up = g();
  x.set(i, v - epsilon);
  double down = g();
  x.set(i, v);
  return (up - down) / (2 * epsilon);
}

void compare(GradcheckResult& result, const std::vector<double>& got, const std::vector<double>& want,
             const std::string& what) {
  double scale = 1;
  for (double w : want)
    if (std::isfinite(w)) scale = std::max(scale, std::abs(w));
  for (size_t i = 0; i < want.size(); ++i) {
    double error = std::abs(got[i] - want[i]) / scale;
    if (got[i] == want[i]) error = 0;  // infinities of one sign
    ++result.compared;
    if (error <= result.worst) continue;  // a NaN is never smaller
    std::ostringstream where;
    where << what << ", element " << i << ": got " << got[i] << ", expected " << want[i];
    result.worst = std::isnan(error) ? INFINITY : error;
    result.where = where.str();
  }
}

std::vector<double> values_or_zeros(const Tensor& g, int64_t n) {
  return g ? g.to_vector() : std::vector<double>(size_t(n), 0.0);
}

}  // namespace

// ---- inputs

template <class Draw>
Tensor Sampler::input(Shape shape, DType dtype, bool grad, Draw draw) {
  if (next_ < inputs_.size()) return inputs_[next_++];
  Tensor host = laid_out(shape, dtype, kCpu, layout_);
  for (int64_t i = 0; i < host.numel(); ++i) {
    double v = draw(i);
    host.set(i, is_floating(dtype) ? rounded(v, rounding_) : v);
  }
  Tensor t = host;
  if (device_.is_cuda()) {
    t = laid_out(shape, dtype, device_, layout_);
    Tensor dense = empty(shape, dtype, device_);
    Tensor dense_host = host.is_contiguous() ? host : clone_values(host);
    copy_bytes(dense.raw(), device_, dense_host.raw(), kCpu, size_t(bytes_of(dense)));
    write_values(t, dense);
  }
  if (grad) t.requires_grad_();
  inputs_.push_back(t);
  ++next_;
  return t;
}

double Sampler::draw_uniform() { return Philox{1234, draws_++}.uniform<double>(0); }

Tensor Sampler::normal(Shape shape) {
  return input(shape, dtype_, true, [this](int64_t) {
    double u = 1 - draw_uniform(), v = draw_uniform();
    return std::sqrt(-2 * std::log(u)) * std::cos(6.283185307179586 * v);
  });
}
Tensor Sampler::uniform(Shape shape, double low, double high) {
  return input(shape, dtype_, true, [&](int64_t) {
    return low + (high - low) * (0.02 + 0.96 * draw_uniform());
  });
}
Tensor Sampler::distinct(Shape shape) {
  int64_t n = shape.numel(), step = 1;
  for (int64_t candidate : {7, 5, 3, 11, 13})
    if (n % candidate != 0) { step = candidate; break; }
  return input(shape, dtype_, true, [=](int64_t i) { return 0.25 * double(i * step % n) - 1.0; });
}
Tensor Sampler::ids(Shape shape, int64_t limit, DType dtype) {
  return input(shape, dtype, false, [&](int64_t) { return std::floor(draw_uniform() * double(limit)); });
}
Tensor Sampler::mask(Shape shape) {
  return input(shape, DType::u8, false, [&](int64_t) { return double(draw_uniform() < 0.5); });
}
Tensor Sampler::constant(Shape shape) {
  return input(shape, dtype_, false, [&](int64_t) { return 2 * draw_uniform() - 1; });
}

Tensors Sampler::differentiable() const {
  Tensors list;
  for (const Tensor& t : inputs_)
    if (t.requires_grad()) list.push_back(t);
  return list;
}

// ---- checks

std::vector<const Gradcheck*>& Gradcheck::all() {
  static std::vector<const Gradcheck*> checks;
  return checks;
}
Gradcheck::Gradcheck(std::string o, Example e, bool second, double r)
    : op(std::move(o)), example(std::move(e)), roundings(r), second_order(second) {
  all().push_back(this);
}

GradcheckResult gradcheck(const Gradcheck::Example& f, Device device, Layout layout) {
  Sampler s(DType::f64, device, DType::f64, layout);
  Tensors dx = gradients(f, s), x = s.differentiable();
  GradcheckResult result;
  for (size_t k = 0; k < x.size(); ++k) {
    std::vector<double> want;
    for (int64_t i = 0; i < x[k].numel(); ++i)
      want.push_back(central_difference(x[k], i, [&] { return loss(f, s); }));
    compare(result, values_or_zeros(dx[k], x[k].numel()), want, "input " + std::to_string(k));
  }
  return result;
}

GradcheckResult compare_with_f64(const Gradcheck::Example& f, DType dtype, Device device,
                                 Layout layout) {
  Sampler s(dtype, device, dtype, layout), reference(DType::f64, kCpu, dtype);
  GradcheckResult result;
  {
    NoGrad guard;
    Tensor y = f(s), want = f(reference);
    compare(result, y.to_vector(), want.to_vector(), "value");
  }
  Tensors dx = gradients(f, s), want = gradients(f, reference), x = s.differentiable();
  for (size_t k = 0; k < x.size(); ++k)
    compare(result, values_or_zeros(dx[k], x[k].numel()), values_or_zeros(want[k], x[k].numel()),
            "gradient of input " + std::to_string(k));
  return result;
}

GradcheckResult gradgradcheck(const Gradcheck::Example& f, Device device, Layout layout) {
  Sampler s(DType::f64, device, DType::f64, layout);
  Tensors dx = gradients(f, s, {.create_graph = true}), x = s.differentiable();
  auto weighted = [&](const Tensors& g) {  // Σ_k Σ_j d_kj (∂f/∂x_k)_j
    double sum = 0;
    for (size_t k = 0; k < g.size(); ++k) {
      std::vector<double> v = values_or_zeros(g[k], x[k].numel());
      for (size_t j = 0; j < v.size(); ++j) sum += weight(int64_t(j), 1.0 + double(k)) * v[j];
    }
    return sum;
  };
  Tensors roots, seeds;
  for (size_t k = 0; k < dx.size(); ++k) {
    if (!dx[k] || !dx[k].requires_grad()) continue;  // constant, or linear in everything
    roots.push_back(dx[k]);
    seeds.push_back(weights_for(dx[k], 1.0 + double(k)));
  }
  Tensors second = roots.empty() ? Tensors(x.size()) : run_backward(roots, seeds, x, false, {});
  GradcheckResult result;
  for (size_t k = 0; k < x.size(); ++k) {
    std::vector<double> want;
    for (int64_t i = 0; i < x[k].numel(); ++i)
      want.push_back(central_difference(x[k], i, [&] {
        EnableGrad enabled;
        return weighted(gradients(f, s));
      }));
    compare(result, values_or_zeros(second[k], x[k].numel()), want, "input " + std::to_string(k));
  }
  return result;
}

}  // namespace gradus
