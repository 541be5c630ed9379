#include "app/forecast.h"

#include <algorithm>

#include "engine/memory_plan.h"

namespace longhand::app {

std::vector<PresetForecast> forecastPresets(const ForecastRequest& request,
                                            const std::vector<PresetInfo>& presets) {
  std::vector<PresetForecast> result;
  for (const PresetInfo& preset : presets) {
    engine::PlanRequest plan;
    plan.model = request.model;
    plan.weights = request.weights;
    plan.weightBytes = request.weightBytes;
    plan.backendBytes = request.backendBytes;
    plan.cache = preset.cache;
    plan.contextLength = std::max<std::int64_t>(1, request.contextTokens);
    // As the engine chooses it; where nothing fits, the need is shown for the smallest chunk.
    plan.chunkTokens = std::max<std::int64_t>(1, engine::largestChunk(plan, request.budgetBytes));

    PresetForecast forecast;
    forecast.preset = preset;
    forecast.use = engine::planMemory(plan);
    forecast.budgetBytes = request.budgetBytes;
    forecast.fits = forecast.use.total() <= request.budgetBytes;
    forecast.contextTokens = request.contextTokens;
    forecast.largestContext = engine::largestContext(plan, request.budgetBytes);
    result.push_back(std::move(forecast));
  }
  return result;
}

}  // namespace longhand::app
