#pragma once
// The made-up layers of kernels/checks, in the namespace of the tests.

#include "kernels/checks/kv_scene.h"

namespace longhand::tests {
using namespace kernels::checks;  // NOLINT(google-build-using-namespace): the whole point
}
