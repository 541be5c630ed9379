// The built-in presets say what DESIGN section 5 says; a user's file is read or refused with the
// reason. Also the ranges of KvCacheConfig.

#include "engine/cache/presets.h"

#include <QTest>

#include "engine/base/error.h"

using longhand::engine::builtInPresets;
using longhand::engine::Error;
using longhand::engine::ErrorCode;
using longhand::engine::KvCacheConfig;
using longhand::engine::parsePresets;
using longhand::engine::Preset;
using longhand::engine::presetById;
using longhand::kernels::DataType;
using longhand::kernels::PageFormat;
using longhand::kernels::QuantScheme;
using longhand::kernels::QuantSolver;

namespace {

std::string presetJson(const std::string& fields) {
  return R"({"presets": [{"id": "mine", "name": "Mine", "description": "For me.")" + fields + "}]}";
}

/// The message with which `json` is refused, or "" when it is read.
std::string refusal(const std::string& json) {
  try {
    parsePresets(json, "my.json");
  } catch (const Error& error) {
    return error.code() == ErrorCode::kFileDamaged ? error.message() : "wrong code";
  }
  return "";
}

template <typename Change>
std::string configRefusal(Change change) {
  KvCacheConfig config;
  change(config);
  try {
    config.validate();
  } catch (const Error& error) {
    return error.code() == ErrorCode::kInvalidArgument ? error.message() : "wrong code";
  }
  return "";
}

}  // namespace

class PresetsTest : public QObject {
  Q_OBJECT

 private slots:
  void builtInPresetsAreThoseOfTheDesign();
  void theDefaultIsQuality();
  void anUnknownIdIsRefusedWithTheList();
  void aPresetOfTheUserMaySetEverything();
  void whatAPresetDoesNotSayIsTheDefault();
  void damagedFilesAreRefusedWithTheReason();
  void configRangesAreChecked();
  void firstLayersHaveBitsOfTheirOwn();
};

void PresetsTest::builtInPresetsAreThoseOfTheDesign() {
  std::vector<std::string> ids;
  for (const Preset& preset : builtInPresets()) {
    ids.push_back(preset.id);
    QVERIFY(!preset.name.empty());
    QVERIFY(preset.description.ends_with("."));
    QCOMPARE(preset.cache.sinkLength, 4);
    preset.cache.validate();
  }
  QCOMPARE(ids, (std::vector<std::string>{"exact", "throughput", "quality", "balanced",
                                          "memory-limit"}));
  const auto bits = [](const char* id) {
    const KvCacheConfig& cache = presetById(id).cache;
    return std::array<std::int64_t, 4>{cache.keyNbits, cache.valueNbits, cache.groupSize,
                                       cache.residualLength};
  };
  QCOMPARE(presetById("exact").cache.keyNbits, 16);
  QCOMPARE(presetById("exact").cache.valueNbits, 16);
  QCOMPARE(bits("throughput"), (std::array<std::int64_t, 4>{8, 8, 64, 128}));
  QCOMPARE(bits("quality"), (std::array<std::int64_t, 4>{4, 4, 64, 256}));
  QCOMPARE(bits("balanced"), (std::array<std::int64_t, 4>{4, 2, 64, 128}));
  QCOMPARE(bits("memory-limit"), (std::array<std::int64_t, 4>{2, 2, 64, 64}));
  QCOMPARE(presetById("memory-limit").cache.firstLayers, 3);
}

void PresetsTest::theDefaultIsQuality() {
  QCOMPARE(presetById(longhand::engine::kDefaultPresetId).name, std::string("Quality"));
  QVERIFY(presetById("quality").cache == KvCacheConfig{});
}

void PresetsTest::anUnknownIdIsRefusedWithTheList() {
  try {
    presetById("fast");
    QFAIL("was not refused");
  } catch (const Error& error) {
    QCOMPARE(error.code(), ErrorCode::kInvalidArgument);
    QVERIFY(error.line().find("\"fast\"") != std::string::npos);
    QVERIFY(error.line().find("memory-limit") != std::string::npos);
  }
}

void PresetsTest::aPresetOfTheUserMaySetEverything() {
  const Preset preset = parsePresets(
      presetJson(R"(, "key_bits": 8, "value_bits": 2, "group_size": 32, "residual_length": 0,
                    "sink_length": 0, "first_layers": 1, "first_layers_key_bits": 16,
                    "first_layers_value_bits": 8, "scheme": "symmetric", "solver": "hqq")"),
      "my.json")[0];
  KvCacheConfig expected;
  expected.keyNbits = 8;
  expected.valueNbits = 2;
  expected.groupSize = 32;
  expected.residualLength = 0;
  expected.sinkLength = 0;
  expected.firstLayers = 1;
  expected.firstLayersKeyNbits = 16;
  expected.firstLayersValueNbits = 8;
  expected.scheme = QuantScheme::kSymmetric;
  expected.solver = QuantSolver::kHqq;
  QCOMPARE(preset.id, std::string("mine"));
  QCOMPARE(preset.name, std::string("Mine"));
  QCOMPARE(preset.description, std::string("For me."));
  QVERIFY(preset.cache == expected);
}

void PresetsTest::whatAPresetDoesNotSayIsTheDefault() {
  QVERIFY(parsePresets(presetJson(""), "my.json")[0].cache == KvCacheConfig{});
  QVERIFY(parsePresets(R"({"presets": []})", "my.json").empty());
}

void PresetsTest::damagedFilesAreRefusedWithTheReason() {
  const auto says = [](const std::string& json, const std::string& reason) {
    const std::string message = refusal(json);
    return message.starts_with("my.json: ") && message.find(reason) != std::string::npos;
  };
  QVERIFY(says("", "no JSON"));
  QVERIFY(says("{\"presets\": [", "no JSON"));
  QVERIFY(says("[]", "\"presets\""));
  QVERIFY(says("{\"presets\": {}}", "\"presets\""));
  QVERIFY(says("{\"presets\": [1]}", "preset 1"));
  QVERIFY(says("{\"presets\": [{\"id\": \"a\"}]}", "\"name\""));
  QVERIFY(says(R"({"presets": [{"id": "", "name": "A", "description": "b"}]})", "\"id\""));
  QVERIFY(says(presetJson(", \"key_bits\": 5"), "bits of keys"));
  QVERIFY(says(presetJson(", \"key_bits\": 4.5"), "\"key_bits\""));
  QVERIFY(says(presetJson(", \"key_bits\": \"4\""), "\"key_bits\""));
  QVERIFY(says(presetJson(", \"group_size\": 99999999999"), "\"group_size\""));
  QVERIFY(says(presetJson(", \"sink_length\": -1"), "sink length"));
  QVERIFY(says(presetJson(", \"keybits\": 4"), "\"keybits\""));
  QVERIFY(says(presetJson(", \"solver\": \"best\""), "\"solver\""));
  const std::string twice = R"({"id": "a", "name": "A", "description": "b"})";
  QVERIFY(says("{\"presets\": [" + twice + "," + twice + "]}", "twice"));
}

void PresetsTest::configRangesAreChecked() {
  QCOMPARE(configRefusal([](KvCacheConfig&) {}), std::string());
  const auto names = [](const std::string& message, const char* word) {
    return message.find(word) != std::string::npos;
  };
  QVERIFY(names(configRefusal([](KvCacheConfig& c) { c.keyNbits = 3; }), "keys"));
  QVERIFY(names(configRefusal([](KvCacheConfig& c) { c.valueNbits = 0; }), "values"));
  QVERIFY(names(configRefusal([](KvCacheConfig& c) { c.groupSize = 48; }), "group"));
  QVERIFY(names(configRefusal([](KvCacheConfig& c) { c.residualLength = 4097; }), "4096"));
  QVERIFY(names(configRefusal([](KvCacheConfig& c) { c.residualLength = -1; }), "residual"));
  QVERIFY(names(configRefusal([](KvCacheConfig& c) { c.sinkLength = 4097; }), "sink"));
  QVERIFY(names(configRefusal([](KvCacheConfig& c) { c.firstLayers = -1; }), "first layers"));
  QVERIFY(names(configRefusal([](KvCacheConfig& c) { c.firstLayersKeyNbits = 1; }), "keys"));
  QVERIFY(names(configRefusal([](KvCacheConfig& c) { c.exactType = DataType::kBF16; }), "F32"));
}

void PresetsTest::firstLayersHaveBitsOfTheirOwn() {
  KvCacheConfig config = presetById("memory-limit").cache;
  const PageFormat two{2, 2, 64, QuantScheme::kAsymmetric, DataType::kF16};
  const PageFormat four{4, 4, 64, QuantScheme::kAsymmetric, DataType::kF16};
  QVERIFY(config.pageFormat(0) == four);
  QVERIFY(config.pageFormat(2) == four);
  QVERIFY(config.pageFormat(3) == two);
  QVERIFY(config.pageFormat(31) == two);
  config.groupSize = 128;
  config.exactType = DataType::kF32;
  config.scheme = QuantScheme::kSymmetric;
  QVERIFY(config.pageFormat(31) ==
          (PageFormat{2, 2, 128, QuantScheme::kSymmetric, DataType::kF32}));
}

QTEST_GUILESS_MAIN(PresetsTest)
#include "presets_test.moc"
