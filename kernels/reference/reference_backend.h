#pragma once
// The slow twin: every operation in plain scalar loops with double sums, one thread. Tests compare
// every other backend with it; nothing else should use it.

#include <memory>

#include "kernels/backend.h"

namespace longhand::kernels {

std::unique_ptr<Backend> createReferenceBackend();

}  // namespace longhand::kernels
