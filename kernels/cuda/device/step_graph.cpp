#include "kernels/cuda/device/step_graph.h"

#include <utility>

namespace longhand::kernels::cuda {
namespace {

cudaKernelNodeParams paramsOf(LaunchList& list, const LaunchList::Launch& launch) {
  cudaKernelNodeParams params{};
  params.func = const_cast<void*>(launch.kernel);
  params.gridDim = launch.grid;
  params.blockDim = launch.block;
  params.sharedMemBytes = static_cast<unsigned>(launch.sharedBytes);
  params.kernelParams = list.argumentsOf(launch);
  return params;
}

}  // namespace

cudaError_t StepGraph::leave(cudaStream_t stream) {
  if (!recorder_.isRecording) return cudaSuccess;
  const cudaError_t error = launchEach(stream);
  recorder_.list.clear();
  recorder_.isRecording = false;
  return error;
}

cudaError_t StepGraph::end(cudaStream_t stream) {
  if (!recorder_.isRecording) return cudaSuccess;
  recorder_.isRecording = false;
  LaunchList& list = recorder_.list;
  const auto finish = [&list](cudaError_t error) {
    list.clear();
    return error;
  };
  if (list.launches().empty()) return cudaSuccess;
  const bool fits = executable_ != nullptr && list.isAlike(built_);
  if (!isUsable_ || (!fits && !list.isAlike(seen_))) {
    const cudaError_t error = launchEach(stream);
    std::swap(seen_, list);
    return finish(error);
  }
  if ((fits ? update() : build()) != cudaSuccess) {
    cudaGetLastError();  // no fault: the kernels are launched without a graph
    drop();
    isUsable_ = false;
    return finish(launchEach(stream));
  }
  std::swap(built_, list);
  return finish(cudaGraphLaunch(executable_, stream));
}

cudaError_t StepGraph::launchEach(cudaStream_t stream) {
  LaunchList& list = recorder_.list;
  for (const LaunchList::Launch& launch : list.launches()) {
    const cudaError_t error =
        cudaLaunchKernel(launch.kernel, launch.grid, launch.block, list.argumentsOf(launch),
                         launch.sharedBytes, stream);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

cudaError_t StepGraph::build() {
  drop();
  LaunchList& list = recorder_.list;
  cudaError_t error = cudaGraphCreate(&graph_, 0);
  for (const LaunchList::Launch& launch : list.launches()) {
    if (error != cudaSuccess) return error;
    const cudaKernelNodeParams params = paramsOf(list, launch);
    const bool isFirst = nodes_.empty();
    cudaGraphNode_t node = nullptr;
    error = cudaGraphAddKernelNode(&node, graph_, isFirst ? nullptr : &nodes_.back(),
                                   isFirst ? 0 : 1, &params);
    nodes_.push_back(node);
  }
  return error == cudaSuccess ? cudaGraphInstantiate(&executable_, graph_, 0) : error;
}

/// Sets the nodes whose launch differs from what the graph launches now.
cudaError_t StepGraph::update() {
  LaunchList& list = recorder_.list;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (list.isEqual(i, built_)) continue;
    const cudaKernelNodeParams params = paramsOf(list, list.launches()[i]);
    const cudaError_t error = cudaGraphExecKernelNodeSetParams(executable_, nodes_[i], &params);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

void StepGraph::drop() {
  if (executable_ != nullptr) cudaGraphExecDestroy(executable_);
  if (graph_ != nullptr) cudaGraphDestroy(graph_);
  executable_ = nullptr;
  graph_ = nullptr;
  nodes_.clear();
  built_.clear();
}

}  // namespace longhand::kernels::cuda
