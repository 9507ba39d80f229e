#pragma once
// Gradient checking: the derivative that an op claims against the one that it has.
//
// An op registers examples of its use beside its definition:
//
//   static const Gradcheck check("gelu", [](Sampler& s) { return gelu(s.normal({3, 5})); });
//
// Each example is run on every device and floating type:
//   f64       (f(x + εv) − f(x − εv)) / 2ε, one element at a time, against backward
//   the rest  backward in that type against backward in f64 from the same (rounded) inputs
// and again with inputs that are strided views. With f = Σ c_i y_i and uneven c: were all c equal, the
// gradient of a softmax or of a norm would vanish, and a backward that returns 0 would pass.
#include <string>

#include "autograd/tensor.h"

namespace gradus {

/// How a Sampler lays its tensors out in memory.
enum class Layout { contiguous, transposed, sliced };

/// Hands an example its inputs: fresh ones on the first run, the same ones on every replay. The
/// values depend only on the order of the calls, and are rounded to `rounding` first, so that a run in
/// f64 can see exactly what a run in bf16 sees.
class Sampler {
 public:
  Sampler(DType dtype, Device device, DType rounding, Layout layout = Layout::contiguous)
      : dtype_(dtype), rounding_(rounding), device_(device), layout_(layout) {}

  /// Leaves that require a gradient.
  Tensor normal(Shape shape);                               // mean 0, deviation 1
  Tensor uniform(Shape shape, double low, double high);     // inside the open interval
  /// Distinct values at least 0.1 apart, shuffled: for maxima, whose gradient jumps at ties.
  Tensor distinct(Shape shape);
  /// Integers in [0, limit), without gradient.
  Tensor ids(Shape shape, int64_t limit, DType dtype = DType::i64);
  /// u8 that is 1 with probability ½, without gradient.
  Tensor mask(Shape shape);
  /// Values without gradient.
  Tensor constant(Shape shape);

  DType dtype() const { return dtype_; }
  Device device() const { return device_; }

  void rewind() { next_ = 0; }
  /// The inputs that require a gradient.
  Tensors differentiable() const;

 private:
  template <class Draw>
  Tensor input(Shape shape, DType dtype, bool grad, Draw draw);
  double draw_uniform();

  DType dtype_, rounding_;
  Device device_;
  Layout layout_;
  uint64_t draws_ = 0;
  size_t next_ = 0;
  std::vector<Tensor> inputs_;
};

/// An example of an op. Operations in the 16-bit types may differ from f64 by `roundings` unit
/// roundoffs of the largest gradient (or 1): the number of roundings on the longest path through the
/// example, with room for their sum.
struct Gradcheck {
  using Example = std::function<Tensor(Sampler&)>;
  std::string op;
  Example example;
  double roundings = 16;
  bool second_order = false;  // listed in the contract: gradgradcheck runs as well

  Gradcheck(std::string op, Example example, bool second_order = false, double roundings = 16);
  static std::vector<const Gradcheck*>& all();
};

/// Largest error found, relative to max(1, largest gradient), and where.
struct GradcheckResult {
  double worst = 0;
  std::string where;
  int64_t compared = 0;  // elements; 0 would mean that nothing was checked
};

/// f64: against central differences.
GradcheckResult gradcheck(const Gradcheck::Example& f, Device device, Layout layout);
/// `dtype` on `device` against f64 on the CPU; values and gradients.
GradcheckResult compare_with_f64(const Gradcheck::Example& f, DType dtype, Device device,
                                 Layout layout);
/// f64, second order: the gradient of Σ d_j (∂f/∂x)_j against central differences of ∂f/∂x.
GradcheckResult gradgradcheck(const Gradcheck::Example& f, Device device, Layout layout);

}  // namespace gradus
