#include "optim/step_control.h"

#include <algorithm>
#include <cstddef>

#include "core/elementwise.h"
#include "ops/ops.h"
#include "optim/grad_norm.h"

namespace gradus::optim {
namespace {

constexpr int64_t kMeasured = sizeof(Measured) / sizeof(double);

/// All that decide() needs, as an argument of a kernel.
struct Decision {
  Betas betas;
  GradScaler* scaler = nullptr;
  MailSlot* slots = nullptr;
  int* const* device_error = nullptr;  // where the device says whether a kernel recorded an Error
  const Measured* found = nullptr;     // by all ranks; null: n has it
  int ranks = 0;

  GRADUS_HD void operator()(StepNumbers& n) const {
    if (found) static_cast<Measured&>(n) = join(found, ranks);
    MailSlot& slot = slots[(n.attempts + 1) % kAhead];
    StepRecord record = decide(n, slot.request, betas, scaler, device_error && **device_error);
    const int64_t attempt = record.attempt;
    record.attempt = slot.record.attempt;
    slot.record = record;
#if defined(__CUDA_ARCH__)
    __threadfence_system();  // the host must not see the number of the step before the rest
#endif
    *const_cast<volatile int64_t*>(&slot.record.attempt) = attempt;
  }
};

/// The place of the first element that is not finite; the size of the arena if all are.
template <class W>
int64_t first_non_finite(const Tensor& gradients, const std::vector<Range>& ranges) {
  const W* g = gradients.data<W>();
  auto is_bad = [](W x) { return !std::isfinite(Compute<W>(x)); };
  for (const Range& r : ranges) {
    const W* found = std::find_if(g + r.begin, g + r.end, is_bad);
    if (found != g + r.end) return found - g;
  }
  return gradients.numel();
}

void measure_on_cpu(const Tensor& gradients, const Counted& counted, bool count_zeros,
                    StepNumbers& n) {
  n.squares = 0;
  n.zeros = count_zeros ? -double(counted.gaps) : -1;
  n.non_finite = double(gradients.numel());
  for (const Range& r : counted.ranges) {
    if (r.size() == 0) continue;
    const Tensor g = gradients.alias({r.size()}, {1}, r.begin);
    n.squares += sum_of_squares(g);
    if (count_zeros) n.zeros += double(optim::count_zeros({g}));
  }
  if (std::isfinite(n.squares)) return;
  dispatch_floating("an optimizer's step", gradients.dtype(), [&]<class W>() {
    n.non_finite = double(first_non_finite<W>(gradients, counted.ranges));
  });
}

#if defined(__CUDACC__)

constexpr int kThreads = 512;
constexpr int kMostBlocks = 2048;

/// What a block of threads found in its chunk. `zeros` include the gaps.
struct Part {
  double squares;
  int64_t zeros, non_finite;
};

__device__ Part join(Part a, Part b) {
  return {a.squares + b.squares, a.zeros + b.zeros, ::min(a.non_finite, b.non_finite)};
}

__device__ Part shuffle_down(Part p, int by) {
  return {__shfl_down_sync(~0u, p.squares, by), __shfl_down_sync(~0u, p.zeros, by),
          __shfl_down_sync(~0u, p.non_finite, by)};
}

/// The parts of all threads of a block, in thread 0.
__device__ Part join_block(Part p) {
  __shared__ Part warps[kThreads / 32];
  for (int by = 16; by > 0; by /= 2) p = join(p, shuffle_down(p, by));
  __syncthreads();
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = p;
  __syncthreads();
  if (threadIdx.x == 0)
    for (int w = 1; w < kThreads / 32; ++w) p = join(p, warps[w]);
  return p;
}

/// This thread's share of the elements [begin, end) of g.
template <bool kCount, class W>
__device__ Part measure_share(const W* g, int64_t begin, int64_t end, int64_t none) {
  constexpr int V = 16 / sizeof(W);
  double sums[V] = {};
  int zeros = 0;
#pragma unroll 4
  for (int64_t i = begin + threadIdx.x * V; i < end; i += kThreads * V) {
    const auto pack = *reinterpret_cast<const Pack<W, V>*>(g + i);
#pragma unroll
    for (int j = 0; j < V; ++j) {
      sums[j] = ::fma(double(pack.v[j]), double(pack.v[j]), sums[j]);
      if constexpr (kCount) zeros += pack.v[j] == 0;
    }
  }
  Part p{0, zeros, none};
  for (int j = 0; j < V; ++j) p.squares += sums[j];
  if (isfinite(p.squares)) return p;
  for (int64_t i = begin + threadIdx.x * V; i < end; i += kThreads * V)  // seldom: find the place
    for (int j = 0; j < V; ++j)
      if (!isfinite(g[i + j])) p.non_finite = ::min(p.non_finite, i + j);
  return p;
}

/// A range of the arena, a chunk for each block; the first of them writes part `first_part`.
struct Work {
  Range range;
  int64_t chunk = 0;
  unsigned first_part = 0;
};

/// All ranges together.
struct Total {
  unsigned parts = 0;
  int64_t gaps = 0, none = 0;  // none: the place of no element
};

/// The last block to finish joins the parts of all, in an order that depends on their number alone.
template <bool kCount, class W>
__global__ void __launch_bounds__(kThreads)
    measure_kernel(Work work, Total total, const W* g, Part* parts, StepNumbers* numbers,
                   Decision decision) {
  const int64_t begin = work.range.begin + blockIdx.x * work.chunk;
  const int64_t end = ::min(begin + work.chunk, work.range.end);
  Part p = join_block(measure_share<kCount>(g, begin, end, total.none));
  __shared__ bool last;
  if (threadIdx.x == 0) {
    parts[work.first_part + blockIdx.x] = p;
    __threadfence();
    last = atomicAdd(&numbers->blocks_done, 1) == total.parts - 1;
  }
  __syncthreads();
  if (!last) return;
  __threadfence();
  p = {0, 0, total.none};
  for (unsigned b = threadIdx.x; b < total.parts; b += kThreads) p = join(p, parts[b]);
  p = join_block(p);
  if (threadIdx.x != 0) return;
  numbers->blocks_done = 0;
  numbers->squares = p.squares, numbers->zeros = kCount ? double(p.zeros - total.gaps) : -1;
  numbers->non_finite = double(p.non_finite);
  if (decision.slots) decision(*numbers);
}

__global__ void decide_kernel(StepNumbers* numbers, Decision decision) { decision(*numbers); }

/// Cuts the ranges into chunks of one length, for at most kMostBlocks blocks and one a range.
std::vector<Work> divide(const std::vector<Range>& ranges, Total& total) {
  constexpr int64_t kStep = kThreads * 16;  // elements: whole turns of the unrolled loop
  int64_t n = 0;
  for (const Range& r : ranges) n += r.size();
  const int64_t chunk = (n / kMostBlocks / kStep + 1) * kStep;
  std::vector<Work> list;
  for (const Range& r : ranges) {
    list.push_back({r, chunk, total.parts});
    total.parts += unsigned(std::max<int64_t>((r.size() + chunk - 1) / chunk, 1));
  }
  return list;
}

void measure_on_cuda(const Tensor& gradients, const Counted& counted, bool count_zeros,
                     Tensor& parts, StepNumbers* numbers, const Decision& decision) {
  Total total{0, counted.gaps, gradients.numel()};
  const std::vector<Work> list = divide(counted.ranges, total);
  const int64_t bytes = int64_t(total.parts * sizeof(Part));
  if (!parts || parts.numel() < bytes) parts = empty({bytes}, DType::u8, gradients.device());
  cudaStream_t stream = cuda::stream(gradients.device());
  auto launch = [&]<class W>(const W* g) {
    auto kernel = count_zeros ? measure_kernel<true, W> : measure_kernel<false, W>;
    for (size_t i = 0; i < list.size(); ++i) {
      const unsigned next = i + 1 < list.size() ? list[i + 1].first_part : total.parts;
      kernel<<<next - list[i].first_part, kThreads, 0, stream>>>(
          list[i], total, g, static_cast<Part*>(parts.raw()), numbers, decision);
    }
  };
  if (gradients.dtype() == DType::f64)
    launch(static_cast<const double*>(gradients.data<double>()));
  else
    launch(static_cast<const float*>(gradients.data<float>()));
  cuda::check_launch("measuring gradients");
}

#endif

Decision decision_of(const Mailbox& mailbox, const Betas& betas, GradScaler* scaler) {
  Decision d{betas, scaler, mailbox.slots()};
#if defined(GRADUS_CUDA)
  if (mailbox.device().is_cuda()) d.device_error = &cuda::error_record(mailbox.device())->claimed;
#endif
  return d;
}

}  // namespace

StepControl::StepControl(Device device)
    : mailbox_(std::make_shared<Mailbox>(device)),
      numbers_(empty({int64_t(sizeof(StepNumbers) / sizeof(double))}, DType::f64, device)) {
  static_assert(sizeof(StepNumbers) % sizeof(double) == 0);  // and begins with what is measured
  const StepNumbers first;
  copy_bytes(numbers(), device, &first, kCpu, sizeof(first));
}

/// The newest step that is decided, once the slot of the next one is free.
StepRecord StepControl::make_room() {
  const int64_t oldest = std::max<int64_t>(requested_ + 1 - kAhead, 0);
  int64_t known = requested_;
  while (known > oldest && !mailbox_->has_record(known)) --known;
  return mailbox_->record(known);
}

int64_t StepControl::post(const StepRequest& r) {
  ++requested_;
  mailbox_->slots()[requested_ % kAhead].request = r;
  return requested_;
}

void StepControl::restore_updates(int64_t updates) {
  check(updates >= 0, "an optimizer cannot have applied ", updates, " updates");
  mailbox_->record(requested_);
  copy_bytes(&numbers()->updates, mailbox_->device(), &updates, kCpu, sizeof(updates));
  mailbox_->slots()[requested_ % kAhead].record.updates = updates;
}

void StepControl::measure(const Tensor& gradients, const Counted& counted, bool count_zeros) {
#if defined(__CUDACC__)
  if (gradients.device().is_cuda())
    return measure_on_cuda(gradients, counted, count_zeros, parts_, numbers(), {});
#endif
  measure_on_cpu(gradients, counted, count_zeros, *numbers());
}

void StepControl::decide(const Betas& betas, GradScaler* scaler, const Tensor& found) {
  Decision decision = decision_of(*mailbox_, betas, scaler);
  if (found) {
    check(found.rank() == 2 && found.size(1) == kMeasured,
          "what ranks measured is of shape (ranks, ", kMeasured, "), got ", found.describe());
    decision.found = reinterpret_cast<const Measured*>(found.data<double>());
    decision.ranks = int(found.size(0));
  }
#if defined(__CUDACC__)
  if (const Device device = mailbox_->device(); device.is_cuda()) {
    decide_kernel<<<1, 1, 0, cuda::stream(device)>>>(numbers(), decision);
    return cuda::check_launch("deciding a step");
  }
#endif
  decision(*numbers());
}

void StepControl::measure_and_decide(const Tensor& gradients, const Counted& counted,
                                     bool count_zeros, const Betas& betas, GradScaler* scaler) {
#if defined(__CUDACC__)
  if (gradients.device().is_cuda())
    return measure_on_cuda(gradients, counted, count_zeros, parts_, numbers(),
                           decision_of(*mailbox_, betas, scaler));
#endif
  measure(gradients, counted, count_zeros);
  decide(betas, scaler);
}

void StepControl::measure_nothing() { fill_(numbers_.alias({1}, {1}, 0), 0); }

Tensor StepControl::measured() const { return numbers_.alias({1, kMeasured}, {kMeasured, 1}, 0); }

}  // namespace gradus::optim
