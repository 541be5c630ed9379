#include "kernels/cuda/weights/cublas.h"

#include "kernels/cuda/device/shared_library.h"

namespace longhand::kernels::cuda {
namespace {

// From cublas_api.h and library_types.h, which only the toolkit has; part of cuBLAS's ABI since 11.
constexpr int kSuccess = 0;
constexpr int kNotTransposed = 0;
constexpr int kTransposed = 1;
constexpr int kTypeFloat = 0;      // CUDA_R_32F
constexpr int kTypeHalf = 2;       // CUDA_R_16F
constexpr int kComputeFloat = 68;  // CUBLAS_COMPUTE_32F
constexpr int kAnyAlgorithm = -1;  // CUBLAS_GEMM_DEFAULT

/// The newest first; the version of the runtime that this was built with is as good as the other,
/// since cuBLAS brings its own. The newest does not start with a driver that is older than it.
constexpr const char* kFiles[] = {"libcublas.so.13", "libcublas.so.12"};

}  // namespace

struct Cublas::Functions {
  SharedLibrary library;
  int (*create)(void** handle) = nullptr;
  int (*destroy)(void* handle) = nullptr;
  int (*setStream)(void* handle, cudaStream_t stream) = nullptr;
  int (*setWorkspace)(void* handle, void* workspace, std::size_t bytes) = nullptr;
  int (*gemm)(void* handle, int transposeA, int transposeB, int m, int n, int k, const void* alpha,
              const void* a, int typeA, int strideA, const void* b, int typeB, int strideB,
              const void* beta, void* c, int typeC, int strideC, int computeType,
              int algorithm) = nullptr;

  bool open(const char* file) {
    return library.open(file) && library.find(create, "cublasCreate_v2") &&
           library.find(destroy, "cublasDestroy_v2") &&
           library.find(setStream, "cublasSetStream_v2") &&
           library.find(setWorkspace, "cublasSetWorkspace_v2") &&
           library.find(gemm, "cublasGemmEx");
  }
};

Cublas::Cublas() : functions_(std::make_unique<Functions>()) {}

Cublas::~Cublas() {
  if (handle_ != nullptr) functions_->destroy(handle_);
}

std::unique_ptr<Cublas> Cublas::load(cudaStream_t stream, void* workspace,
                                     std::size_t workspaceBytes) {
  for (const char* file : kFiles) {
    std::unique_ptr<Cublas> cublas(new Cublas);
    if (cublas->start(file, stream, workspace, workspaceBytes)) return cublas;
  }
  return nullptr;
}

bool Cublas::start(const char* file, cudaStream_t stream, void* workspace,
                   std::size_t workspaceBytes) {
  if (!functions_->open(file)) return false;
  if (functions_->create(&handle_) != kSuccess) {
    handle_ = nullptr;
    return false;
  }
  // The stream first: setting it takes the workspace away again.
  return functions_->setStream(handle_, stream) == kSuccess &&
         functions_->setWorkspace(handle_, workspace, workspaceBytes) == kSuccess;
}

bool Cublas::multiply(const HalfProduct& product) {
  // cuBLAS counts in columns: its A is our weight, its B our input, its C our output, transposed.
  const float alpha = 1.0F;
  const float beta = product.accumulate ? 1.0F : 0.0F;
  const int depth = static_cast<int>(product.depth);
  return functions_->gemm(handle_, kTransposed, kNotTransposed, static_cast<int>(product.nRows),
                          static_cast<int>(product.nTokens), depth, &alpha, product.weight,
                          kTypeHalf, depth, product.input, kTypeHalf, depth, &beta, product.output,
                          kTypeFloat, static_cast<int>(product.outputStride), kComputeFloat,
                          kAnyAlgorithm) == kSuccess;
}

}  // namespace longhand::kernels::cuda
