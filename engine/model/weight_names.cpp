#include "engine/model/weight_names.h"

#include <array>
#include <utility>

namespace longhand::engine {
namespace {

// Kept in databases and scripts: a name that changes joins the older ones.
constexpr std::array<std::pair<WeightFormat, std::string_view>, 7> kNames = {{
    {WeightFormat::kAuto, "auto"},
    {WeightFormat::kF32, "f32"},
    {WeightFormat::kF16, "f16"},
    {WeightFormat::kBF16, "bf16"},
    {WeightFormat::kNf4, "nf4"},
    {WeightFormat::kNf4NoDoubleQuantization, "nf4-single"},
    {WeightFormat::kInt8, "int8"},
}};
constexpr std::string_view kOlderSingle = "nf4-no-double-quantization";  // of the window's settings

}  // namespace

std::string weightFormatName(WeightFormat format) {
  for (const auto& [known, name] : kNames) {
    if (known == format) return std::string(name);
  }
  return "auto";
}

std::optional<WeightFormat> weightFormatOf(std::string_view name) {
  if (name == kOlderSingle) return WeightFormat::kNf4NoDoubleQuantization;
  for (const auto& [format, known] : kNames) {
    if (known == name) return format;
  }
  return {};
}

std::vector<std::string> weightFormatNames() {
  std::vector<std::string> names;
  for (const auto& [format, name] : kNames) names.emplace_back(name);
  return names;
}

}  // namespace longhand::engine
