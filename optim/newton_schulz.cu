#include "optim/newton_schulz.h"

#include <span>

#include "autograd/accumulate.h"
#include "core/elementwise.h"
#include "ops/gemm.h"
#include "ops/ops.h"
#include "ops/reduce.h"

namespace gradus::optim {
namespace {

// After five steps (eight for polar_express: 1), values of s in [0.01, 1] lie in
constexpr Coefficients kSimple[] = {{3.4445, -4.7750, 2.0315}};  // [0.68, 1.13]  [Jordan 2024]
constexpr Coefficients kQuintic[] = {                            // [0.978, 1.032]
    {4.0848, -6.8946, 2.9270},
    {3.9505, -6.3029, 2.6377},
    {3.7418, -5.5913, 2.3037},
    {2.8769, -3.1427, 1.2046},
    {2.8366, -3.0525, 1.2012}};
constexpr Coefficients kPolarExpress[] = {  // [0.87, 1.12]  [Amsel et al. 2025]
    {8.2051, -22.9019, 16.4607}, {4.0664, -2.8612, 0.5184}, {3.9096, -2.8234, 0.5250},
    {3.2856, -2.4153, 0.4853},   {2.2779, -1.6198, 0.3985}, {1.8726, -1.2307, 0.3585},
    {1.8564, -1.2132, 0.3568},   {1.875, -1.25, 0.375}};
constexpr Coefficients kCans[] = {  // [0.88, 1.12]  [Grishina et al. 2025]
    {8.4703, -25.1081, 18.6293},
    {4.1828, -3.1087, 0.5806},
    {3.9619, -2.9541, 0.5630},
    {3.2866, -2.4647, 0.5074},
    {2.2737, -1.6447, 0.4162}};
constexpr Coefficients kAol[] = {  // four steps: [−1.08, 1.08]; see warning_of
    {4.0098, -7.0585, 2.4635},
    {3.4585, -5.5479, 2.5959},
    {2.7573, -3.2939, 1.4254},
    {2.7215, -3.0494, 1.3169}};
constexpr Coefficients kCubic5[] = {{3.3656576, -3.3420992, 0},  // [0.77, 1.30]
                                    {2.5744352, -1.4957376, 0},
                                    {2.5368962, -1.4312570, 0},
                                    {2.4418906, -1.2764040, 0},
                                    {2.2230472, -0.9630650, 0}};
constexpr Coefficients kConverging{2, -1.5, 0.5};  // f(1) = 1, f'(1) = f''(1) = 0

Coefficients cycled(std::span<const Coefficients> set, int i) {
  return set[size_t(i) % set.size()];
}
Coefficients last_repeated(std::span<const Coefficients> set, int i) {
  return set[std::min(size_t(i), set.size() - 1)];
}

/// C ← α op(A) op(B) + β C for contiguous matrices of one type.
struct Operand {
  const Tensor& matrix;
  bool transposed = false;
  int64_t rows() const { return matrix.size(transposed ? 1 : 0); }
  int64_t columns() const { return matrix.size(transposed ? 0 : 1); }
};
void product(const Tensor& c, Operand a, Operand b, double alpha, double beta) {
  const Gemm g{.transpose_a = a.transposed,
               .transpose_b = b.transposed,
               .m = c.size(0),
               .n = c.size(1),
               .k = a.columns(),
               .lda = a.matrix.size(1),
               .ldb = b.matrix.size(1),
               .ldc = c.size(1),
               .alpha = alpha,
               .beta = beta,
               .type = c.dtype(),
               .type_c = c.dtype()};
#if defined(GRADUS_CUDA)
  if (c.device().is_cuda())
    return gemm_cuda(g, c.device(), a.matrix.raw(), b.matrix.raw(), c.raw());
#endif
  gemm_cpu(g, a.matrix.raw(), b.matrix.raw(), c.raw());
}

template <class A>
struct SumOfSquares {
  using State = double;
  GRADUS_HD State identity() const { return 0; }
  GRADUS_HD State add(State s, A x, int64_t) const { return s + double(x) * double(x); }
  GRADUS_HD State combine(State a, State b) const { return a + b; }
  GRADUS_HD double finish(State s) const { return s; }
};

/// x / ‖x‖, the norm being on the device. Formed in double: 1/‖x‖ need not be an f32.
struct Normalize {
  const double* squares;
  template <class T>
  GRADUS_HD T operator()(T x) const {
    return *squares > 0 ? T(double(x) / std::sqrt(*squares)) : T(0);
  }
};

Tensor normalized(const Tensor& u, DType products) {
  const Tensor squares = squares_of(u), x = empty(u.shape(), products, u.device());
  const Strides steps = contiguous_strides(u.shape());
  const Walk<2> walk({&u.shape(), &u.shape()}, {&steps, &u.strides()});
  const Normalize f{squares.data<double>()};
  dispatch_floating("orthogonalize", u.dtype(), [&]<class T>() {
    dispatch_floating("orthogonalize", products, [&]<class P>() {
      if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>)
        elementwise(u.device(), walk, f, x.data<P>(), static_cast<const T*>(u.data<T>()));
    });
  });
  return x;
}

}  // namespace

Coefficients coefficients_of(const NewtonSchulz& method, int i) {
  switch (method.polynomials) {
    case Polynomials::simple:
      return cycled(kSimple, i);
    case Polynomials::quintic:
      return cycled(kQuintic, i);
    case Polynomials::polar_express:
      return last_repeated(kPolarExpress, i);
    case Polynomials::cans:
      return last_repeated(kCans, i);
    case Polynomials::aol:
      return cycled(kAol, i);
    case Polynomials::cubic5:
      return cycled(kCubic5, i);
    case Polynomials::deepseekv4:
      return i < 8 ? kSimple[0] : kConverging;
  }
  fail("no such set of polynomials: ", int(method.polynomials));
}

void validate(const NewtonSchulz& m) {
  check(m.steps > 0, "Newton–Schulz: the number of steps must be positive, got ", m.steps);
  check(m.polynomials != Polynomials::cubic5 || m.steps == 5,
        "Newton–Schulz: cubic5 has exactly 5 steps, got ", m.steps);
  coefficients_of(m, 0);
}

Polynomials polynomials_named(const std::string& name) {
  constexpr const char* kNames[] = {"simple", "quintic", "polar_express", "cans",
                                    "aol",    "cubic5",  "deepseekv4"};
  for (int i = 0; i < 7; ++i)
    if (name == kNames[i]) return Polynomials(i);
  fail(
      "Newton–Schulz: the sets are simple, quintic, polar_express, cans, aol, cubic5 and "
      "deepseekv4; got ",
      name);
}

std::string warning_of(Polynomials set) {
  if (set != Polynomials::aol) return "";
  return "aol changes the sign of singular values above 0.88 ‖U‖: a gradient that one direction "
         "dominates is followed uphill; quintic does not";
}

Tensor squares_of(const Tensor& x) {
  return reduce<SumOfSquares>("squares_of", x, (DimSet(1) << x.rank()) - 1, {1});
}

Tensor orthogonalize(const Tensor& u, const NewtonSchulz& method, DType products) {
  validate(method);
  check(u && u.rank() == 2 && (u.dtype() == DType::f32 || u.dtype() == DType::f64),
        "orthogonalize: a matrix of f32 or f64 is needed, got ", u ? u.describe() : Description{u});
  check(is_floating(products), "orthogonalize: products of ", products);
  Tensor x = normalized(u, products), next = empty_like(x);
  const bool wide = u.size(0) <= u.size(1);
  const int64_t n = std::min(u.size(0), u.size(1));
  const Tensor gram = empty({n, n}, products, u.device()), sum = empty_like(gram);
  for (int i = 0; i < method.steps; ++i) {
    const auto [a, b, c] = coefficients_of(method, i);
    product(gram, {x, !wide}, {x, wide}, 1, 0);  // A = X Xᵀ, or XᵀX
    if (c != 0) {
      write_values(sum, gram);
      product(sum, {gram}, {gram}, c, b);  // B = bA + cA²
    }
    const Tensor& mixed = c != 0 ? sum : gram;
    const double factor = c != 0 ? 1 : b;
    write_values(next, x);
    wide ? product(next, {mixed}, {x}, factor, a)   // aX + BX
         : product(next, {x}, {mixed}, factor, a);  // aX + XB
    std::swap(x, next);
  }
  return x;
}

}  // namespace gradus::optim
