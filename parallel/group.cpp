#include "parallel/group.h"

#include "parallel/gpu_group.h"

namespace gradus::parallel {

Group& Group::on(Device device) {
  if (!device.is_cuda()) return *this;
  if (!on_gpu_) on_gpu_ = make_gpu_group(*this, device);
  return *on_gpu_;
}

}  // namespace gradus::parallel
