#pragma once
// Matrices and weights of kernels/checks, in the namespace of the tests.

#include "kernels/checks/test_matrix.h"

namespace longhand::tests {
using namespace kernels::checks;  // NOLINT(google-build-using-namespace): the whole point
}
