#include "optim/step_control.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <new>

#include "core/elementwise.h"
#include "ops/ops.h"
#include "optim/grad_norm.h"

namespace gradus::optim {

// ---- the mailbox

Mailbox::Mailbox(Device device) : device_(device) {
  constexpr size_t kBytes = kAhead * sizeof(MailSlot);
  void* memory = nullptr;
#if defined(GRADUS_CUDA)
  if (device.is_cuda()) {
    cuda::stream(device);  // makes it the current device
    check(cudaHostAlloc(&memory, kBytes, cudaHostAllocMapped | cudaHostAllocPortable),
          "allocating an optimizer's mailbox");
  }
#endif
  if (!memory) memory = ::operator new(kBytes);
  slots_ = new (memory) MailSlot[kAhead];
}

Mailbox::~Mailbox() {
#if defined(GRADUS_CUDA)
  if (device_.is_cuda()) {
    (void)cudaFreeHost(slots_);  // waits for kernels that may still write here
    return;
  }
#endif
  ::operator delete(slots_);
}

bool Mailbox::has_record(int64_t attempt) const {
  int64_t& written = slots_[attempt % kAhead].record.attempt;
  return std::atomic_ref(written).load(std::memory_order_acquire) == attempt;
}

StepRecord Mailbox::record(int64_t attempt) const {
  if (!has_record(attempt)) synchronize(device_);
  const StepRecord record = slots_[attempt % kAhead].record;
  check(record.attempt <= attempt, "the result of step ", attempt,
        " is gone: it can be read until ", kAhead, " more steps are asked for");
  check(record.attempt == attempt, "step ", attempt,
        " was asked for, but its kernels were not run");
  if (record.device_error) synchronize(device_);  // throws it, unless that was done
  return record;
}

// ---- measure and decide

namespace {

/// All that decide() needs, as an argument of a kernel.
struct Decision {
  Betas betas;
  GradScaler* scaler = nullptr;
  MailSlot* slots = nullptr;
  int* const* device_error = nullptr;  // where the device says whether a kernel recorded an Error

  GRADUS_HD void operator()(StepNumbers& n) const {
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

void measure_on_cpu(const Tensor& gradients, bool count_zeros, StepNumbers& n) {
  n.squares = sum_of_squares(gradients);
  n.zeros = count_zeros ? optim::count_zeros({gradients}) : -1;
  n.non_finite = gradients.numel();
  if (std::isfinite(n.squares)) return;
  dispatch_floating("an optimizer's step", gradients.dtype(), [&]<class W>() {
    const W* g = gradients.data<W>();
    auto is_bad = [](W x) { return !std::isfinite(Compute<W>(x)); };
    n.non_finite = std::find_if(g, g + gradients.numel(), is_bad) - g;
  });
}

#if defined(__CUDACC__)

constexpr int kThreads = 512;
constexpr int kMostBlocks = 2048;

/// What a block of threads found in its chunk of the arena. `zeros` include the gaps.
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

/// The last block to finish joins the parts of all, in an order that depends on their number alone.
template <bool kCount, class W>
__global__ void __launch_bounds__(kThreads)
    measure_kernel(int64_t n, int64_t chunk, const W* g, Part* parts, StepNumbers* numbers,
                   Decision decision) {
  const int64_t begin = blockIdx.x * chunk;
  Part p = join_block(measure_share<kCount>(g, begin, ::min(begin + chunk, n), n));
  __shared__ bool last;
  if (threadIdx.x == 0) {
    parts[blockIdx.x] = p;
    __threadfence();
    last = atomicAdd(&numbers->blocks_done, 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (!last) return;
  __threadfence();
  p = {0, 0, n};
  for (int b = threadIdx.x; b < gridDim.x; b += kThreads) p = join(p, parts[b]);
  p = join_block(p);
  if (threadIdx.x != 0) return;
  numbers->blocks_done = 0;
  numbers->squares = p.squares, numbers->zeros = kCount ? p.zeros : -1;
  numbers->non_finite = p.non_finite;
  if (decision.slots) decision(*numbers);
}

__global__ void decide_kernel(StepNumbers* numbers, Decision decision) { decision(*numbers); }

void measure_on_cuda(const Tensor& gradients, bool count_zeros, Tensor& parts, StepNumbers* numbers,
                     const Decision& decision) {
  if (!parts) parts = empty({kMostBlocks * int64_t(sizeof(Part))}, DType::u8, gradients.device());
  constexpr int64_t kStep = kThreads * 16;  // elements: whole turns of the unrolled loop
  const int64_t n = gradients.numel();
  const int64_t chunk = (n / kMostBlocks / kStep + 1) * kStep;
  const unsigned blocks = unsigned((n + chunk - 1) / chunk);
  cudaStream_t stream = cuda::stream(gradients.device());
  auto launch = [&]<class W>(const W* g) {
    auto kernel = count_zeros ? measure_kernel<true, W> : measure_kernel<false, W>;
    kernel<<<blocks, kThreads, 0, stream>>>(n, chunk, g, static_cast<Part*>(parts.raw()), numbers,
                                            decision);
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
  static_assert(sizeof(StepNumbers) % sizeof(double) == 0);
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

void StepControl::measure(const Tensor& gradients, bool count_zeros) {
#if defined(__CUDACC__)
  if (gradients.device().is_cuda())
    return measure_on_cuda(gradients, count_zeros, parts_, numbers(), {});
#endif
  measure_on_cpu(gradients, count_zeros, *numbers());
}

void StepControl::decide(const Betas& betas, GradScaler* scaler) {
  const Decision decision = decision_of(*mailbox_, betas, scaler);
#if defined(__CUDACC__)
  if (const Device device = mailbox_->device(); device.is_cuda()) {
    decide_kernel<<<1, 1, 0, cuda::stream(device)>>>(numbers(), decision);
    return cuda::check_launch("deciding a step");
  }
#endif
  decision(*numbers());
}

void StepControl::measure_and_decide(const Tensor& gradients, bool count_zeros, const Betas& betas,
                                     GradScaler* scaler) {
#if defined(__CUDACC__)
  if (gradients.device().is_cuda())
    return measure_on_cuda(gradients, count_zeros, parts_, numbers(),
                           decision_of(*mailbox_, betas, scaler));
#endif
  measure(gradients, count_zeros);
  decide(betas, scaler);
}

void StepControl::measure_nothing() { fill_(squares(), 0); }

Tensor StepControl::squares() const {
  static_assert(offsetof(StepNumbers, squares) == 0);
  return numbers_.alias({1}, {1}, 0);
}

}  // namespace gradus::optim
