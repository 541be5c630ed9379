#pragma once
// What a context would cost with each preset, before anything is computed.

#include <cstdint>
#include <vector>

#include <QString>

#include "app/preset_store.h"
#include "engine/base/memory_ledger.h"
#include "engine/model/model.h"
#include "engine/model/model_config.h"

namespace longhand::app {

struct PresetForecast {
  PresetInfo preset;
  engine::MemoryUse use;            // by category, with `contextTokens` in the cache
  std::uint64_t budgetBytes = 0;    // what this process may use in all
  bool fits = false;                // use.total() <= budgetBytes
  std::int64_t contextTokens = 0;   // what was asked for
  std::int64_t largestContext = 0;  // tokens that would fit the budget; 0: not even the weights
};

struct ForecastRequest {
  engine::ModelConfig model;
  engine::WeightFormat weights = engine::WeightFormat::kAuto;
  std::uint64_t weightBytes = 0;   // of the loaded model
  std::uint64_t backendBytes = 0;  // of the device, that the backend holds for itself
  std::int64_t contextTokens = 0;
  std::uint64_t budgetBytes = 0;  // free memory of the device and what the engine holds already
};

/// One entry for each preset, in their order. Pure; takes well under a millisecond a preset.
std::vector<PresetForecast> forecastPresets(const ForecastRequest& request,
                                            const std::vector<PresetInfo>& presets);

}  // namespace longhand::app
