#include "autograd/accumulate.h"

#include "autograd/apply.h"
#include "core/elementwise.h"

namespace gradus {
namespace {

struct Identity {
  template <class T>
  GRADUS_HD T operator()(T x) const { return x; }
};
struct Plus {
  template <class A, class B>
  GRADUS_HD A operator()(A a, B b) const { return a + A(b); }
};
struct One {
  GRADUS_HD float operator()() const { return 1; }
};

Walk<1> walk(const Tensor& y) { return {{&y.shape()}, {&y.strides()}}; }
Walk<2> walk(const Tensor& y, const Tensor& x) {
  return {{&y.shape(), &x.shape()}, {&y.strides(), &x.strides()}};
}
Walk<3> walk(const Tensor& y, const Tensor& a, const Tensor& b) {
  return {{&y.shape(), &a.shape(), &b.shape()}, {&y.strides(), &a.strides(), &b.strides()}};
}

/// y ← a + b, in the type of y and a (which may be wider than b's).
void add_values(const Tensor& y, const Tensor& a, const Tensor& b) {
  dispatch_floating("accumulate", y.dtype(), [&]<class Y>() {
    if (b.dtype() == y.dtype())
      return elementwise(y.device(), walk(y, a, b), Plus{}, y.data<Y>(), a.data<Y>(), b.data<Y>());
    if constexpr (sizeof(Y) >= 4)
      return dispatch_floating("accumulate", b.dtype(), [&]<class B>() {
        elementwise(y.device(), walk(y, a, b), Plus{}, y.data<Y>(), a.data<Y>(), b.data<B>());
      });
    fail("accumulate: a gradient of ", b.dtype(), " cannot be added to one of ", y.dtype());
  });
}

/// A sum over the uses of a tensor, as an op, for the backward of a backward.
struct SumOfUses {
  static constexpr auto name = "sum_of_uses";
  static constexpr bool recordable = true;
  Tensor forward(const Tensor& a, const Tensor& b) {
    Tensor y = empty_like(a);
    add_values(y, a, b);
    return y;
  }
  Tensors backward(const Tensor& dy) { return {dy, dy}; }
};

}  // namespace

void accumulate(Tensor& into, Tensor g) {
  if (!into) {
    into = std::move(g);
    return;
  }
  check(into.shape() == g.shape(), "a gradient of shape ", g.shape(), " arrived where ", into.shape(),
        " was expected");
  if (grad_enabled()) {
    into = apply(SumOfUses{}, into, g);
  } else if (into.is_sole_owner() && into.is_contiguous() && !into.requires_grad()) {
    add_values(into, into, g);
  } else {
    Tensor sum = empty(into.shape(), into.dtype(), into.device());
    add_values(sum, into, g);
    into = std::move(sum);
  }
}

void write_values(const Tensor& to, const Tensor& from, double beta) {
  if (to.shape() != from.shape() || to.device() != from.device()) [[unlikely]]
    fail("copy of ", from.describe(), " into ", to.describe(),
         ": shapes and devices must be the same");
  to.will_write("copy");
  if (beta != 0) return add_values(to, to, from);
  dispatch_all(to.dtype(), [&]<class Y>() {
    dispatch_all(from.dtype(), [&]<class X>() {
      elementwise(to.device(), walk(to, from), Identity{}, to.data<Y>(), from.data<X>());
    });
  });
}

Tensor clone_values(const Tensor& x) {
  Tensor y = empty_like(x);
  if (x.is_contiguous())
    copy_bytes(y.raw(), y.device(), x.raw(), x.device(), size_t(bytes_of(x)));
  else
    write_values(y, x.detach());
  return y;
}

Tensor to_host(const Tensor& x) {
  Tensor dense = x.is_contiguous() ? x.detach() : clone_values(x);
  if (!x.device().is_cuda()) return dense;
  Tensor host = empty(x.shape(), x.dtype());
  copy_bytes(host.raw(), kCpu, dense.raw(), dense.device(), size_t(bytes_of(dense)));
  return host;
}

Tensor ones_like(const Tensor& x) {
  Tensor y = empty_like(x);
  dispatch_all(x.dtype(), [&]<class T>() {
    elementwise(y.device(), walk(y), One{}, y.data<T>());
  });
  return y;
}

}  // namespace gradus
