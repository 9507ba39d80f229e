// Comparison and choice.
//
//   a < b, a = b, …     u8, 1 where it holds; a NaN is equal to nothing, less than nothing
//   where               y = m ? a : b        da = m ? dy : 0,   db = m ? 0 : dy
//   masked_fill         y = m ? value : x    dx = m ? 0 : dy
//
// The side that was not chosen gets 0, not m·dy: 0 times a NaN would be a NaN. The mask m is u8
// (anything but 0 is true) and broadcasts like the others.
#include "autograd/apply.h"
#include "autograd/gradcheck.h"
#include "ops/map.h"
#include "ops/ops.h"

namespace gradus {
namespace {

/// All six comparisons: the answer in each of the four cases.
struct Compare {
  uint8_t less, equal, greater, unordered;
  template <class T>
  GRADUS_HD uint8_t operator()(T a, T b) const {
    return a < b ? less : a == b ? equal : a > b ? greater : unordered;
  }
};

struct Choose {
  GRADUS_HD auto operator()(uint8_t m, auto a, auto b) const { return m ? a : b; }
};
template <class T>
struct Fill {
  T value;
  bool where;
  GRADUS_HD T operator()(uint8_t m, T x) const { return bool(m) == where ? value : x; }
};

void check_mask(const char* op, const Tensor& mask, const Tensor& x) {
  check(bool(mask), op, ": the mask is undefined");
  check(mask.dtype() == DType::u8, op, ": the mask must be u8, got ", mask.dtype());
  check(mask.device() == x.device(), op, ": the mask is on ", mask.device(), ", the values on ",
        x.device());
}

Tensor fill(const Tensor& x, const Tensor& mask, double value, bool where);

/// y = value where the mask is `where`, else x.
struct MaskedFill {
  static constexpr auto name = "masked_fill";
  static constexpr bool recordable = true;
  double value = 0;
  bool where = true;
  Shape shape{};
  Saved mask{};
  Tensor forward(const Tensor& x, const Tensor& m) {
    shape = x.shape(), mask = m;
    Tensor y = empty(detail::common_shape(name, x, m), x.dtype(), x.device());
    Walk<3> walk({&y.shape(), &m.shape(), &x.shape()}, {&y.strides(), &m.strides(), &x.strides()});
    dispatch_all(x.dtype(), [&]<class T>() {
      Fill<Compute<T>> f{Compute<T>(number_as<T>(name, value)), where};
      elementwise(y.device(), walk, f, y.data<T>(), static_cast<const uint8_t*>(m.data<uint8_t>()),
                  static_cast<const T*>(x.data<T>()));
    });
    return y;
  }
  Tensors backward(const Tensor& dy) { return {sum_to(fill(dy, *mask, 0, where), shape), {}}; }
};

Tensor fill(const Tensor& x, const Tensor& mask, double value, bool where) {
  return apply(MaskedFill{.value = value, .where = where}, x, mask);
}

struct Where {
  static constexpr auto name = "where";
  static constexpr bool recordable = true;
  Shape a{}, b{};
  Saved mask{};
  Tensor forward(const Tensor& m, const Tensor& p, const Tensor& q) {
    a = p.shape(), b = q.shape(), mask = m;
    Tensor y = empty(detail::common_shape(name, m, p, q), p.dtype(), p.device());
    Walk<4> walk({&y.shape(), &m.shape(), &p.shape(), &q.shape()},
                 {&y.strides(), &m.strides(), &p.strides(), &q.strides()});
    dispatch_all(p.dtype(), [&]<class T>() {
      elementwise(y.device(), walk, Choose{}, y.data<T>(),
                  static_cast<const uint8_t*>(m.data<uint8_t>()),
                  static_cast<const T*>(p.data<T>()), static_cast<const T*>(q.data<T>()));
    });
    return y;
  }
  Tensors backward(const Tensor& dy, Needs need) {
    return {Tensor{}, need[1] ? sum_to(fill(dy, *mask, 0, false), a) : Tensor{},
            need[2] ? sum_to(fill(dy, *mask, 0, true), b) : Tensor{}};
  }
};

}  // namespace

Tensor equal(const Tensor& a, const Tensor& b) {
  return map_to_mask("equal", Compare{0, 1, 0, 0}, a, b);
}
Tensor not_equal(const Tensor& a, const Tensor& b) {
  return map_to_mask("not_equal", Compare{1, 0, 1, 1}, a, b);
}
Tensor less(const Tensor& a, const Tensor& b) {
  return map_to_mask("less", Compare{1, 0, 0, 0}, a, b);
}
Tensor less_equal(const Tensor& a, const Tensor& b) {
  return map_to_mask("less_equal", Compare{1, 1, 0, 0}, a, b);
}
Tensor greater(const Tensor& a, const Tensor& b) {
  return map_to_mask("greater", Compare{0, 0, 1, 0}, a, b);
}
Tensor greater_equal(const Tensor& a, const Tensor& b) {
  return map_to_mask("greater_equal", Compare{0, 1, 1, 0}, a, b);
}

Tensor where(const Tensor& mask, const Tensor& a, const Tensor& b) {
  detail::check_operands("where", a, b);
  check_mask("where", mask, a);
  return apply(Where{}, mask, a, b);
}

Tensor masked_fill(const Tensor& x, const Tensor& mask, double value) {
  check(bool(x), "masked_fill of an undefined tensor");
  check_mask("masked_fill", mask, x);
  return fill(x, mask, value, true);
}

static const Gradcheck checks[] = {
    {"where",
     [](Sampler& s) {
       return where(s.mask({3, 4}), s.normal({3, 4}), s.normal({3, 4}));
     },
     true},
    {"where",
     [](Sampler& s) {
       Tensor a = s.normal({3, 1}), b = s.normal({4});
       return where(s.mask({2, 1, 4}), mul(a, a), mul(b, b));
     },
     true},
    {"where",
     [](Sampler& s) {
       return where(s.mask({0, 4}), s.normal({0, 4}), s.normal({4}));
     }},
    {"masked_fill",
     [](Sampler& s) {
       return masked_fill(s.normal({3, 4}), s.mask({3, 4}), -2.5);
     },
     true},
    {"masked_fill",
     [](Sampler& s) {
       Tensor x = s.normal({3, 1});
       return masked_fill(mul(x, x), s.mask({2, 1, 4}), 0);
     },
     true},
    {"masked_fill",
     [](Sampler& s) {
       return masked_fill(s.normal({3, 0}), s.mask({3, 1}), 1);
     }},
};

}  // namespace gradus
