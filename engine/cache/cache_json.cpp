#include "engine/cache/cache_json.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>

#include "engine/base/error.h"
#include "engine/cache/cache_fields.h"

#include <nlohmann/json.hpp>

namespace longhand::engine {
namespace {

using nlohmann::json;

[[noreturn]] void refuse(std::string_view key, const std::string& what) {
  throw Error(ErrorCode::kFileDamaged, "\"" + std::string(key) + "\" " + what + ".");
}

std::int64_t numberOf(const CacheField& field, const json& value) {
  if (!value.is_number_integer()) refuse(field.name, "is no whole number");
  // A number of 64 bits without sign would turn around.
  constexpr auto kLargest = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (value.is_number_unsigned() && value.get<std::uint64_t>() > kLargest) {
    refuse(field.name, "must be " + field.choices());
  }
  return value.get<std::int64_t>();
}

std::int64_t namedValueOf(const CacheField& field, const json& value) {
  std::optional<std::int64_t> number;
  if (value.is_string()) number = field.valueOf(value.get_ref<const std::string&>());
  if (!number) refuse(field.name, "has an unknown value; it must be " + field.choices());
  return *number;
}

void readField(const CacheField& field, const json& value, KvCacheConfig& config) {
  const std::int64_t number =
      field.names.empty() ? numberOf(field, value) : namedValueOf(field, value);
  if (const std::string fault = field.faultOf(number); !fault.empty()) {
    refuse(field.name, "(the " + std::string(field.words) + ") " + fault);
  }
  field.set(config, number);
}

}  // namespace

json writeCacheConfig(const KvCacheConfig& config) {
  json object = json::object();
  for (const CacheField& field : cacheFields()) {
    const std::int64_t value = field.get(config);
    if (field.names.empty()) {
      object[field.name] = value;
    } else {
      object[field.name] = field.textOf(value);
    }
  }
  return object;
}

KvCacheConfig readCacheConfig(const json& object, std::initializer_list<std::string_view> others) {
  if (!object.is_object()) throw Error(ErrorCode::kFileDamaged, "Cache settings are no object.");
  KvCacheConfig config;
  for (const auto& [key, value] : object.items()) {
    const std::string& name = key;
    const std::span<const CacheField> fields = cacheFields();
    const auto field = std::find_if(fields.begin(), fields.end(),
                                    [&](const CacheField& each) { return each.name == name; });
    if (field != fields.end()) {
      readField(*field, value, config);
    } else if (std::find(others.begin(), others.end(), name) == others.end()) {
      refuse(name, "is no setting of the cache");
    }
  }
  return config;
}

std::string cacheConfigText(const KvCacheConfig& config) { return writeCacheConfig(config).dump(); }

KvCacheConfig cacheConfigFromText(std::string_view text) {
  const json object = json::parse(text, nullptr, false);
  if (object.is_discarded()) throw Error(ErrorCode::kFileDamaged, "Cache settings are no JSON.");
  return readCacheConfig(object);
}

}  // namespace longhand::engine
