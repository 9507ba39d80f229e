#include "parallel/nccl_group.h"

#include "core/cuda.h"
#include "core/scope.h"
#include "parallel/gpu_group.h"

#if defined(GRADUS_NCCL)
#include <cstdlib>

#include "parallel/call_ledger.h"
#include "parallel/nccl_watchdog.h"

namespace gradus::parallel {
namespace {

// NVLink multicast (NVLS) stays off: a program that ends inside of it can leave a host's GPUs out of service.
// NCCL's configuration has no field for that, only its environment has. So it is set here, before main() and
// any thread.
[[maybe_unused]] const int multicast_is_off = setenv("NCCL_NVLS_ENABLE", "0", 1);

ncclUniqueId common_id(const Communicator& host) {
  ncclUniqueId id{};
  if (host.rank() == 0) check(ncclGetUniqueId(&id), "asking NCCL for an id");
  const auto all = host.all_gather_text(std::string(id.internal, sizeof(id.internal)));
  all[0].copy(id.internal, sizeof(id.internal));
  return id;
}

ncclComm_t make_comm(const Communicator& host, Device device, ncclUniqueId id) {
  (void)cuda::stream(device);  // makes the GPU the current one
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 1;
  ncclComm_t comm = nullptr;
  check(ncclCommInitRankConfig(&comm, host.size(), id, host.rank(), &config),
        "making a NCCL communicator for ", host.describe());
  return comm;
}

NcclWatch watch_of(Group& host) {
  return {host.timeout(),
          "rank " + std::to_string(host.world_ranks()[size_t(host.rank())]) + " of " +
              view_of(host).describe(),
          host.failure_probe(), [&host](const std::string& why) { host.end_waits(why); }};
}

class NcclGroup final : public Group {
 public:
  NcclGroup(Group& host, Device device, bool one_process)
      : NcclGroup(host, device, one_process, common_id(view_of(host))) {}

  NcclGroup(Group& host, Device device, bool one_process, const ncclUniqueId& id)
      : Group(host.name(), host.rank(), host.world_ranks()),
        host_(host),
        device_(device),
        ledger_(one_process ? CallLedger::of({id.internal, sizeof(id.internal)}) : nullptr),
        watchdog_(make_comm(view_of(host), device, id), device, watch_of(host)) {}

  void barrier() override { host_.barrier(); }
  std::shared_ptr<Group> split(int color, int key, const std::string& name) override {
    return host_.split(color, key, name);
  }

  void all_reduce(const Tensor& x, Reduce how) override {
    Call call = call_of("all_reduce", x);
    call.how = how;
    together(call, x, [&](ncclComm_t comm, cudaStream_t stream) {
      return ncclAllReduce(x.raw(), x.raw(), size_t(x.numel()), nccl_type(x.dtype()),
                           nccl_reduction(how), comm, stream);
    });
  }

  void broadcast(const Tensor& x, int root) override {
    Call call = call_of("broadcast", x);
    call.root = root;
    together(call, x, [&](ncclComm_t comm, cudaStream_t stream) {
      return ncclBroadcast(x.raw(), x.raw(), size_t(x.numel()), nccl_type(x.dtype()), root, comm,
                           stream);
    });
  }

  void all_gather(const Tensor& all, const Tensor& part) override {
    together(call_of("all_gather", part), part, [&](ncclComm_t comm, cudaStream_t stream) {
      return ncclAllGather(part.raw(), all.raw(), size_t(part.numel()), nccl_type(part.dtype()),
                           comm, stream);
    });
  }

  void reduce_scatter(const Tensor& part, const Tensor& all) override {
    together(call_of("reduce_scatter", part), part, [&](ncclComm_t comm, cudaStream_t stream) {
      return ncclReduceScatter(all.raw(), part.raw(), size_t(part.numel()), nccl_type(part.dtype()),
                               ncclSum, comm, stream);
    });
  }

  // Messages to and from all ranks, posted as one group: one after the other they would wait for each other.
  void all_to_all(const Tensor& out, const Tensor& in) override {
    const size_t count = size_t(in.numel() / size());
    const ncclDataType_t type = nccl_type(in.dtype());
    const auto part = [&](const Tensor& x, int k) {
      return static_cast<char*>(x.raw()) + size_t(k) * count * size_t(size_of(x.dtype()));
    };
    together(call_of("all_to_all", in), in, [&](ncclComm_t comm, cudaStream_t stream) {
      ncclResult_t status = ncclGroupStart();
      for (int k = 0; k < size() && status == ncclSuccess; ++k) {
        status = ncclSend(part(in, k), count, type, k, comm, stream);
        if (status == ncclSuccess) status = ncclRecv(part(out, k), count, type, k, comm, stream);
      }
      const ncclResult_t end = ncclGroupEnd();
      return status == ncclSuccess ? end : status;
    });
  }

  void send(const Tensor& x, int to, int tag) override {
    message("send", x, to, tag, {rank(), to}, [&](ncclComm_t comm, cudaStream_t stream) {
      return ncclSend(x.raw(), size_t(x.numel()), nccl_type(x.dtype()), to, comm, stream);
    });
  }

  void receive(const Tensor& x, int from, int tag) override {
    message("receive", x, from, tag, {from, rank()}, [&](ncclComm_t comm, cudaStream_t stream) {
      return ncclRecv(x.raw(), size_t(x.numel()), nccl_type(x.dtype()), from, comm, stream);
    });
  }

 private:
  using Enqueue = std::function<ncclResult_t(ncclComm_t, cudaStream_t)>;

  void together(const Call& call, const Tensor& x, const Enqueue& enqueue) {
    if (ledger_) ledger_->enter(name(), {}, size(), rank(), call);
    run(call, x, enqueue);
  }

  void message(const char* op, const Tensor& x, int peer, int tag, CallLedger::Channel channel,
               const Enqueue& enqueue) {
    Call call = call_of("message", x);  // the same at both ends
    call.tag = tag;
    if (ledger_) ledger_->enter(name(), channel, 2, rank(), call);
    call.op = op;
    call.peer = peer;
    run(call, x, enqueue);
  }

  void run(const Call& call, const Tensor& x, const Enqueue& enqueue) {
    check(x.device() == device_, "", call, ": a tensor on ", x.device(), " in ", name(),
          ", which is for ", device_);
    const Scope scope(call.op);
    if (x.numel() > 0) watchdog_.run(call, enqueue);
  }

  Group& host_;
  Device device_;
  std::shared_ptr<CallLedger> ledger_;
  NcclWatchdog watchdog_;
};

}  // namespace

bool has_nccl() { return true; }

std::unique_ptr<Group> make_nccl_group(Group& host, Device device, bool one_process) {
  return std::make_unique<NcclGroup>(host, device, one_process);
}

}  // namespace gradus::parallel

#else

namespace gradus::parallel {

bool has_nccl() { return false; }

std::unique_ptr<Group> make_nccl_group(Group& host, Device device, bool) {
  fail("tensors on ", device, " go between the ranks of ", view_of(host).describe(),
       " through NCCL, and this program is built without it; install libnccl-dev (or unpack "
       "NVIDIA's "
       "archive of NCCL where the compiler looks) and build with CUDA=1 NCCL=1");
}

}  // namespace gradus::parallel

#endif
