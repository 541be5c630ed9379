#pragma once
// The options that several commands share: how they are spelled, and what they mean to the engine.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "engine/cache/cache_fields.h"
#include "engine/engine.h"
#include "engine/model/weight_names.h"

#include <CLI/CLI.hpp>

namespace longhand::engine::cli {

/// A wrong combination of options: exit status 2, like everything that the parser itself refuses.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A whole number from `smallest` to `largest`; what is no such number is refused, however long.
CLI::Validator wholeNumber(std::int64_t smallest, std::int64_t largest);
/// Likewise for numbers with decimals; NaN is none.
CLI::Validator decimalNumber(double smallest, double largest);
/// Parts between commas, each of which `part` accepts; an empty one is refused. CLI11's own
/// delimiter() passes over empty parts.
CLI::Validator listOf(const CLI::Validator& part);
/// The parts of several such lists, in order.
std::vector<std::string> partsOf(const std::vector<std::string>& lists);

/// Which model, in which form, on how many threads.
struct ModelOptions {
  std::string model;  // folder; empty: the bundled one
  std::string weights = "auto";
  std::int64_t contextLength = 0;
  std::int64_t chunkTokens = 0;
  int threads = 0;
  std::string cpuPath = "auto";
  std::string backend = "auto";
  std::string cudaPlugin;  // empty: looked for
  std::string ropeScaling;
  std::optional<double> ropeFactor;
  std::optional<std::int64_t> ropeOriginalLength;
  std::optional<double> ropeTheta;

  void addTo(CLI::App& command);
  /// The folder, or that of the bundled model. Throws Error kFileNotFound.
  std::filesystem::path folder() const;
  WeightFormat weightFormat() const;
  /// What replaces the model's own position encoding; nothing when no option says so. Throws
  /// UsageError for a scaling without a factor.
  std::optional<RopeConfig> rope(const RopeConfig& own) const;

 private:
  void addRopeTo(CLI::App& command);
};

/// A preset, and values that override it.
struct CacheOptions {
  std::string preset;
  std::vector<std::optional<std::int64_t>> given;  // by index of cacheFields()
  std::string exactType = "auto";

  void addTo(CLI::App& command);
  /// Bits given explicitly hold for all layers, so they also replace those of a preset's first
  /// layers. Throws Error kInvalidArgument.
  KvCacheConfig config(WeightFormat weights) const;

 private:
  void addField(CLI::App& command, const CacheField& field, std::size_t index);
};

/// How a cache is written in a list of several.
inline constexpr std::string_view kCacheTextForm = "KEY_BITS/VALUE_BITS[/GROUP_SIZE[/RESIDUAL]]";
/// "8/4" or "2/2/32/64": bits of keys and values in all layers, group size, residual; everything
/// else as `base`. Throws Error kInvalidArgument.
KvCacheConfig cacheFromText(const std::string& text, KvCacheConfig base);

/// How tokens are chosen and when generation ends.
struct SamplerOptions {
  bool isGreedy = false;
  std::optional<double> temperature;
  std::optional<int> topK;
  std::optional<double> topP;
  std::optional<double> minP;
  std::optional<double> repetitionPenalty;
  std::uint64_t seed = 0;
  std::int64_t maxTokens = 0;
  std::vector<std::string> stopTexts;

  void addTo(CLI::App& command);
  /// Where no option says how to sample, a model whose generation_config.json has do_sample false
  /// decodes greedily.
  GenerateOptions generateOptions(const std::filesystem::path& modelFolder) const;
};

/// The folder of the bundled model: beside the executable, under the install prefix, or in the
/// source tree. Throws Error kFileNotFound.
std::filesystem::path bundledModelFolder();

}  // namespace longhand::engine::cli
