#pragma once
// The border between the program and liblonghand_cuda.so. C++ objects cross it, so both must come
// from the same build: the stamp says so.

#include <cstddef>

#include "kernels/backend.h"

#define LONGHAND_PLUGIN_TEXT_OF(x) #x
#define LONGHAND_PLUGIN_TEXT(x) LONGHAND_PLUGIN_TEXT_OF(x)

namespace longhand::kernels {

/// Raise it with every change of kernels/backend.h, types.h, kv_types.h or machine_rates.h.
#define LONGHAND_BACKEND_INTERFACE 3

inline constexpr const char* kCudaPluginStamp =
    "longhand backend " LONGHAND_PLUGIN_TEXT(LONGHAND_BACKEND_INTERFACE) ", compiler " __VERSION__;
inline constexpr const char* kCudaPluginFile = "liblonghand_cuda.so";
inline constexpr const char* kCudaPluginEntry = "longhandCreateCudaBackend";

/// The plug-in's one symbol: a backend that the caller deletes, or nullptr with one sentence in
/// `reason` (cut to reasonBytes, always terminated). Does not throw.
using CreateCudaBackend = Backend* (*)(const char* stamp, int device, char* reason,
                                       std::size_t reasonBytes);

}  // namespace longhand::kernels
