#include "optim/split_master.h"

#include "autograd/accumulate.h"
#include "core/elementwise.h"
#include "ops/ops.h"

namespace gradus::optim {
namespace {

struct Join {
  GRADUS_HD float operator()(float p, int16_t low) const { return master_of(bf16(p), low); }
};
struct Low {
  GRADUS_HD int16_t operator()(float theta) const { return low_of(theta, bf16(theta)); }
};

}  // namespace

Tensor StateView::read() const {
  if (!low) return values.detach();
  const Tensor theta = empty(shape(), DType::f32, values.device());
  const Walk<3> walk({&shape(), &shape(), &shape()},
                     {&theta.strides(), &values.strides(), &low.strides()});
  elementwise(theta.device(), walk, Join{}, theta.data<float>(),
              static_cast<const bf16*>(values.data<bf16>()),
              static_cast<const int16_t*>(low.raw()));
  return theta;
}

void StateView::write(const Tensor& from) const {
  if (!low) return copy_(values.detach(), from.detach());
  const Tensor theta = cast(to(from.detach(), values.device()), DType::f32);
  write_values(values.detach(), theta);  // rounds
  low.will_write("a master");
  const Walk<2> walk({&shape(), &shape()}, {&low.strides(), &theta.strides()});
  elementwise(low.device(), walk, Low{}, static_cast<int16_t*>(low.raw()),
              static_cast<const float*>(theta.data<float>()));
}

}  // namespace gradus::optim
