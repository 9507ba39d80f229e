#include "ops/gemm_tensor.h"

#include "autograd/accumulate.h"
#include "core/elementwise.h"
#include "ops/reduce.h"

namespace gradus {
namespace {

/// A matrix (or a batch of them) in the form that BLAS knows: rows `ld` apart, perhaps transposed.
struct Operand {
  Tensor x;
  bool transposed = false;
  int64_t ld = 1;
};

Operand operand(const Tensor& x) {
  int64_t rows = x.size(-2), cols = x.size(-1);
  int64_t down = x.strides()[-2], right = x.strides()[-1];
  bool flat = right == 1 || cols <= 1, flat_transposed = down == 1 || rows <= 1;
  if (flat && (rows <= 1 || down >= std::max<int64_t>(1, cols)))
    return {x, false, rows <= 1 ? std::max<int64_t>(1, cols) : down};
  if (flat_transposed && (cols <= 1 || right >= std::max<int64_t>(1, rows)))
    return {x, true, cols <= 1 ? std::max<int64_t>(1, rows) : right};
  return {clone_values(x), false, std::max<int64_t>(1, cols)};
}

Shape batch_of(const Tensor& x) {
  Shape s = x.shape();
  s.erase(s.rank() - 1);
  s.erase(s.rank() - 1);
  return s;
}
Strides batch_strides(const Tensor& x) {
  Strides s = x.strides();
  s.erase(s.rank() - 1);
  s.erase(s.rank() - 1);
  return s;
}

void run(const Gemm& g, Device device, const char* a, const char* b, char* c, const Epilogue& e) {
  if (device.is_cuda()) return gemm_cuda(g, device, a, b, c, e);
  check(!e.bias && e.gelu == Epilogue::Gelu::none, "gemm: the CPU has no epilogues");
  gemm_cpu(g, a, b, c);
}

}  // namespace

Tensor t(const Tensor& x) {
  Shape shape = x.shape();
  Strides strides = x.strides();
  std::swap(shape[-1], shape[-2]);
  std::swap(strides[-1], strides[-2]);
  return x.alias(shape, strides, x.offset());
}

void gemm_into(const Tensor& c, const Tensor& a, const Tensor& b, double beta, const Epilogue& e) {
  Operand p = operand(a), q = operand(b);
  check(c.strides()[-1] == 1 || c.size(-1) <= 1, "gemm: the rows of the result ", c.describe(),
        " are not contiguous");
  c.will_write("gemm");
  if (c.numel() == 0) return;
  Gemm g{.transpose_a = p.transposed, .transpose_b = q.transposed, .m = c.size(-2), .n = c.size(-1),
         .k = a.size(-1), .lda = p.ld, .ldb = q.ld,
         .ldc = c.size(-2) > 1 ? c.strides()[-2] : std::max<int64_t>(1, c.size(-1)), .beta = beta,
         .type = a.dtype(), .type_c = c.dtype()};

  // The batch as merged dimensions; the innermost is one call, the others a loop of calls.
  Shape batch = batch_of(c), batch_a = batch_of(p.x), batch_b = batch_of(q.x);
  Strides sc = batch_strides(c), sa = batch_strides(p.x), sb = batch_strides(q.x);
  Walk<3> walk({&batch, &batch_a, &batch_b}, {&sc, &sa, &sb});
  int last = walk.rank - 1;
  g.batch = last < 0 ? 1 : walk.sizes[last];
  if (last >= 0) {
    g.stride_c = walk.strides[0][last];
    g.stride_a = walk.strides[1][last];
    g.stride_b = walk.strides[2][last];
  }
  int64_t element = size_of(a.dtype()), element_c = size_of(c.dtype());
  for (int64_t i = 0; i < walk.numel; i += g.batch) {
    int64_t at[3];
    walk.locate(i, at);
    run(g, c.device(), static_cast<char*>(p.x.raw()) + at[1] * element,
        static_cast<char*>(q.x.raw()) + at[2] * element,
        static_cast<char*>(c.raw()) + at[0] * element_c, e);
  }
}

void gemm_bias_into(const Tensor& c, const Tensor& a, const Tensor& b, const Tensor& bias) {
  if (!c.device().is_cuda() || a.size(-1) == 0 || c.dtype() == DType::f64) {  // no such epilogue in f64
    write_values(c, bias.alias(c.shape(), {0, bias.strides()[0]}, bias.offset()));
    return gemm_into(c, a, b, 1);
  }
  Tensor dense = bias.is_contiguous() ? bias : clone_values(bias);
  gemm_into(c, a, b, 0, {.bias = dense.raw()});
}

Tensor gemm(const Tensor& a, const Tensor& b) {
  Shape shape = broadcast(batch_of(a), batch_of(b), "matmul");
  shape.push_back(a.size(-2));
  shape.push_back(b.size(-1));
  Tensor c = empty(shape, a.dtype(), a.device());
  gemm_into(c, a, b, 0);
  return c;
}

Tensor rows_of(const Tensor& x) {
  Tensor dense = x.is_contiguous() ? x : clone_values(x);
  int64_t width = x.size(-1), rows = 1;
  for (int d = 0; d + 1 < x.rank(); ++d) rows *= x.shape()[d];
  return dense.alias({rows, width}, {width, 1}, dense.offset());
}

namespace {
/// The main gradient that gradients of the type of dY are added to, or null.
MainGrad* main_gradient(const Tensor& dY, Need need) {
  DType sums = dY.dtype() == DType::f64 ? DType::f64 : DType::f32;
  bool fits = need.into && need.into->buffer.dtype() == sums && need.into->buffer.is_contiguous();
  return fits ? need.into : nullptr;
}
}  // namespace

Tensor weight_gradient(const Tensor& dY, const Tensor& X, Need need) {
  if (!need) return {};
  MainGrad* into = main_gradient(dY, need);
  if (!into) return gemm(t(dY), X);
  gemm_into(into->buffer, t(dY), X, into->beta());
  return {};
}

Tensor bias_gradient(const Tensor& dY, Need need) {
  if (!need) return {};
  MainGrad* into = main_gradient(dY, need);
  if (!into) return sum(dY, {0});
  sum_rows_into(into->buffer, dY, into->beta());
  return {};
}

}  // namespace gradus
