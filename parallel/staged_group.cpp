#include "parallel/staged_group.h"

#include "autograd/node.h"
#include "ops/ops.h"

namespace gradus::parallel {
namespace {

Tensor on_host(const Tensor& x) {
  const NoGrad no_grad;
  return to(x, kCpu);
}
Tensor like_on_host(const Tensor& x) { return empty(x.shape(), x.dtype(), kCpu); }

}  // namespace

StagedGroup::StagedGroup(Group& host)
    : Group(host.name(), host.rank(), host.world_ranks()), host_(host) {}

void StagedGroup::all_reduce(const Tensor& x, Reduce how) {
  const Tensor h = on_host(x);
  host_.all_reduce(h, how);
  copy_(x.detach(), h);
}

void StagedGroup::broadcast(const Tensor& x, int root) {
  const Tensor h = rank() == root ? on_host(x) : like_on_host(x);
  host_.broadcast(h, root);
  if (rank() != root) copy_(x.detach(), h);
}

void StagedGroup::all_gather(const Tensor& all, const Tensor& part) {
  const Tensor h = like_on_host(all);
  host_.all_gather(h, on_host(part));
  copy_(all.detach(), h);
}

void StagedGroup::reduce_scatter(const Tensor& part, const Tensor& all) {
  const Tensor h = like_on_host(part);
  host_.reduce_scatter(h, on_host(all));
  copy_(part.detach(), h);
}

void StagedGroup::all_to_all(const Tensor& out, const Tensor& in) {
  const Tensor h = like_on_host(out);
  host_.all_to_all(h, on_host(in));
  copy_(out.detach(), h);
}

void StagedGroup::send(const Tensor& x, int to, int tag) { host_.send(on_host(x), to, tag); }

void StagedGroup::receive(const Tensor& x, int from, int tag) {
  const Tensor h = like_on_host(x);
  host_.receive(h, from, tag);
  copy_(x.detach(), h);
}

void StagedGroup::barrier() { host_.barrier(); }

std::shared_ptr<Group> StagedGroup::split(int color, int key, const std::string& name) {
  return host_.split(color, key, name);
}

}  // namespace gradus::parallel
