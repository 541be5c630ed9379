// What a long evening of use does to one engine: regenerate, edit, branch, switch presets, load
// models. Every answer is that of a fresh engine, and the memory comes back.
#include <QTest>

#include "engine/cache/presets.h"
#include "engine/engine.h"
#include "engine/text/chat_template.h"
#include "tests/engine/engine_harness.h"

namespace longhand {

using namespace tests;  // NOLINT: a test file
using engine::ChatTurn;
using engine::Engine;
using engine::GenerateResult;

namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20U;

/// With products of floats: those of 16 and 8 bits (fast_path_test has their budget) differ between
/// a prompt and an answer by more than a mistake of state might.
std::unique_ptr<Engine> loadDemo(const engine::KvCacheConfig& cache) {
  engine::EngineOptions options;
  options.cpuPath = "avx512";
  return loadEngine(resourcePath("longhand-demo"), cache, options);
}

std::vector<std::int32_t> documentPrompt() {
  const nlohmann::json reference = readJson(dataPath("longhand-demo/longhand-demo.json"));
  for (const nlohmann::json& prompt : reference.at("prompts")) {
    if (prompt.at("name") == "sample") return prompt.at("ids").get<std::vector<std::int32_t>>();
  }
  return {};
}

/// Asks and keeps the answer as the chat's next turn.
GenerateResult ask(Engine& engine, std::vector<ChatTurn>& turns, const std::string& question) {
  turns.push_back({question, std::nullopt, {}});
  const GenerateResult result =
      engine.generate(engine::encodeChat(engine.tokenizer(), "", turns), greedy(30), {}, {});
  turns.back().answer = result.text;
  turns.back().answerTokens = result.tokens;
  return result;
}

/// The tokens that the engine holds, read in one go by a fresh one, give the same next logits.
bool equalsReplay(Engine& engine, const engine::KvCacheConfig& cache) {
  const std::span<const std::int32_t> cached = engine.cachedTokens();
  const std::vector<std::int32_t> tokens(cached.begin(), cached.end());
  const auto fresh = loadDemo(cache);
  const std::vector<float> expected = fresh->nextLogits(tokens);
  const std::vector<float> actual = engine.nextLogits(tokens);
  return argmax(actual) == argmax(expected) &&
         maxDifference(actual, std::vector<double>(expected.begin(), expected.end())) < 2e-2;
}

}  // namespace

class LongLifeTest : public QObject {
  Q_OBJECT

 private slots:
  void regeneratingFiftyTimesAlwaysEqualsAReplay();
  void editsAndBranchesEqualAReplay();
  void convertedChatGoesOn();
  void conversionThatCannotKeepTheTokensForgetsThem();
  void loadingTwentyTimesGivesTheMemoryBack();
  void switchingFiftyTimesGivesTheMemoryBack();
};

void LongLifeTest::regeneratingFiftyTimesAlwaysEqualsAReplay() {
  const auto engine = loadDemo(f16Cache());
  const std::vector<std::int32_t> prompt = documentPrompt();
  const GenerateResult first = engine->generate(prompt, greedy(40), {}, {});
  for (int i = 0; i < 50; ++i) {
    const GenerateResult again = engine->generate(prompt, greedy(40), {}, {});
    QCOMPARE(again.tokens, first.tokens);
    QCOMPARE(again.reusedTokens, again.promptTokens - 1);
  }
  QVERIFY(equalsReplay(*engine, f16Cache()));

  // A quantized cache computes the page again that an answer has helped to shape: the fiftieth
  // answer has no more errors than the first.
  const engine::KvCacheConfig quality = engine::presetById("quality").cache;
  const auto packed = loadDemo(quality);
  for (int i = 0; i < 50; ++i) {
    QCOMPARE(packed->generate(prompt, greedy(40), {}, {}).tokens, first.tokens);
  }
}

void LongLifeTest::editsAndBranchesEqualAReplay() {
  const auto engine = loadDemo(f16Cache());
  std::vector<ChatTurn> trunk;
  ask(*engine, trunk, "Anna has a red bicycle. What colour is the bicycle of Anna?");
  ask(*engine, trunk, "Bruno lives in Oslo. Where does Bruno live?");
  ask(*engine, trunk, "Who has the bicycle?");
  QVERIFY(equalsReplay(*engine, f16Cache()));

  std::vector<ChatTurn> branch(trunk.begin(), trunk.begin() + 1);  // the second question, edited
  const GenerateResult edited = ask(*engine, branch, "Clara lives in Rome. Where does Clara live?");
  QVERIFY(edited.reusedTokens > 10);
  ask(*engine, branch, "Who has the bicycle?");
  QVERIFY(equalsReplay(*engine, f16Cache()));

  const GenerateResult back = ask(*engine, trunk, "Where does Bruno live?");
  const auto fresh = loadDemo(f16Cache());
  trunk.pop_back();
  QCOMPARE(back.tokens, ask(*fresh, trunk, "Where does Bruno live?").tokens);
  QVERIFY(equalsReplay(*engine, f16Cache()));
}

void LongLifeTest::convertedChatGoesOn() {
  const engine::KvCacheConfig quality = engine::presetById("quality").cache;
  const engine::KvCacheConfig limit = engine::presetById("memory-limit").cache;
  const auto engine = loadDemo(quality);
  const std::vector<std::int32_t> prompt = documentPrompt();
  const GenerateResult before = engine->generate(prompt, greedy(20), {}, {});
  const std::size_t cached = engine->cachedTokens().size();

  const engine::ConvertCost cost = engine->convertCost(limit, 0);
  QVERIFY(cost.isInPlace && cost.bytesAfter < cost.bytesBefore && cost.pagesToConvert > 0);
  const engine::CacheConversion done = engine->convertCache(limit, 0, {}, {});
  QVERIFY(done.isInPlace && done.freedBytes() > 0);
  QCOMPARE(done.pagesConverted, cost.pagesToConvert);
  QCOMPARE(engine->cachedTokens().size(), cached);
  QCOMPARE(engine->cacheConfig(), limit);
  const GenerateResult after = engine->generate(prompt, greedy(20), {}, {});
  QVERIFY(after.reusedTokens + limit.groupSize >= after.promptTokens - 1);
  QCOMPARE(after.text.substr(0, 4), before.text.substr(0, 4));

  const engine::ConvertCost up = engine->convertCost(quality, 0);
  QVERIFY(up.isInPlace && up.pagesToConvert == 0 && up.tokensBelowBits > 500);
}

void LongLifeTest::conversionThatCannotKeepTheTokensForgetsThem() {
  const auto engine = loadDemo(engine::presetById("quality").cache);
  const std::vector<std::int32_t> prompt = documentPrompt();
  engine->generate(prompt, greedy(5), {}, {});
  const engine::KvCacheConfig config = engine::presetById("balanced").cache;
  const auto cached = static_cast<std::int64_t>(engine->cachedTokens().size());
  const engine::ConvertCost cost = engine->convertCost(config, 100);
  QVERIFY(!cost.isInPlace);
  QCOMPARE(cost.tokensToRead, cached);
  QVERIFY(!engine->convertCache(config, 100, {}, {}).isInPlace);
  QCOMPARE(engine->cachedTokens().size(), std::size_t{0});
  QCOMPARE(engine->contextLength(), 100);
  engine->convertCache(config, 0, {}, {});
  QCOMPARE(engine->generate(prompt, greedy(5), {}, {}).reusedTokens, 0);
}

void LongLifeTest::loadingTwentyTimesGivesTheMemoryBack() {
  const std::vector<std::int32_t> prompt = documentPrompt();
  const auto live = [&] {
    const auto engine = loadDemo(engine::presetById("quality").cache);
    engine->generate(prompt, greedy(5), {}, {});
    return engine->memory().device.processBytes;
  };
  live();  // what is taken once and for all
  const std::uint64_t first = live();
  std::uint64_t last = 0;
  for (int i = 0; i < 20; ++i) last = live();
  QVERIFY2(last < first + 16 * kMiB, qPrintable(QString("%1 after %2").arg(last).arg(first)));
}

void LongLifeTest::switchingFiftyTimesGivesTheMemoryBack() {
  const auto engine = loadDemo(engine::presetById("exact").cache);
  const std::vector<std::int32_t> prompt = documentPrompt();
  const auto& presets = engine::builtInPresets();
  std::uint64_t first = 0;
  for (int i = 0; i < 50; ++i) {
    const engine::KvCacheConfig& cache =
        presets[static_cast<std::size_t>(i) % presets.size()].cache;
    if (i % 10 == 9) {
      engine->configureCache(cache, 0);  // reads again
    } else {
      engine->convertCache(cache, 0, {}, {});
    }
    engine->generate(prompt, greedy(3), {}, {});
    if (i == 9) first = engine->memory().device.processBytes;
  }
  const std::uint64_t last = engine->memory().device.processBytes;
  QVERIFY2(last < first + 16 * kMiB, qPrintable(QString("%1 after %2").arg(last).arg(first)));
  engine->clear();
  const engine::MemoryUse use = engine->memory().use;
  QCOMPARE(use[engine::MemoryCategory::kKvCodes] + use[engine::MemoryCategory::kKvScales] +
               use[engine::MemoryCategory::kKvExact],
           std::uint64_t{0});
}

}  // namespace longhand

QTEST_APPLESS_MAIN(longhand::LongLifeTest)
#include "long_life_test.moc"
