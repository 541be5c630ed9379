#pragma once
// The errors of kernels/checks, in the namespace of the tests.

#include "kernels/checks/kv_integer_error.h"

namespace longhand::tests {
using namespace kernels::checks;  // NOLINT(google-build-using-namespace): the whole point
}
