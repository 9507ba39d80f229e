#pragma once
// Communication beside computation.
//
//   Pending sum = start_aside({dx}, [&] { group.all_reduce_into(dx); });      // begins after what dx came from
//   Tensor dw = …;                                                            // meanwhile
//   sum.join();                                                               // from here on dx is Σ dx
//
// On the CPU the work is done at once, so results do not depend on it.
#include <utility>
#include <vector>

#include "autograd/tensor.h"
#include "core/aside.h"

namespace gradus::parallel {

/// Work under way beside this thread's stream. The tensors that it uses are held until it is joined: before
/// that, nobody may write what it reads, or read what it writes.
class Pending {
 public:
  Pending() = default;  // nothing
  Pending(std::vector<Tensor> used, Mark done) : used_(std::move(used)), done_(std::move(done)) {}
  ~Pending();
  Pending(Pending&&) noexcept = default;
  Pending& operator=(Pending&& other) noexcept;

  /// What this thread asks of the device from here on comes after the work. The host does not wait.
  void join();

 private:
  std::vector<Tensor> used_;
  Mark done_;
};

/// Runs work() aside, after what the stream was given before. `used`: all tensors it reads or writes; the
/// device is that of the first.
template <class F>
Pending start_aside(std::vector<Tensor> used, F&& work) {
  const Device device = used.at(0).device();
  for (const Tensor& t : used) (void)t.raw();  // late writes come before, in the stream
  const Aside aside(device);
  work();
  return Pending(std::move(used), Mark(device));
}

/// The same where work() writes to `x` and whoever reads that is not known here: memory of x is given to nobody
/// before the stream has waited for it (Note [late writes] in core/storage.h). `then`, if set, is called at that point.
template <class F>
void write_aside(const Tensor& x, F&& work, std::function<void()> then = {}) {
  (void)x.raw();  // late writes come before, in the stream
  Mark done;
  {
    const Aside aside(x.device());
    work();
    done = Mark(x.device());
  }
  x.join_before_use([done, then = std::move(then)] {
    const Scope scope("join");
    done.join();
    if (then) then();
  });
}

}  // namespace gradus::parallel
