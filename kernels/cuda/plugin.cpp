#include "kernels/cuda/plugin.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <exception>
#include <string>

#include "kernels/cuda/cuda_backend.h"

namespace {

/// The file that this code was loaded from.
std::string ownFile() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&ownFile), &info) == 0 || info.dli_fname == nullptr) {
    return longhand::kernels::kCudaPluginFile;
  }
  return info.dli_fname;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) longhand::kernels::Backend*
longhandCreateCudaBackend(const char* stamp, int device, char* reason, std::size_t reasonBytes) {
  using namespace longhand::kernels;
  if (std::strcmp(stamp, kCudaPluginStamp) != 0) {
    std::snprintf(reason, reasonBytes,
                  "%s belongs to another version of Longhand (\"%s\", not \"%s\").",
                  ownFile().c_str(), kCudaPluginStamp, stamp);
    return nullptr;
  }
  try {
    std::string why;
    auto backend = createCudaBackend({.device = device}, why);
    std::snprintf(reason, reasonBytes, "%s", why.c_str());
    return backend.release();
  } catch (const std::exception& error) {
    std::snprintf(reason, reasonBytes, "The CUDA backend cannot start: %s.", error.what());
    return nullptr;
  }
}
