#include "parallel/peer_group.h"

#include "core/event.h"
#include "core/scope.h"
#include "parallel/gpu_group.h"
#include "parallel/peer_meeting.h"
#include "parallel/rank_sum.h"

#if defined(GRADUS_CUDA)

namespace gradus::parallel {
namespace {

constexpr int64_t kLeast = 1 << 20;  // bytes of what all ranks have: below it NCCL is faster

/// The GPU of each rank.
std::vector<int> gpus_of(const Communicator& ranks, Device device) {
  const auto all = ranks.all_gather_values({device.index});
  return {all.begin(), all.end()};
}

bool reaches(int gpu, int other) {
  int can = 0;
  check(cudaDeviceCanAccessPeer(&can, gpu, other), "asking which GPUs reach each other");
  return can != 0;
}

/// One for all ranks: that of the first.
std::shared_ptr<PeerMeeting> common_meeting(const Communicator& ranks) {
  std::shared_ptr<PeerMeeting> meeting;
  if (ranks.rank() == 0) meeting = std::make_shared<PeerMeeting>(ranks.describe(), ranks.size());
  const auto all = ranks.all_gather_values({int64_t(reinterpret_cast<intptr_t>(&meeting))});
  if (ranks.rank() != 0) meeting = *reinterpret_cast<std::shared_ptr<PeerMeeting>*>(all[0]);
  ranks.barrier();  // the first rank's handle is read until then
  return meeting;
}

void record(const std::shared_ptr<void>& event, cudaStream_t stream) {
  check(cudaEventRecord(static_cast<cudaEvent_t>(event.get()), stream), "recording an event");
}
void wait_for(void* event, cudaStream_t stream) {
  check(cudaStreamWaitEvent(stream, static_cast<cudaEvent_t>(event), 0), "waiting for an event");
}

char* at(const void* p, int64_t bytes) { return static_cast<char*>(const_cast<void*>(p)) + bytes; }

class PeerGroup final : public Group {
 public:
  PeerGroup(Group& host, Device device, std::unique_ptr<Group> rest)
      : Group(host.name(), host.rank(), host.world_ranks()),
        device_(device),
        rest_(std::move(rest)),
        meeting_(common_meeting(view_of(host))),
        patience_{host.timeout(), host.failure_probe()} {
    (void)cuda::stream(device);  // makes the GPU the current one
    ready_ = cuda::make_event(), done_ = cuda::make_event();
    for (int other : gpus_of(view_of(host), device)) {
      if (other == device.index) continue;
      const cudaError_t status = cudaDeviceEnablePeerAccess(other, 0);
      (void)cudaGetLastError();
      if (status != cudaErrorPeerAccessAlreadyEnabled)
        check(status, "reaching another GPU's memory");
    }
  }
  void all_gather(const Tensor& all, const Tensor& part) override {
    if (!is_mine(all)) return rest_->all_gather(all, part);
    const Scope scope("all_gather");
    const int64_t bytes = bytes_of(part);
    meet(call_of("all_gather", part), part.raw(), [&](int k, const void* theirs) {
      if (at(all.raw(), k * bytes) != theirs) copy(at(all.raw(), k * bytes), theirs, bytes);
    });
  }

  void reduce_scatter(const Tensor& part, const Tensor& all) override {
    if (!is_mine(all) || !is_floating(all.dtype())) return rest_->reduce_scatter(part, all);
    const Scope scope("reduce_scatter");
    sum_slice(call_of("reduce_scatter", part), part, all, rank() * part.numel());
  }

  void all_reduce(const Tensor& x, Reduce how) override {
    if (!is_mine(x) || !is_floating(x.dtype()) || how != Reduce::sum)
      return rest_->all_reduce(x, how);
    const Scope scope("all_reduce");
    const int64_t n = x.numel(), slice = (n / size() + 63) / 64 * 64;  // 16 bytes and more
    const auto begin = [&](int k) { return std::min(n, k * slice); };
    const auto end = [&](int k) { return k + 1 == size() ? n : std::min(n, (k + 1) * slice); };
    const int64_t element = size_of(x.dtype()), first = begin(rank());
    const Tensor own = x.alias({end(rank()) - first}, {1}, x.offset() + first);
    sum_slice(call_of("all_reduce", x), own, x, first);
    meet(call_of("all_reduce", x), x.raw(), [&](int k, const void* theirs) {
      const int64_t from = begin(k) * element;
      if (k != rank()) copy(at(x.raw(), from), at(theirs, from), (end(k) - begin(k)) * element);
    });
  }

  void broadcast(const Tensor& x, int root) override { rest_->broadcast(x, root); }
  void all_to_all(const Tensor& out, const Tensor& in) override { rest_->all_to_all(out, in); }
  void send(const Tensor& x, int to, int tag) override { rest_->send(x, to, tag); }
  void receive(const Tensor& x, int from, int tag) override { rest_->receive(x, from, tag); }
  void barrier() override { rest_->barrier(); }
  std::shared_ptr<Group> split(int color, int key, const std::string& name) override {
    return rest_->split(color, key, name);
  }

 private:
  bool is_mine(const Tensor& all) const {
    check(all.device() == device_, "a tensor on ", all.device(), " in ", name(), ", which is for ",
          device_);
    return bytes_of(all) >= kLeast && size() <= kMostParts;
  }

  void copy(void* to, const void* from, int64_t bytes) {
    if (bytes > 0)
      check(cudaMemcpyAsync(to, from, size_t(bytes), cudaMemcpyDefault, cuda::stream(device_)),
            "copying from another GPU");
  }

  /// `mine` may be read by all; calls read(k, memory of rank k) for all, the own last, once that may be
  /// read, and then after(). When this returns, what the stream is given from here on comes after the reads
  /// of all ranks.
  template <class Read>
  void meet(const Call& call, const void* mine, Read&& read) {
    meet(call, mine, read, [] {});
  }
  template <class Read, class After>
  void meet(const Call& call, const void* mine, Read&& read, After&& after) {
    const cudaStream_t stream = cuda::stream(device_);
    record(ready_, stream);
    meeting_->come(rank(), {call, mine, ready_, done_}, patience_);
    std::vector<void*> others_done;
    for (int i = 1; i <= size(); ++i) {
      const int k = (rank() + i) % size();
      const PeerMeeting::Place& place = meeting_->place(k);
      if (k != rank()) {
        wait_for(place.ready.get(), stream);
        others_done.push_back(place.done.get());
      }
      read(k, place.memory);
    }
    record(done_, stream);
    after();
    meeting_->part(rank(), patience_);
    for (void* done : others_done) wait_for(done, stream);
  }

  /// own ← Σ over the ranks of the elements of `all` from `first` on. It may be those of `all` itself.
  void sum_slice(const Call& call, const Tensor& own, const Tensor& all, int64_t first) {
    const int64_t offset = first * size_of(all.dtype()), bytes = bytes_of(own);
    const int64_t room = (bytes + 255) / 256 * 256;
    const Tensor landed = empty({room * (size() - 1)}, DType::u8, device_);
    Parts parts{.n = size()};
    int64_t used = 0;
    meet(
        call, all.raw(),
        [&](int k, const void* theirs) {
          const void*& from = parts.from[size_t(k)];
          from = at(theirs, offset);
          if (k == rank()) return;
          copy(at(landed.raw(), used), from, bytes);
          from = at(landed.raw(), used);
          used += room;
        },
        [&] { sum_over_ranks(own, parts); });
  }

  Device device_;
  std::unique_ptr<Group> rest_;
  std::shared_ptr<PeerMeeting> meeting_;
  PeerMeeting::Patience patience_;
  std::shared_ptr<void> ready_, done_;
};

}  // namespace

bool are_peers(const Communicator& ranks, Device device) {
  int64_t all = 1;
  for (int other : gpus_of(ranks, device))
    if (other != device.index && !reaches(device.index, other)) all = 0;
  for (int64_t yes : ranks.all_gather_values({all})) all &= yes;
  return all != 0;
}

std::unique_ptr<Group> make_peer_group(Group& host, Device device, std::unique_ptr<Group> rest) {
  return std::make_unique<PeerGroup>(host, device, std::move(rest));
}

}  // namespace gradus::parallel

#else

namespace gradus::parallel {

bool are_peers(const Communicator&, Device) { return false; }
std::unique_ptr<Group> make_peer_group(Group&, Device, std::unique_ptr<Group> rest) { return rest; }

}  // namespace gradus::parallel

#endif
