#include "core/cuda_graph.h"

#include <utility>

#include "core/cuda.h"

namespace gradus {

CudaGraph::CudaGraph(Device device) : device_(device), pool_(device) {}

CudaGraph::~CudaGraph() { destroy(); }

#if defined(GRADUS_CUDA)

// Thread-local: what other threads do meanwhile (another rank allocates) does not disturb a capture.
void CudaGraph::begin() {
  destroy();
  check(cudaStreamBeginCapture(cuda::stream(device_), cudaStreamCaptureModeThreadLocal),
        "beginning the capture of a CUDA graph");
}

// An operation that a capture forbids has ended it already; the stream must be told all the same.
void CudaGraph::abandon() {
  cudaGraph_t graph = nullptr;
  (void)cudaStreamEndCapture(cuda::stream(device_), &graph);
  if (graph) (void)cudaGraphDestroy(graph);
  (void)cudaGetLastError();
}

void CudaGraph::end() {
  cudaGraph_t graph = nullptr;
  check(cudaStreamEndCapture(cuda::stream(device_), &graph), "ending the capture of a CUDA graph");
  cudaGraphExec_t executable = nullptr;
  size_t nodes = 0;
  cudaError_t status = cudaGraphGetNodes(graph, nullptr, &nodes);
  if (status == cudaSuccess) status = cudaGraphInstantiate(&executable, graph, 0);
  (void)cudaGraphDestroy(graph);
  check(status, "making a CUDA graph executable");
  executable_ = executable;
  nodes_ = int64_t(nodes);
}

void CudaGraph::replay() {
  check(executable_ != nullptr, "a CUDA graph was replayed that holds nothing: capture() first");
  check(cudaGraphLaunch(static_cast<cudaGraphExec_t>(executable_), cuda::stream(device_)),
        "replaying a CUDA graph");
}

void CudaGraph::destroy() {
  if (!executable_) return;
  (void)cudaStreamSynchronize(cuda::stream(device_));  // its memory goes back to the system
  (void)cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(std::exchange(executable_, nullptr)));
  nodes_ = 0;
}

#else

// The constructor's check of the device has thrown before any of these can be called.
void CudaGraph::begin() {}
void CudaGraph::abandon() {}
void CudaGraph::end() {}
void CudaGraph::replay() {}
void CudaGraph::destroy() {}

#endif

}  // namespace gradus
