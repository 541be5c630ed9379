#pragma once
// A decode step as a CUDA graph. What the operations of a step launch is gathered in a list, and
// goes to the device in one call when the step ends.
//
// From token to token few arguments move: the token's id, the place of its key and value, how much
// attention reads. So the graph of the step before stays, and only the nodes whose grid or
// arguments differ are set anew. A step that launches other kernels (it also packs a page) is
// launched kernel by kernel, and a second one like it makes a new graph. NOTES.md says why not
// stream capture.

#include <cuda_runtime_api.h>

#include <vector>

#include "kernels/cuda/warp/launch_queue.h"

namespace longhand::kernels::cuda {

/// One stream, one thread at a time.
class StepGraph {
 public:
  StepGraph() = default;
  StepGraph(const StepGraph&) = delete;
  StepGraph& operator=(const StepGraph&) = delete;
  ~StepGraph() { drop(); }

  /// Gathers launches from here on.
  void begin() { recorder_.isRecording = true; }
  bool isOpen() const { return recorder_.isRecording; }
  /// Launches what was gathered one by one; the rest of the step is not gathered.
  cudaError_t leave(cudaStream_t stream);
  /// Launches what was gathered as a graph. Does nothing after leave().
  cudaError_t end(cudaStream_t stream);
  /// For every launch, in a step or not.
  LaunchRecorder& recorder() { return recorder_; }

 private:
  cudaError_t launchEach(cudaStream_t stream);
  cudaError_t build();
  cudaError_t update();
  void drop();

  LaunchRecorder recorder_;
  LaunchList built_;  // what the graph launches now
  LaunchList seen_;   // the last step that no graph fitted
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t executable_ = nullptr;
  std::vector<cudaGraphNode_t> nodes_;  // of graph_, as in built_
  bool isUsable_ = true;                // false once the driver has refused a graph
};

}  // namespace longhand::kernels::cuda
