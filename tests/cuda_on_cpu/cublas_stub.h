#pragma once
// A stand-in for libcublas.so.12 and .so.13: the calls of kernels/cuda/weights/cublas.cpp, over the
// emulated device's memory, by the definitions in cuBLAS's documentation (columns first). A library
// of that name that is loaded already is what dlopen("libcublas.so.13") finds.

#include <dlfcn.h>

#include <cstddef>
#include <functional>
#include <stdexcept>
#include <string>

namespace longhand::cuda_on_cpu {

struct CublasState {
  bool isInstalled = false;      // else it does not start, as with a driver that is too old
  bool refusesProducts = false;  // with CUBLAS_STATUS_NOT_SUPPORTED
  int nHandles = 0;              // less those that were destroyed
  int nProducts = 0;
  const void* stream = nullptr;
  const void* workspace = nullptr;  // nullptr: its own
  std::size_t workspaceBytes = 0;
  std::function<void()> onDestroy;  // called first
};

/// Loads the stub, which then stays until the process ends, but is as if not installed without one
/// of these.
class CublasStub {
 public:
  explicit CublasStub(const char* file) {
    void* const library = dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    void* const entry = library == nullptr ? nullptr : dlsym(library, "longhandCublasState");
    if (entry == nullptr) throw std::runtime_error(std::string(file) + " is no stub of cuBLAS");
    state_ = reinterpret_cast<CublasState* (*)()>(entry)();
    *state_ = {};
    state_->isInstalled = true;
  }
  CublasStub(const CublasStub&) = delete;
  CublasStub& operator=(const CublasStub&) = delete;
  ~CublasStub() { *state_ = {}; }

  CublasState& state() const { return *state_; }

 private:
  CublasState* state_ = nullptr;
};

}  // namespace longhand::cuda_on_cpu
