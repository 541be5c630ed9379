#pragma once
// From options to a running engine, with progress on stderr when it is a terminal.

#include <filesystem>
#include <memory>
#include <stop_token>

#include "engine/cli/options.h"
#include "engine/engine.h"

namespace longhand::engine::cli {

/// Encoding that ends by Error kCancelled when a stop is requested.
EncodeOptions stoppedBy(std::stop_token stop);

/// What the options say, for a model with this config. Throws Error kInvalidArgument.
EngineOptions engineOptions(const ModelOptions& model, const CacheOptions& cache,
                            const ModelConfig& config);

/// Loads the model, with progress on stderr when it is a terminal.
std::unique_ptr<Engine> loadEngine(const ModelOptions& model, const CacheOptions& cache,
                                   std::stop_token stop);

/// Prefill progress on stderr when it is a terminal; the line is gone when all is done.
void showPrefillProgress(const PrefillProgress& progress);

}  // namespace longhand::engine::cli
