#include "engine/cli/engine_setup.h"

#include <unistd.h>

#include <iostream>
#include <utility>

#include "engine/cli/output.h"

namespace longhand::engine::cli {

EngineOptions engineOptions(const ModelOptions& model, const CacheOptions& cache,
                            const ModelConfig& config) {
  EngineOptions options;
  options.weights = model.weightFormat();
  options.cache = cache.config(options.weights);
  options.contextLength = model.contextLength;
  options.threads = model.threads;
  options.cpuPath = model.cpuPath;
  options.backend = model.backend;
  options.cudaPlugin = model.cudaPlugin;
  options.chunkTokens = model.chunkTokens;
  options.rope = model.rope(config.rope);
  return options;
}

EncodeOptions stoppedBy(std::stop_token stop) {
  EncodeOptions options;
  options.stop = std::move(stop);
  return options;
}

std::unique_ptr<Engine> loadEngine(const ModelOptions& model, const CacheOptions& cache,
                                   std::stop_token stop) {
  const std::filesystem::path folder = model.folder();
  const EngineOptions options = engineOptions(model, cache, readModelConfig(folder));
  LoadProgress progress;
  if (isTerminal(STDERR_FILENO)) {
    progress = [](std::uint64_t done, std::uint64_t total) {
      std::cerr << "\rLoading " << formatBytes(done) << " of " << formatBytes(total) << "\x1B[K";
      if (done >= total) std::cerr << "\r\x1B[K";
      std::cerr << std::flush;
    };
  }
  std::unique_ptr<Engine> engine = Engine::load(folder, options, progress, std::move(stop));
  if (!model.cudaPlugin.empty() && !engine->whyNotDevice().empty()) {
    std::cerr << "No graphics card is used: " << engine->whyNotDevice() << std::endl;
  }
  engine->onDeviceRestart(
      [](const std::string& sentence) { std::cerr << "\r\x1B[K" << sentence << std::endl; });
  return engine;
}

void showPrefillProgress(const PrefillProgress& progress) {
  if (!isTerminal(STDERR_FILENO)) return;
  if (progress.tokensDone >= progress.tokensTotal) {
    std::cerr << "\r\x1B[K" << std::flush;
    return;
  }
  if (progress.tokensDone == 0) {
    std::cerr << "\rReading " << formatCount(progress.tokensTotal) << " tokens\x1B[K" << std::flush;
    return;
  }
  std::cerr << "\rReading " << formatCount(progress.tokensDone) << " of "
            << formatCount(progress.tokensTotal) << " tokens, "
            << static_cast<std::int64_t>(progress.tokensPerSecond) << " tokens/s, "
            << static_cast<std::int64_t>(progress.secondsLeft + 0.5) << " s left\x1B[K"
            << std::flush;
}

}  // namespace longhand::engine::cli
