#include "engine/cli/bench/bench_options.h"

#include <algorithm>
#include <iomanip>
#include <sstream>
#include <utility>

#include "engine/cache/presets.h"
#include "engine/cli/bench/bench_statistics.h"
#include "kernels/cpu/base/cache_size.h"

namespace longhand::engine::cli {
namespace {

/// As cacheFromText(), or the id of a preset.
NamedCache parseCache(const std::string& text, const KvCacheConfig& base) {
  for (const Preset& preset : builtInPresets()) {
    if (preset.id != text) continue;
    KvCacheConfig config = preset.cache;
    config.exactType = base.exactType;
    return {text, config};
  }
  return {text, cacheFromText(text, base)};
}

std::string nameOf(const KvCacheConfig& config) {
  return std::to_string(config.keyNbits) + "/" + std::to_string(config.valueNbits);
}

}  // namespace

std::vector<NamedCache> BenchOptions::namedCaches() const {
  const KvCacheConfig base = cache.config(model.weightFormat());
  std::vector<NamedCache> named;
  for (const std::string& text : caches) named.push_back(parseCache(text, base));
  if (named.empty()) named.push_back({nameOf(base), base});
  return named;
}

ModelConfig BenchOptions::modelConfig() const {
  return shape.empty() ? readModelConfig(model.folder()) : shapeConfig(shape);
}

double floorSeconds(const MachineSpeed& machine, const Work& work) {
  const kernels::MachineRates& rates = machine.rates;
  const double fastest = std::max({rates.int8MultiplyAddsPerSecond, rates.bf16MultiplyAddsPerSecond,
                                   rates.floatMultiplyAddsPerSecond});
  const bool isInMemory = work.footprintBytes > machine.cacheBytes;
  const double reading =
      isInMemory && rates.readBytesPerSecond > 0.0 ? work.bytes / rates.readBytesPerSecond : 0.0;
  return std::max(reading, fastest > 0.0 ? work.multiplyAdds / fastest : 0.0);
}

RateProbe::RateProbe(std::function<kernels::MachineRates()> measure, bool isOnHost)
    : measure_(std::move(measure)),
      cacheBytes_(isOnHost ? static_cast<double>(kernels::lastLevelCacheBytes()) : 0.0),
      all_{measure_()} {}

MachineSpeed RateProbe::bracket() {
  const kernels::MachineRates before = all_.back();
  const kernels::MachineRates& after = all_.emplace_back(measure_());
  return {{std::max(before.readBytesPerSecond, after.readBytesPerSecond),
           std::max(before.floatMultiplyAddsPerSecond, after.floatMultiplyAddsPerSecond),
           std::max(before.bf16MultiplyAddsPerSecond, after.bf16MultiplyAddsPerSecond),
           std::max(before.int8MultiplyAddsPerSecond, after.int8MultiplyAddsPerSecond)},
          cacheBytes_};
}

MachineSpeed RateProbe::median() const {
  const auto medianOf = [this](double kernels::MachineRates::*rate) {
    std::vector<double> values;
    for (const kernels::MachineRates& each : all_) values.push_back(each.*rate);
    return sampleOf(values).median;
  };
  using kernels::MachineRates;
  return {{medianOf(&MachineRates::readBytesPerSecond),
           medianOf(&MachineRates::floatMultiplyAddsPerSecond),
           medianOf(&MachineRates::bf16MultiplyAddsPerSecond),
           medianOf(&MachineRates::int8MultiplyAddsPerSecond)},
          cacheBytes_};
}

nlohmann::json machineJson(const MachineSpeed& machine) {
  const kernels::MachineRates& rates = machine.rates;
  return {{"read_bytes_per_second", rates.readBytesPerSecond},
          {"float_multiply_adds_per_second", rates.floatMultiplyAddsPerSecond},
          {"bf16_multiply_adds_per_second", rates.bf16MultiplyAddsPerSecond},
          {"int8_multiply_adds_per_second", rates.int8MultiplyAddsPerSecond},
          {"cache_bytes", machine.cacheBytes}};
}

std::string machineLine(const MachineSpeed& machine) {
  const kernels::MachineRates& rates = machine.rates;
  std::ostringstream line;
  line << std::fixed << std::setprecision(1) << "The machine reads "
       << rates.readBytesPerSecond * 1e-9 << " GB/s and does " << std::setprecision(0)
       << rates.floatMultiplyAddsPerSecond * 1e-9 << " float, "
       << rates.bf16MultiplyAddsPerSecond * 1e-9 << " bf16, "
       << rates.int8MultiplyAddsPerSecond * 1e-9
       << " int8 billion multiply-adds a second (medians).\n"
          "%floor is taken of the better of what was measured right before and after.";
  if (machine.cacheBytes > 0.0) {
    line << " What fits the " << machine.cacheBytes / (1 << 20)
         << " MiB of the processor's caches has no floor of bytes: cache.";
  }
  return line.str();
}

std::string percentOfFloorText(double percent) {
  if (!(percent > 0.0)) return "cache";
  std::ostringstream text;
  text << std::fixed << std::setprecision(1) << percent;
  return text.str();
}

}  // namespace longhand::engine::cli
