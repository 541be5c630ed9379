#pragma once
// Prompts of reference/*.json with what a model of exact numbers makes of them.

#include <algorithm>
#include <cstdint>
#include <vector>

#include <QTest>

#include "tests/engine/engine_harness.h"

namespace longhand::tests {

inline std::vector<std::int32_t> idsOf(const nlohmann::json& prompt) {
  return prompt.at("ids").get<std::vector<std::int32_t>>();
}

/// Greedy tokens must agree up to the first step whose two best logits are closer than 1e-3.
inline void compareGreedy(engine::Engine& engine, const nlohmann::json& prompt,
                          const std::vector<std::int32_t>& ids) {
  std::vector<std::int32_t> expected = prompt.at("greedy64").get<std::vector<std::int32_t>>();
  const auto margins = prompt.at("greedy_margins").get<std::vector<double>>();
  const auto tie = std::find_if(margins.begin(), margins.end(), [](double m) { return m < 1e-3; });
  expected.resize(
      std::min<std::size_t>(expected.size(), static_cast<std::size_t>(tie - margins.begin())));
  std::vector<std::int32_t> actual = greedyTokens(engine, ids, 64);
  // References end with EOS where the model stops; the engine's tokens do not hold it.
  const auto& eos = engine.modelConfig().eosTokens;
  if (!expected.empty() && std::find(eos.begin(), eos.end(), expected.back()) != eos.end()) {
    expected.pop_back();
  }
  QVERIFY(actual.size() >= expected.size());
  actual.resize(expected.size());
  QCOMPARE(actual, expected);
}

/// Columns "folder" (of stories260K), "format" (a WeightFormat) and "variant" (of
/// stories260K-weights.json): what files hold, and what loading makes of it.
inline void addWeightFormats() {
  QTest::addColumn<QString>("folder");
  QTest::addColumn<int>("format");
  QTest::addColumn<QString>("variant");
  const auto row = [](const char* folder, engine::WeightFormat format, const char* variant) {
    QTest::addRow("%s as %s", folder, variant) << folder << static_cast<int>(format) << variant;
  };
  row("stories260K-f16", engine::WeightFormat::kAuto, "f16");
  row("stories260K-bf16", engine::WeightFormat::kAuto, "bf16");
  row("stories260K-bnb-nf4", engine::WeightFormat::kAuto, "nf4_dq");
  row("stories260K-bnb-nf4-nodq", engine::WeightFormat::kAuto, "nf4");
  row("stories260K-f16", engine::WeightFormat::kF32, "f16");
  row("stories260K-bf16", engine::WeightFormat::kF32, "bf16");
  row("stories260K-f16", engine::WeightFormat::kNf4, "nf4_dq");
  row("stories260K-f16", engine::WeightFormat::kNf4NoDoubleQuantization, "nf4");
}

}  // namespace longhand::tests
