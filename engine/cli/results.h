#pragma once
// How the result of one generate() is shown.

#include <string>

#include "engine/engine.h"

#include <nlohmann/json.hpp>

namespace longhand::engine::cli {

/// All fields of the result; times in seconds.
nlohmann::json resultJson(const GenerateResult& result);
/// "12 tokens at 30.1 tokens/s after 0.2 s (85 prompt tokens, 40 reused); ended by: end_of_text".
std::string resultLine(const GenerateResult& result);

}  // namespace longhand::engine::cli
