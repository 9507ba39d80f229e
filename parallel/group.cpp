#include "parallel/group.h"

#include "parallel/staged_group.h"

namespace gradus::parallel {

Group& Group::on(Device device) {
  if (!device.is_cuda()) return *this;
  if (!on_gpu_) on_gpu_ = std::make_unique<StagedGroup>(*this);
  return *on_gpu_;
}

}  // namespace gradus::parallel
