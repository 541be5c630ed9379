#include "engine/cache/cache_fields.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <type_traits>
#include <utility>
#include <vector>

namespace longhand::engine {
namespace {

using kernels::QuantScheme;
using kernels::QuantSolver;

// By value of the enum. Written to files and databases: never rename.
constexpr std::array<std::string_view, 2> kSchemeNames = {"asymmetric", "symmetric"};
constexpr std::array<std::string_view, 2> kSolverNames = {"minmax", "hqq"};
static_assert(static_cast<int>(QuantScheme::kAsymmetric) == 0);
static_assert(static_cast<int>(QuantScheme::kSymmetric) == 1);
static_assert(static_cast<int>(QuantSolver::kMinMax) == 0);
static_assert(static_cast<int>(QuantSolver::kHqq) == 1);

using Config = KvCacheConfig;
using Text = std::string_view;

template <auto Member>
constexpr CacheField field(Text name, Text words, Text meaning) {
  CacheField result;
  result.name = name;
  result.words = words;
  result.meaning = meaning;
  result.get = [](const Config& config) { return static_cast<std::int64_t>(config.*Member); };
  result.set = [](Config& config, std::int64_t value) {
    config.*Member = static_cast<std::remove_cvref_t<decltype(config.*Member)>>(value);
  };
  return result;
}

template <auto Member>
constexpr CacheField count(Text name, Text words, Text meaning, Text unit, std::int64_t most) {
  CacheField result = field<Member>(name, words, meaning);
  result.unit = unit;
  result.most = most;
  return result;
}

template <auto Member>
constexpr CacheField oneOf(Text name, Text words, Text meaning, std::span<const int> values) {
  CacheField result = field<Member>(name, words, meaning);
  result.values = values;
  return result;
}

template <auto Member>
constexpr CacheField oneOf(Text name, Text words, Text meaning, std::span<const Text> names) {
  CacheField result = field<Member>(name, words, meaning);
  result.names = names;
  return result;
}

// Name, words in a sentence, meaning; then what it may be.
constexpr std::array kFields = {
    oneOf<&Config::keyNbits>("key_bits", "bits of keys", "Bits of keys, in all layers", kCodeNbits),
    oneOf<&Config::valueNbits>("value_bits", "bits of values", "Bits of values, in all layers",
                               kCodeNbits),
    oneOf<&Config::groupSize>("group_size", "group size",
                              "Numbers that share a scale, and tokens of a page", kGroupSizes),
    count<&Config::residualLength>("residual_length", "residual length",
                                   "Newest tokens kept exactly", "TOKENS", kMaxExactTokens),
    count<&Config::sinkLength>("sink_length", "sink length", "First tokens kept exactly", "TOKENS",
                               kMaxExactTokens),
    count<&Config::slidingWindow>(
        "sliding_window", "sliding window",
        "Newest tokens that are still read, besides the first; older ones are forgotten. "
        "Default 0: all are read",
        "TOKENS", kMaxContextLength),
    count<&Config::firstLayers>("first_layers", "number of first layers with bits of their own",
                                "Number of first layers with bits of their own", "N",
                                kMaxFirstLayers),
    oneOf<&Config::firstLayersKeyNbits>("first_layers_key_bits", "bits of keys in the first layers",
                                        "Bits of keys there", kCodeNbits),
    oneOf<&Config::firstLayersValueNbits>("first_layers_value_bits",
                                          "bits of values in the first layers",
                                          "Bits of values there", kCodeNbits),
    oneOf<&Config::scheme>("scheme", "scheme", "How numbers become codes, default asymmetric",
                           kSchemeNames),
    oneOf<&Config::solver>("solver", "solver", "How scale and min are found, default minmax",
                           kSolverNames),
};

struct Anything {
  template <typename Value>
  operator Value() const;
};
template <std::size_t... I>
consteval bool hasFields(std::index_sequence<I...> /*count*/) {
  return requires { KvCacheConfig{(static_cast<void>(I), Anything{})...}; };
}
// Besides the table's fields a config has exactType alone.
static_assert(hasFields(std::make_index_sequence<kFields.size() + 1>()) &&
                  !hasFields(std::make_index_sequence<kFields.size() + 2>()),
              "each field of KvCacheConfig needs a line in the table");

std::string listed(const std::vector<std::string>& parts) {
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) text += i + 1 == parts.size() ? " or " : ", ";
    text += parts[i];
  }
  return text;
}

}  // namespace

std::string CacheField::choices() const {
  std::vector<std::string> parts(names.begin(), names.end());
  for (const int value : values) parts.push_back(std::to_string(value));
  return parts.empty() ? "between 0 and " + std::to_string(most) : listed(parts);
}

std::string CacheField::faultOf(std::int64_t value) const {
  const auto nNames = static_cast<std::int64_t>(names.size());
  const bool isKnown = values.empty()
                           ? value >= 0 && (names.empty() ? value <= most : value < nNames)
                           : std::find(values.begin(), values.end(), value) != values.end();
  return isKnown ? "" : "must be " + choices() + ", not " + std::to_string(value);
}

std::optional<std::int64_t> CacheField::valueOf(std::string_view valueName) const {
  const auto found = std::find(names.begin(), names.end(), valueName);
  if (found == names.end()) return {};
  return found - names.begin();
}

std::string CacheField::textOf(std::int64_t value) const {
  return names.empty() ? std::to_string(value)
                       : std::string(names[static_cast<std::size_t>(value)]);
}

std::span<const CacheField> cacheFields() { return kFields; }

std::string cacheDifferences(const KvCacheConfig& config, const KvCacheConfig& other) {
  std::string text;
  const auto add = [&](std::string_view words, const std::string& value, const std::string& than) {
    if (value == than) return;
    text += (text.empty() ? "" : ", ") + std::string(words) + " " + value + " instead of " + than;
  };
  for (const CacheField& field : cacheFields()) {
    add(field.words, field.textOf(field.get(config)), field.textOf(field.get(other)));
  }
  const auto typeText = [](const KvCacheConfig& of) {
    return std::string(of.exactType == kernels::DataType::kF32 ? "F32" : "F16");
  };
  add("exact tokens", typeText(config), typeText(other));
  return text;
}

}  // namespace longhand::engine
