#include "engine/cli/bench_options.h"

#include <algorithm>
#include <iomanip>
#include <sstream>

#include "engine/cli/bench_statistics.h"
#include "engine/presets.h"

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

double floorSeconds(const kernels::MachineRates& rates, double bytes, double multiplyAdds) {
  const double fastest = std::max({rates.int8MultiplyAddsPerSecond, rates.bf16MultiplyAddsPerSecond,
                                   rates.floatMultiplyAddsPerSecond});
  const double reading = rates.readBytesPerSecond > 0.0 ? bytes / rates.readBytesPerSecond : 0.0;
  return std::max(reading, fastest > 0.0 ? multiplyAdds / fastest : 0.0);
}

nlohmann::json ratesJson(const kernels::MachineRates& rates) {
  return {{"read_bytes_per_second", rates.readBytesPerSecond},
          {"float_multiply_adds_per_second", rates.floatMultiplyAddsPerSecond},
          {"bf16_multiply_adds_per_second", rates.bf16MultiplyAddsPerSecond},
          {"int8_multiply_adds_per_second", rates.int8MultiplyAddsPerSecond}};
}

std::string ratesLine(const kernels::MachineRates& rates) {
  std::ostringstream line;
  line << std::fixed << std::setprecision(1) << "The machine reads "
       << rates.readBytesPerSecond * 1e-9 << " GB/s and does " << std::setprecision(0)
       << rates.floatMultiplyAddsPerSecond * 1e-9 << " float, "
       << rates.bf16MultiplyAddsPerSecond * 1e-9 << " bf16, "
       << rates.int8MultiplyAddsPerSecond * 1e-9 << " int8 billion multiply-adds a second.";
  return line.str();
}

kernels::MachineRates medianRates(const std::vector<kernels::MachineRates>& rates) {
  const auto medianOf = [&rates](double kernels::MachineRates::*rate) {
    std::vector<double> values;
    for (const kernels::MachineRates& each : rates) values.push_back(each.*rate);
    return sampleOf(values).median;
  };
  using kernels::MachineRates;
  return {medianOf(&MachineRates::readBytesPerSecond),
          medianOf(&MachineRates::floatMultiplyAddsPerSecond),
          medianOf(&MachineRates::bf16MultiplyAddsPerSecond),
          medianOf(&MachineRates::int8MultiplyAddsPerSecond)};
}

}  // namespace longhand::engine::cli
