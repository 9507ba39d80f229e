// Copies: to another type, to another device, to memory without gaps. All are linear, and each
// backward is the copy in the other direction:
//
//   cast   dx = dy in the type of x         contiguous, clone   dx = dy
//   to     dx = dy on the device of x
#include "autograd/accumulate.h"
#include "autograd/apply.h"
#include "autograd/gradcheck.h"
#include "core/cuda.h"
#include "ops/ops.h"

namespace gradus {
namespace {

/// The values of x on `device`, without gaps.
Tensor move_values(const Tensor& x, Device device) {
  Tensor dense = x.is_contiguous() ? x : clone_values(x);
  Tensor y = empty(x.shape(), x.dtype(), device);
  copy_bytes(y.raw(), device, dense.raw(), dense.device(), size_t(bytes_of(y)));
  return y;
}

struct Cast {
  static constexpr auto name = "cast";
  static constexpr bool recordable = true;
  DType dtype{}, from{};
  Tensor forward(const Tensor& x) {
    from = x.dtype();
    Tensor y = empty(x.shape(), dtype, x.device());
    write_values(y, x);
    return y;
  }
  Tensor backward(const Tensor& dy) { return cast(dy, from); }
};

struct To {
  static constexpr auto name = "to";
  static constexpr bool recordable = true;
  Device device{}, from{};
  Tensor forward(const Tensor& x) {
    from = x.device();
    return move_values(x, device);
  }
  Tensor backward(const Tensor& dy) { return to(dy, from); }
};

struct Contiguous {
  static constexpr auto name = "contiguous";
  static constexpr bool recordable = true;
  Tensor forward(const Tensor& x) { return clone_values(x); }
  Tensor backward(const Tensor& dy) { return dy; }
};

struct Clone {
  static constexpr auto name = "clone";
  static constexpr bool recordable = true;
  Tensor forward(const Tensor& x) { return clone_values(x); }
  Tensor backward(const Tensor& dy) { return dy; }
};

/// The two are different views of one storage, so that writing one may change what is read of the
/// other.
bool may_overlap(const Tensor& a, const Tensor& b) {
  bool same_view = a.offset() == b.offset() && a.strides() == b.strides() && a.dtype() == b.dtype();
  return a.impl()->storage == b.impl()->storage && !same_view;
}

}  // namespace

Tensor cast(const Tensor& x, DType dtype) {
  check(bool(x), "cast of an undefined tensor");
  return x.dtype() == dtype ? x : apply(Cast{.dtype = dtype}, x);
}

Tensor to(const Tensor& x, Device device) {
  check(bool(x), "to of an undefined tensor");
  return x.device() == device ? x : apply(To{.device = device}, x);
}

Tensor contiguous(const Tensor& x) {
  check(bool(x), "contiguous of an undefined tensor");
  return x.is_contiguous() ? x : apply(Contiguous{}, x);
}

Tensor clone(const Tensor& x) {
  check(bool(x), "clone of an undefined tensor");
  return apply(Clone{}, x);
}

void copy_(const Tensor& into, const Tensor& from) {
  check(bool(into) && bool(from), "copy_: an operand is undefined");
  check(into.shape() == from.shape(), "copy_ of shape ", from.shape(), " into shape ",
        into.shape());
  if (grad_enabled() && from.requires_grad()) [[unlikely]]
    fail("copy_ is never recorded, so the history of ", from.describe(),
         " would be lost; detach() it, or copy under NoGrad");
  Tensor source = from.device() == into.device() ? from : move_values(from, into.device());
  if (may_overlap(into, source)) source = clone_values(source);
  if (into.is_contiguous() && source.is_contiguous() && into.dtype() == source.dtype()) {
    into.will_write("copy_");
    copy_bytes(into.raw(), into.device(), source.raw(), source.device(), size_t(bytes_of(into)));
  } else {
    write_values(into, source);
  }
}

static const Gradcheck checks[] = {
    {"cast",
     [](Sampler& s) {
       return cast(s.normal({3, 4}), DType::f64);
     },
     true},
    {"cast",
     [](Sampler& s) {
       return cast(mul(cast(s.normal({3, 4}), DType::f64), 1.5), s.dtype());
     },
     true},
    {"cast",
     [](Sampler& s) {
       return cast(s.normal({0, 4}), DType::f64);
     }},
    {"to",
     [](Sampler& s) {
       return to(mul(s.normal({3, 4}), 2), kCpu);
     },
     true},
    {"to",
     [](Sampler& s) {
       return to(to(s.normal({2, 3}), kCpu), s.device());
     },
     true},
    {"contiguous",
     [](Sampler& s) {
       return contiguous(transpose(s.normal({3, 4}), 0, 1));
     },
     true},
    {"contiguous",
     [](Sampler& s) {
       return contiguous(expand(s.normal({3, 1}), {2, 3, 4}));
     },
     true},
    {"clone",
     [](Sampler& s) {
       return clone(s.normal({3, 4}));
     },
     true},
    {"clone",
     [](Sampler& s) {
       return clone(s.normal({2, 0}));
     }},
};

}  // namespace gradus
