// A stand-in for the part of libcudart that launches kernels without their type: one by one, or as
// a graph of kernel nodes. A graph keeps copies of arguments, and an executable graph its own of
// those, as on a GPU: what the caller does with its arguments later, or with the graph, changes
// nothing.

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "tests/cuda_on_cpu/device_memory.h"
#include "tests/cuda_on_cpu/launch.h"
#include "tests/cuda_on_cpu/runtime.h"

namespace longhand::cuda_on_cpu {
namespace {

using runtime::countsDown;
using runtime::report;
using runtime::requireWorkingDevice;

std::mutex kernelMutex;
std::map<const void*, KernelEntry> kernels;  // entries never move

struct alignas(16) Unit {
  std::byte bytes[16];
};

/// A launch with copies of its arguments.
struct Node {
  const void* kernel = nullptr;
  dim3 grid;
  dim3 block;
  std::size_t sharedBytes = 0;
  std::vector<std::vector<Unit>> arguments;

  /// False for a kernel that nobody registered.
  bool set(const cudaKernelNodeParams& params) {
    const KernelEntry& entry = kernelEntry(params.func);
    if (entry.run == nullptr) return false;
    kernel = params.func;
    grid = params.gridDim;
    block = params.blockDim;
    sharedBytes = params.sharedMemBytes;
    arguments.clear();
    for (std::size_t i = 0; i < entry.argumentBytes.size(); ++i) {
      const std::size_t bytes = entry.argumentBytes[i];
      arguments.emplace_back((bytes + sizeof(Unit) - 1) / sizeof(Unit));
      std::memcpy(static_cast<void*>(arguments.back().data()), params.kernelParams[i], bytes);
    }
    return true;
  }
  void run() {
    std::vector<void*> pointers;
    for (std::vector<Unit>& argument : arguments) pointers.push_back(argument.data());
    kernelEntry(kernel).run(kernel, grid, block, sharedBytes, pointers.data());
  }
};

/// Nodes in the order in which they were added, which must be that of their dependencies: each but
/// the first depends on the one before.
struct Graph {
  std::vector<std::unique_ptr<Node>> nodes;
};

struct Executable {
  std::map<const void*, std::size_t> indexOf;  // by the graph's node
  std::vector<Node> nodes;
};

}  // namespace

void addKernel(const void* kernel, KernelEntry (*makeEntry)()) {
  const std::lock_guard lock(kernelMutex);
  if (!kernels.contains(kernel)) kernels.emplace(kernel, makeEntry());
}

const KernelEntry& kernelEntry(const void* kernel) {
  static const KernelEntry kNone;
  const std::lock_guard lock(kernelMutex);
  const auto found = kernels.find(kernel);
  return found == kernels.end() ? kNone : found->second;
}

}  // namespace longhand::cuda_on_cpu

using namespace longhand::cuda_on_cpu;
using namespace longhand::cuda_on_cpu::runtime;

extern "C" {

cudaError_t cudaLaunchKernel(const void* kernel, dim3 grid, dim3 block, void** arguments,
                             std::size_t sharedBytes, cudaStream_t /*stream*/) {
  if (const cudaError_t error = requireWorkingDevice(); error != cudaSuccess) return error;
  const KernelEntry& entry = kernelEntry(kernel);
  if (entry.run == nullptr) return report(cudaErrorInvalidDeviceFunction);
  entry.run(kernel, grid, block, sharedBytes, arguments);
  return requireWorkingDevice();
}

cudaError_t cudaGraphCreate(cudaGraph_t* graph, unsigned /*flags*/) {
  if (const cudaError_t error = requireWorkingDevice(); error != cudaSuccess) return error;
  *graph = reinterpret_cast<cudaGraph_t>(new Graph);
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete reinterpret_cast<Graph*>(graph);
  return requireWorkingDevice();
}
cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                   const cudaGraphNode_t* dependencies, std::size_t nDependencies,
                                   const cudaKernelNodeParams* params) {
  if (const cudaError_t error = requireWorkingDevice(); error != cudaSuccess) return error;
  auto& nodes = reinterpret_cast<Graph*>(graph)->nodes;
  const bool isChained =
      nodes.empty()
          ? nDependencies == 0
          : nDependencies == 1 && reinterpret_cast<Node*>(dependencies[0]) == nodes.back().get();
  auto made = std::make_unique<Node>();
  if (!isChained || !made->set(*params)) return report(cudaErrorInvalidValue);
  *node = reinterpret_cast<cudaGraphNode_t>(made.get());
  nodes.push_back(std::move(made));
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long /*flags*/) {
  if (const cudaError_t error = requireWorkingDevice(); error != cudaSuccess) return error;
  EmulatedDevice& device = emulatedDevice();
  if (countsDown(device.failures.graph)) return report(cudaErrorMemoryAllocation);
  ++device.counters.nGraphs;
  auto made = std::make_unique<Executable>();
  for (const auto& node : reinterpret_cast<Graph*>(graph)->nodes) {
    made->indexOf[node.get()] = made->nodes.size();
    made->nodes.push_back(*node);
  }
  *executable = reinterpret_cast<cudaGraphExec_t>(made.release());
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete reinterpret_cast<Executable*>(executable);
  return requireWorkingDevice();
}
cudaError_t cudaGraphExecKernelNodeSetParams(cudaGraphExec_t executable, cudaGraphNode_t node,
                                             const cudaKernelNodeParams* params) {
  if (const cudaError_t error = requireWorkingDevice(); error != cudaSuccess) return error;
  auto* const own = reinterpret_cast<Executable*>(executable);
  const auto found = own->indexOf.find(reinterpret_cast<Node*>(node));
  if (found == own->indexOf.end() || !own->nodes[found->second].set(*params)) {
    return report(cudaErrorInvalidValue);
  }
  ++emulatedDevice().counters.nNodeUpdates;
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t /*stream*/) {
  if (const cudaError_t error = requireWorkingDevice(); error != cudaSuccess) return error;
  ++emulatedDevice().counters.nGraphLaunches;
  for (Node& node : reinterpret_cast<Executable*>(executable)->nodes) node.run();
  return requireWorkingDevice();
}

}  // extern "C"
