#pragma once
// `longhand-cli bench`: a whole model, prefill and decode behind caches filled with random tokens.

#include "engine/cli/bench/bench_options.h"
#include "engine/cli/interrupt.h"

namespace longhand::engine::cli {

/// Measures and prints. Throws Error.
void benchModel(const BenchOptions& options, Interrupt& interrupt);

}  // namespace longhand::engine::cli
