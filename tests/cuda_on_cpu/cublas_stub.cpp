#include "tests/cuda_on_cpu/cublas_stub.h"

#include <cuda_fp16.h>

#include <cstdint>

// cublas_api.h comes with another package than the headers that the emulation needs: these are its
// types, by its numbers.

using longhand::cuda_on_cpu::CublasState;

namespace {

// cublasStatus_t, cublasOperation_t, cudaDataType, cublasComputeType_t, cublasGemmAlgo_t.
constexpr int kSuccess = 0;
constexpr int kNotInitialized = 1;
constexpr int kInvalidValue = 7;
constexpr int kNotSupported = 15;
constexpr int kOperationN = 0;
constexpr int kOperationT = 1;
constexpr int kReal32 = 0;
constexpr int kReal16 = 2;
constexpr int kCompute32 = 68;
constexpr int kGemmDefault = -1;
constexpr std::uintptr_t kWorkspaceAlignment = 256;

CublasState& state() {
  static CublasState only;
  return only;
}

/// Element (row, column) of op(matrix), where matrix has columns `stride` apart.
float element(const void* matrix, int operation, std::int64_t stride, std::int64_t row,
              std::int64_t column) {
  const auto* const halves = static_cast<const __half*>(matrix);
  return __half2float(operation == kOperationN ? halves[column * stride + row]
                                               : halves[row * stride + column]);
}

}  // namespace

#define LONGHAND_EXPORT __attribute__((visibility("default")))

extern "C" {

LONGHAND_EXPORT CublasState* longhandCublasState() { return &state(); }

LONGHAND_EXPORT int cublasCreate_v2(void** handle) {
  if (!state().isInstalled) return kNotInitialized;
  ++state().nHandles;
  *handle = &state();
  return kSuccess;
}
LONGHAND_EXPORT int cublasDestroy_v2(void* handle) {
  if (handle != &state() || state().nHandles == 0) return kNotInitialized;
  if (state().onDestroy) state().onDestroy();
  --state().nHandles;
  return kSuccess;
}
LONGHAND_EXPORT int cublasSetStream_v2(void* /*handle*/, void* stream) {
  state().stream = stream;
  state().workspace = nullptr;  // "unconditionally resets the workspace"
  state().workspaceBytes = 0;
  return kSuccess;
}
LONGHAND_EXPORT int cublasSetWorkspace_v2(void* /*handle*/, void* workspace, std::size_t bytes) {
  if (reinterpret_cast<std::uintptr_t>(workspace) % kWorkspaceAlignment != 0) return kInvalidValue;
  state().workspace = workspace;
  state().workspaceBytes = bytes;
  return kSuccess;
}
/// C [m, n] = alpha * op(A) [m, k] * op(B) [k, n] + beta * C.
LONGHAND_EXPORT int cublasGemmEx(void* handle, int operationA, int operationB, int m, int n, int k,
                                 const void* alpha, const void* a, int typeA, int strideA,
                                 const void* b, int typeB, int strideB, const void* beta, void* c,
                                 int typeC, int strideC, int computeType, int algorithm) {
  if (handle != &state() || state().nHandles == 0) return kNotInitialized;
  if (state().refusesProducts) return kNotSupported;
  if (typeA != kReal16 || typeB != kReal16 || typeC != kReal32 || computeType != kCompute32 ||
      algorithm != kGemmDefault) {
    return kNotSupported;
  }
  const bool areOperations = (operationA == kOperationN || operationA == kOperationT) &&
                             (operationB == kOperationN || operationB == kOperationT);
  if (!areOperations || m < 0 || n < 0 || k < 0 || strideC < m ||
      strideA < (operationA == kOperationN ? m : k) ||
      strideB < (operationB == kOperationN ? k : n)) {
    return kInvalidValue;
  }
  ++state().nProducts;
  const float factor = *static_cast<const float*>(alpha);
  const float kept = *static_cast<const float*>(beta);
  auto* const result = static_cast<float*>(c);
  for (std::int64_t column = 0; column < n; ++column) {
    for (std::int64_t row = 0; row < m; ++row) {
      float sum = 0.0F;
      for (std::int64_t i = 0; i < k; ++i) {
        sum += element(a, operationA, strideA, row, i) * element(b, operationB, strideB, i, column);
      }
      float& y = result[column * strideC + row];
      y = factor * sum + (kept == 0.0F ? 0.0F : kept * y);  // C need not be numbers with beta 0
    }
  }
  return kSuccess;
}

}  // extern "C"
