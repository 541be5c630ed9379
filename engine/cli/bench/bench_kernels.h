#pragma once
// `longhand-cli bench --kernels`: each operation of the backend alone, on random numbers of a
// model's shape, all of them in memory and none in a cache.

#include "engine/cli/bench/bench_options.h"
#include "engine/cli/interrupt.h"

namespace longhand::engine::cli {

/// Measures and prints: matrices with 1, 4, 8 and --prefill-tokens tokens, and for each --cache at
/// each --depth attention of one token and of --prefill-tokens, and packing. Throws Error.
void benchKernels(const BenchOptions& options, Interrupt& interrupt);

}  // namespace longhand::engine::cli
