#pragma once
// A library of the system that is loaded at run time, where it is there.

#include <dlfcn.h>

namespace longhand::kernels::cuda {

class SharedLibrary {
 public:
  SharedLibrary() = default;
  SharedLibrary(const SharedLibrary&) = delete;
  SharedLibrary& operator=(const SharedLibrary&) = delete;
  ~SharedLibrary() {
    if (library_ != nullptr) dlclose(library_);
  }

  /// False where the system's folders have no such file. It stays loaded until the process ends:
  /// cuBLAS has a CUDA runtime of its own, which the driver may call when a context goes.
  bool open(const char* file) {
    if (library_ != nullptr) dlclose(library_);
    library_ = dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    return library_ != nullptr;
  }
  /// False, and nullptr in `function`, where it has no such function.
  template <class Function>
  bool find(Function& function, const char* name) const {
    function = reinterpret_cast<Function>(dlsym(library_, name));
    return function != nullptr;
  }

 private:
  void* library_ = nullptr;
};

}  // namespace longhand::kernels::cuda
