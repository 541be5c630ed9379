#pragma once
// The names of the weight formats: for people, for --weights, and for what is kept in a database.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/model/model.h"

namespace longhand::engine {

/// "auto", "f32", "nf4", "nf4-single" (without double quantization), ...
std::string weightFormatName(WeightFormat format);
/// Also by a spelling of earlier versions; nothing for an unknown one.
std::optional<WeightFormat> weightFormatOf(std::string_view name);
/// Today's names, each once.
std::vector<std::string> weightFormatNames();

}  // namespace longhand::engine
