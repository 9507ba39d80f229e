#pragma once
// Work of this thread's stream, recorded once and then launched as a whole.
//
//   CudaGraph graph(device);
//   graph.run(step);  graph.run(step);     // twice as usual: plans are made, memory is found
//   graph.capture(step);                   // records the launches of step(), runs none of them
//   for (…) { fill the inputs;  graph.replay();  … }
//
//   for (…) { fill the inputs;  graph.run_or_replay(step);  … }      // the same
//
//                host                                   device
//   eager        launch launch launch launch …          ▄ ▄▄ ▄ ▄▄ ▄ …      2 µs and more a launch
//   replay       launch                                 ▄▄▄▄▄▄▄▄▄▄▄▄ …     about 1 µs between kernels
//
// A replay does again exactly what was captured, with the arguments that the kernels were given then.
// So a captured function
//   * reads its inputs and writes its results at fixed addresses: tensors that were there before and
//     live longer, and what it allocates itself, which stays in memory that is the graph's alone;
//   * reads numbers that change (a learning rate) from device memory, never from an argument;
//   * neither waits for the device nor looks at a value that was computed there: that is an Error.
// The tape of a backward is built while capturing, and not again.
#include "core/allocator.h"

namespace gradus {

class CudaGraph {
 public:
  /// Error unless `device` is a GPU that is here.
  explicit CudaGraph(Device device);
  ~CudaGraph();
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  /// Runs f() now, with the graph's memory.
  template <class F>
  void run(F&& f) {
    const UsePool use(pool_);
    f();
  }

  /// Records f() in place of what was captured before. After an Error nothing is captured.
  template <class F>
  void capture(F&& f) {
    const UsePool use(pool_);
    begin();
    try {
      f();
    } catch (...) {
      abandon();
      throw;
    }
    end();
  }

  /// Enqueues what was captured.
  void replay();

  /// The first two calls run f(), the third captures it; it and all later ones replay that.
  template <class F>
  void run_or_replay(F&& f) {
    if (runs_ < 2) {
      run(f);
      ++runs_;
      return;
    }
    if (!executable_) capture(f);
    replay();
  }

  /// Kernels, copies and fills of a replay; 0 before a capture.
  int64_t nodes() const { return nodes_; }

 private:
  void begin();
  void abandon();
  void end();
  void destroy();

  Device device_;
  PrivatePool pool_;
  void* executable_ = nullptr;  // a cudaGraphExec_t
  int64_t nodes_ = 0;
  int runs_ = 0;  // of run_or_replay
};

}  // namespace gradus
