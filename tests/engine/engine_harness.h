#pragma once
// Engines and reference values for tests of whole models.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <QString>

#include "engine/engine.h"
#include "tests/support/golden_file.h"
#include "tests/support/paths.h"

#include <nlohmann/json.hpp>

namespace longhand::tests {

inline nlohmann::json readJson(const std::filesystem::path& path) {
  std::ifstream file(path);
  return nlohmann::json::parse(file);
}

/// No quantization and no rounding: what reference values of 1e-4 need.
inline engine::KvCacheConfig unroundedCache() {
  engine::KvCacheConfig config;
  config.keyNbits = 16;
  config.valueNbits = 16;
  config.exactType = kernels::DataType::kF32;
  return config;
}
/// No quantization; F16 as in the preset Exact.
inline engine::KvCacheConfig f16Cache() {
  engine::KvCacheConfig config = unroundedCache();
  config.exactType = kernels::DataType::kF16;
  return config;
}

/// "page-k4v2-g32-r64-s4" or "page-b4-g32-r64-s4".
inline engine::KvCacheConfig cacheNamed(const QString& name) {
  engine::KvCacheConfig config;
  for (const QString& part : name.split('-')) {
    const QString digits = part.mid(1);
    if (part.startsWith('k')) {
      config.keyNbits = digits.section('v', 0, 0).toInt();
      config.valueNbits = digits.section('v', 1, 1).toInt();
    } else if (part.startsWith('b')) {
      config.keyNbits = config.valueNbits = digits.toInt();
    } else if (part.startsWith('g')) {
      config.groupSize = digits.toInt();
    } else if (part.startsWith('r')) {
      config.residualLength = digits.toInt();
    } else if (part.startsWith('s')) {
      config.sinkLength = digits.toInt();
    }
  }
  return config;
}

/// With the weights as the files have them. One thread, unless the options say more: test models
/// are so small that handing out work costs more than it saves.
inline std::unique_ptr<engine::Engine> loadEngine(const std::filesystem::path& folder,
                                                  const engine::KvCacheConfig& cache,
                                                  engine::EngineOptions options = {}) {
  options.cache = cache;
  if (options.threads == 0) options.threads = 1;
  return engine::Engine::load(folder, options, {}, {});
}

inline double maxDifference(std::span<const float> actual, std::span<const double> expected) {
  if (actual.size() != expected.size()) return HUGE_VAL;
  double worst = 0.0;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const double difference = std::abs(static_cast<double>(actual[i]) - expected[i]);
    if (!(difference <= worst)) worst = difference;  // a NaN shows
  }
  return worst;
}

inline std::int32_t argmax(std::span<const float> logits) {
  return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

inline engine::GenerateOptions greedy(std::int64_t maxTokens) {
  engine::GenerateOptions options;
  options.sampler.temperature = 0.0;
  options.maxTokens = maxTokens;
  return options;
}

/// The tokens of a greedy continuation that ends for no other reason than the limit or EOS.
inline std::vector<std::int32_t> greedyTokens(engine::Engine& engine,
                                              std::span<const std::int32_t> prompt,
                                              std::int64_t maxTokens) {
  return engine.generate(prompt, greedy(maxTokens), {}, {}).tokens;
}

}  // namespace longhand::tests

/// For a bound that is exceeded, says by how much.
#define LONGHAND_VERIFY_AT_MOST(value, bound)                                         \
  do {                                                                                \
    const double measured_ = (value);                                                 \
    QVERIFY2(measured_ <= (bound), qPrintable(QString("%1 = %2, at most %3")          \
                                                  .arg(#value)                        \
                                                  .arg(measured_)                     \
                                                  .arg(static_cast<double>(bound)))); \
  } while (false)
