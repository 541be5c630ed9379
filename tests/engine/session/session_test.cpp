// What an Engine keeps between calls: prefixes, chunks, stop reasons, cancels.
#include <atomic>
#include <thread>

#include <QTest>

#include "engine/cache/kv_cache.h"
#include "engine/cache/presets.h"
#include "engine/engine.h"
#include "engine/graph/llama.h"
#include "engine/memory_plan.h"
#include "engine/text/chat_template.h"
#include "tests/engine/engine_harness.h"

namespace longhand {

using namespace tests;  // NOLINT: a test file
using engine::Engine;
using engine::EngineOptions;
using engine::Error;
using engine::ErrorCode;
using engine::GenerateResult;
using engine::StopReason;

class SessionTest : public QObject {
  Q_OBJECT

 private slots:
  void chunksDoNotChangeTheNextToken_data();
  void chunksDoNotChangeTheNextToken();
  void everyTurnOfAChatEqualsAFreshRun();
  void newChatAfterALongOneEqualsAFreshEngine_data();
  void newChatAfterALongOneEqualsAFreshEngine();
  void samePromptAgainComputesOneToken();
  void editedPromptComputesWhatDiffers();
  void readingAheadMakesGenerateStartAtOnce();
  void generatedTokensAreInTheCache();
  void endsAtEndOfText();
  void endsAtTheTokenLimit();
  void endsBeforeAStopText();
  void endsWhenTheContextIsFull();
  void refusesAPromptThatDoesNotFit();
  void refusesBadPrompts();
  void cancelDuringPrefillLeavesTheCacheAsItWas();
  void cancelDuringPrefillKeepsWholeChunks();
  void cancelDuringDecodeKeepsWhatWasSaid();
  void throwingObserverLeavesAWorkingEngine();
  void progressRunsFromNothingToAll();
  void sameSeedGivesTheSameText();
  void streamedTextIsTheResult();
  void memoryCanBeReadFromAnotherThread();
  void cacheThatDoesNotFitKeepsTheOldOne();
  void reservedMemoryIsNotCountedTwiceForAnotherCache();
  void otherCacheForgetsAndAnswersAgain();
  void threadsCanChange();
  void memoryGrowsWithTheChatAndShrinksWithANewOne();
  void memoryReservedForTheAnswerIsToldApartFromMemoryInUse();
  void randomModelGeneratesWithoutText();
};

namespace {

std::unique_ptr<Engine> loadDemo(const engine::KvCacheConfig& cache, EngineOptions options = {}) {
  return loadEngine(resourcePath("longhand-demo"), cache, options);
}

std::vector<std::int32_t> demoPrompt(const char* name) {
  const nlohmann::json reference = readJson(dataPath("longhand-demo/longhand-demo.json"));
  for (const nlohmann::json& prompt : reference.at("prompts")) {
    if (prompt.at("name") == name) return prompt.at("ids").get<std::vector<std::int32_t>>();
  }
  throw std::runtime_error(name);
}

ErrorCode errorOf(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.code();
  }
  return ErrorCode::kInternal;
}

/// A model of two tiny layers: for tests that need many prefills.
std::unique_ptr<Engine> loadTiny(const engine::KvCacheConfig& cache, EngineOptions options = {}) {
  engine::ModelConfig config;
  config.name = "tiny";
  config.hiddenSize = 32;
  config.intermediateSize = 64;
  config.nLayers = 2;
  config.nHeads = 4;
  config.nKvHeads = 2;
  config.headDim = 8;
  config.vocabSize = 97;
  config.trainedLength = 512;
  config.rope.maxPositionEmbeddings = 512;
  options.cache = cache;
  options.threads = std::max(1, options.threads);
  options.weights = engine::WeightFormat::kF32;
  return Engine::loadRandom(config, options, 11);
}

std::vector<std::int32_t> tinyPrompt(std::size_t length) {
  std::vector<std::int32_t> prompt(length);
  std::uint32_t state = 12345;
  for (std::int32_t& id : prompt) {
    state = state * 1664525U + 1013904223U;
    id = static_cast<std::int32_t>((state >> 16U) % 97U);
  }
  return prompt;
}

std::uint64_t cacheBytes(const engine::MemoryUse& use) {
  using engine::MemoryCategory;
  return use[MemoryCategory::kKvCodes] + use[MemoryCategory::kKvScales] +
         use[MemoryCategory::kKvExact];
}

}  // namespace

void SessionTest::chunksDoNotChangeTheNextToken_data() {
  QTest::addColumn<int>("chunkTokens");
  for (const int chunk : {1, 7, 64}) QTest::addRow("chunks of %d", chunk) << chunk;
}

void SessionTest::chunksDoNotChangeTheNextToken() {
  QFETCH(int, chunkTokens);
  EngineOptions options;
  options.chunkTokens = chunkTokens;
  const auto whole = loadTiny(f16Cache());
  const auto chunked = loadTiny(f16Cache(), options);
  const std::vector<std::int32_t> all = tinyPrompt(300);
  for (std::size_t length = 1; length <= all.size(); ++length) {
    const std::span<const std::int32_t> prompt = std::span(all).first(length);
    whole->clear();
    chunked->clear();
    QCOMPARE(argmax(chunked->nextLogits(prompt)), argmax(whole->nextLogits(prompt)));
  }

  const auto demo = loadDemo(f16Cache());
  const auto demoChunked = loadDemo(f16Cache(), options);
  const std::vector<std::int32_t> document = demoPrompt("sample");
  for (std::size_t length = 1; length <= 300; length += 37) {
    const std::span<const std::int32_t> prompt = std::span(document).first(length);
    demo->clear();
    demoChunked->clear();
    QCOMPARE(argmax(demoChunked->nextLogits(prompt)), argmax(demo->nextLogits(prompt)));
  }
}

void SessionTest::everyTurnOfAChatEqualsAFreshRun() {
  const char* questions[] = {"Hello!",
                             "Who are you?",
                             "Anna has a red bicycle. What colour is the bicycle of Anna?",
                             "What can you do?",
                             "The station opens at seven. When does the station open?",
                             "Who has the bicycle?",
                             "Thank you.",
                             "Bruno lives in Oslo. Where does Bruno live?",
                             "What is the colour of the bicycle?",
                             "Goodbye!"};
  const auto chat = loadDemo(f16Cache());
  std::vector<engine::ChatTurn> turns;
  for (const char* question : questions) {
    turns.push_back({question, std::nullopt, {}});
    const std::vector<std::int32_t> prompt = engine::encodeChat(chat->tokenizer(), "", turns);
    const GenerateResult continued = chat->generate(prompt, greedy(40), {}, {});
    const auto fresh = loadDemo(f16Cache());
    const GenerateResult alone = fresh->generate(prompt, greedy(40), {}, {});
    QCOMPARE(continued.tokens, alone.tokens);
    QCOMPARE(continued.text, alone.text);
    QVERIFY(turns.size() == 1 || continued.reusedTokens > 0);
    QCOMPARE(alone.reusedTokens, 0);
    turns.back().answer = continued.text;
    turns.back().answerTokens = continued.tokens;
  }
}

void SessionTest::newChatAfterALongOneEqualsAFreshEngine_data() {
  QTest::addColumn<QString>("preset");
  for (const engine::Preset& preset : engine::builtInPresets()) {
    QTest::newRow(preset.id.c_str()) << QString::fromStdString(preset.id);
  }
}

void SessionTest::newChatAfterALongOneEqualsAFreshEngine() {
  QFETCH(QString, preset);
  const engine::KvCacheConfig cache = engine::presetById(preset.toStdString()).cache;
  const auto used = loadDemo(cache);
  used->generate(demoPrompt("sample"), greedy(30), {}, {});
  const auto fresh = loadDemo(cache);
  const std::vector<std::int32_t> prompt = demoPrompt("hello");
  QCOMPARE(used->generate(prompt, greedy(30), {}, {}).text,
           fresh->generate(prompt, greedy(30), {}, {}).text);
  used->clear();
  fresh->clear();
  QCOMPARE(used->logits(prompt, true, false), fresh->logits(prompt, true, false));
  QCOMPARE(used->memory().use.bytes, fresh->memory().use.bytes);
}

void SessionTest::samePromptAgainComputesOneToken() {
  const auto engine = loadDemo(f16Cache());
  const std::vector<std::int32_t> prompt = demoPrompt("fact");
  const GenerateResult first = engine->generate(prompt, greedy(20), {}, {});
  const GenerateResult again = engine->generate(prompt, greedy(20), {}, {});
  QCOMPARE(again.tokens, first.tokens);
  QCOMPARE(again.promptTokens, static_cast<std::int64_t>(prompt.size()));
  QCOMPARE(again.reusedTokens, again.promptTokens - 1);
}

void SessionTest::editedPromptComputesWhatDiffers() {
  const auto engine = loadDemo(f16Cache());
  std::vector<std::int32_t> prompt = demoPrompt("fact");
  engine->generate(prompt, greedy(20), {}, {});
  prompt[60] = prompt[60] == 500 ? 501 : 500;
  QCOMPARE(engine->reusableTokens(prompt), 60);
  const GenerateResult edited = engine->generate(prompt, greedy(20), {}, {});
  QCOMPARE(edited.reusedTokens, 60);
  const auto fresh = loadDemo(f16Cache());
  QCOMPARE(edited.tokens, fresh->generate(prompt, greedy(20), {}, {}).tokens);
}

void SessionTest::readingAheadMakesGenerateStartAtOnce() {
  const auto engine = loadDemo(f16Cache());
  const std::vector<std::int32_t> prompt = demoPrompt("fact");
  const engine::PrefillResult ahead = engine->prefill(prompt, {}, {});
  QVERIFY(!ahead.isCancelled);
  QCOMPARE(ahead.computedTokens, static_cast<std::int64_t>(prompt.size()));
  QCOMPARE(engine->prefill(prompt, {}, {}).computedTokens, 0);
  const GenerateResult result = engine->generate(prompt, greedy(20), {}, {});
  QCOMPARE(result.reusedTokens, static_cast<std::int64_t>(prompt.size()) - 1);
  const auto fresh = loadDemo(f16Cache());
  QCOMPARE(result.tokens, fresh->generate(prompt, greedy(20), {}, {}).tokens);
}

void SessionTest::generatedTokensAreInTheCache() {
  const auto engine = loadDemo(f16Cache());
  std::vector<std::int32_t> expected = demoPrompt("hello");
  const GenerateResult result = engine->generate(expected, greedy(64), {}, {});
  expected.insert(expected.end(), result.tokens.begin(), result.tokens.end());
  const std::span<const std::int32_t> cached = engine->cachedTokens();
  QCOMPARE(std::vector<std::int32_t>(cached.begin(), cached.end()), expected);
}

void SessionTest::endsAtEndOfText() {
  const auto engine = loadDemo(f16Cache());
  const GenerateResult result = engine->generate(demoPrompt("hello"), greedy(0), {}, {});
  QVERIFY(result.stopReason == StopReason::kEndOfText);
  QCOMPARE(result.tokens.size(), std::size_t{12});
  QVERIFY(QString::fromStdString(result.text).contains("Open a document and ask me about it."));
}

void SessionTest::endsAtTheTokenLimit() {
  const auto engine = loadDemo(f16Cache());
  const GenerateResult result = engine->generate(demoPrompt("hello"), greedy(5), {}, {});
  QVERIFY(result.stopReason == StopReason::kTokenLimit);
  QCOMPARE(result.tokens.size(), std::size_t{5});
}

void SessionTest::endsBeforeAStopText() {
  const auto engine = loadDemo(f16Cache());
  engine::GenerateOptions options = greedy(64);
  options.stopTexts = {"no such text", "ment and"};  // begins and ends inside words
  const GenerateResult result = engine->generate(demoPrompt("hello"), options, {}, {});
  QVERIFY(result.stopReason == StopReason::kStopText);
  QVERIFY(QString::fromStdString(result.text).endsWith("Open a docu"));
  // The tokens hold the text, and none of them comes behind it.
  std::vector<std::int32_t> tokens = result.tokens;
  QVERIFY(engine->tokenizer().decode(tokens).starts_with(result.text));
  tokens.pop_back();
  QVERIFY(!engine->tokenizer().decode(tokens).starts_with(result.text));
}

void SessionTest::endsWhenTheContextIsFull() {
  EngineOptions options;
  options.contextLength = 14;
  const auto engine = loadDemo(f16Cache(), options);
  const GenerateResult result = engine->generate(demoPrompt("hello"), greedy(0), {}, {});
  QVERIFY(result.stopReason == StopReason::kContextFull);
  // 9 tokens of prompt and 5 of answer are in the cache; the sixth needs no room any more.
  QCOMPARE(result.tokens.size(), std::size_t{6});
  QCOMPARE(engine->cachedTokens().size(), std::size_t{14});
}

void SessionTest::refusesAPromptThatDoesNotFit() {
  EngineOptions options;
  options.contextLength = 50;
  const auto engine = loadDemo(f16Cache(), options);
  engine->generate(demoPrompt("hello"), greedy(3), {}, {});
  const std::size_t before = engine->cachedTokens().size();
  const std::vector<std::int32_t> prompt = demoPrompt("fact");
  try {
    engine->generate(prompt, greedy(3), {}, {});
    QFAIL("was accepted");
  } catch (const Error& error) {
    QVERIFY(error.code() == ErrorCode::kContextFull);
    QVERIFY(QString::fromStdString(error.message()).contains("88"));
    QVERIFY(QString::fromStdString(error.message()).contains("50"));
    QVERIFY(!error.hint().empty());
  }
  QCOMPARE(engine->cachedTokens().size(), before);
  const std::vector<std::int32_t> fitting(prompt.begin(), prompt.begin() + 50);
  QCOMPARE(engine->generate(fitting, greedy(0), {}, {}).tokens.size(), std::size_t{1});
}

void SessionTest::refusesBadPrompts() {
  const auto engine = loadTiny(f16Cache());
  const auto generate = [&](std::vector<std::int32_t> prompt, std::int64_t maxTokens) {
    return errorOf([&] { engine->generate(prompt, greedy(maxTokens), {}, {}); });
  };
  QVERIFY(generate({}, 1) == ErrorCode::kInvalidArgument);
  QVERIFY(generate({1, 97}, 1) == ErrorCode::kInvalidArgument);
  QVERIFY(generate({-1}, 1) == ErrorCode::kInvalidArgument);
  QVERIFY(generate({1}, -1) == ErrorCode::kInvalidArgument);
}

void SessionTest::cancelDuringPrefillLeavesTheCacheAsItWas() {
  engine::KvCacheConfig cache = engine::presetById("balanced").cache;
  cache.residualLength = 32;
  const auto engine = loadDemo(cache);
  const std::vector<std::int32_t> first = demoPrompt("fact");
  engine->generate(first, greedy(20), {}, {});
  const std::vector<std::int32_t> kept(engine->cachedTokens().begin(),
                                       engine->cachedTokens().end());
  std::vector<std::int32_t> longer = kept;
  const std::vector<std::int32_t> document = demoPrompt("sample");
  longer.insert(longer.end(), document.begin(), document.end());

  for (const double part : {0.0, 0.3, 0.9}) {
    std::stop_source source;
    engine::GenerateObserver observer;
    observer.prefill = [&](const engine::PrefillProgress& progress) {
      if (static_cast<double>(progress.tokensDone) >=
          part * static_cast<double>(progress.tokensTotal)) {
        source.request_stop();
      }
    };
    const GenerateResult result =
        engine->generate(longer, greedy(20), observer, source.get_token());
    QVERIFY(result.stopReason == StopReason::kCancelled);
    QVERIFY(result.tokens.empty());
    QCOMPARE(
        std::vector<std::int32_t>(engine->cachedTokens().begin(), engine->cachedTokens().end()),
        kept);
  }
  const auto untouched = loadDemo(cache);
  untouched->generate(first, greedy(20), {}, {});
  QCOMPARE(engine->nextLogits(longer), untouched->nextLogits(longer));
}

void SessionTest::cancelDuringPrefillKeepsWholeChunks() {
  EngineOptions options;
  options.chunkTokens = 100;
  const auto engine = loadDemo(f16Cache(), options);
  const std::vector<std::int32_t> document = demoPrompt("sample");
  std::stop_source source;
  const engine::PrefillResult stopped = engine->prefill(
      document,
      [&](const engine::PrefillProgress& progress) {
        if (progress.tokensDone > 250) source.request_stop();
      },
      source.get_token());
  QVERIFY(stopped.isCancelled);
  QVERIFY(stopped.computedTokens >= 200 && stopped.computedTokens % 100 == 0);
  QCOMPARE(engine->reusableTokens(document), stopped.computedTokens);
  const engine::PrefillResult rest = engine->prefill(document, {}, {});
  QCOMPARE(rest.reusedTokens, stopped.computedTokens);
  QCOMPARE(rest.reusedTokens + rest.computedTokens, static_cast<std::int64_t>(document.size()));
}

void SessionTest::cancelDuringDecodeKeepsWhatWasSaid() {
  const auto engine = loadDemo(f16Cache());
  std::stop_source source;
  int nTokens = 0;
  engine::GenerateObserver observer;
  observer.token = [&](std::string_view, std::int32_t) {
    if (++nTokens == 4) source.request_stop();
  };
  const GenerateResult result =
      engine->generate(demoPrompt("hello"), greedy(0), observer, source.get_token());
  QVERIFY(result.stopReason == StopReason::kCancelled);
  QCOMPARE(result.tokens.size(), std::size_t{4});
  QVERIFY(!result.text.empty());
}

void SessionTest::throwingObserverLeavesAWorkingEngine() {
  const auto engine = loadDemo(f16Cache());
  const std::vector<std::int32_t> prompt = demoPrompt("fact");
  engine::GenerateObserver observer;
  observer.prefill = [](const engine::PrefillProgress& progress) {
    if (progress.tokensDone == progress.tokensTotal) throw Error(ErrorCode::kDatabase, "full");
  };
  QVERIFY(errorOf([&] { engine->generate(prompt, greedy(20), observer, {}); }) ==
          ErrorCode::kDatabase);
  const auto fresh = loadDemo(f16Cache());
  QCOMPARE(engine->generate(prompt, greedy(20), {}, {}).tokens,
           fresh->generate(prompt, greedy(20), {}, {}).tokens);
}

void SessionTest::progressRunsFromNothingToAll() {
  EngineOptions options;
  options.chunkTokens = 500;
  const auto engine = loadDemo(f16Cache(), options);
  const std::vector<std::int32_t> document = demoPrompt("sample");
  engine->prefill(std::span(document).first(100), {}, {});
  std::vector<std::int64_t> done;
  engine->prefill(document,
                  [&](const engine::PrefillProgress& progress) {
                    QCOMPARE(progress.tokensReused, 100);
                    QCOMPARE(progress.tokensTotal,
                             static_cast<std::int64_t>(document.size()) - 100);
                    done.push_back(progress.tokensDone);
                  },
                  {});
  QCOMPARE(done.front(), 0);
  QCOMPARE(done.back(), static_cast<std::int64_t>(document.size()) - 100);
  QVERIFY(std::is_sorted(done.begin(), done.end()));
}

void SessionTest::sameSeedGivesTheSameText() {
  const auto engine = loadDemo(f16Cache());
  engine::GenerateOptions options;
  options.sampler.temperature = 3.0;
  options.sampler.topK = 0;
  options.sampler.seed = 1;
  options.maxTokens = 30;
  const std::vector<std::int32_t> prompt = demoPrompt("hello");
  const GenerateResult first = engine->generate(prompt, options, {}, {});
  engine->clear();
  QCOMPARE(engine->generate(prompt, options, {}, {}).tokens, first.tokens);
  options.sampler.seed = 2;
  QVERIFY(engine->generate(prompt, options, {}, {}).tokens != first.tokens);
}

void SessionTest::streamedTextIsTheResult() {
  const auto engine = loadDemo(f16Cache());
  std::string streamed;
  std::vector<std::int32_t> tokens;
  engine::GenerateObserver observer;
  observer.token = [&](std::string_view text, std::int32_t token) {
    streamed += text;
    tokens.push_back(token);
  };
  const GenerateResult result = engine->generate(demoPrompt("who_system"), greedy(0), observer, {});
  QCOMPARE(streamed, result.text);
  QCOMPARE(tokens, result.tokens);
  QVERIFY(result.firstTokenSeconds >= result.prefillSeconds);
  QVERIFY(result.decodeTokensPerSecond > 0.0 && result.prefillTokensPerSecond > 0.0);
}

void SessionTest::memoryCanBeReadFromAnotherThread() {
  const auto engine = loadDemo(engine::presetById("balanced").cache);
  std::atomic<bool> isDone{false};
  std::uint64_t largest = 0;
  std::int64_t mostTokens = 0;
  std::thread reader([&] {
    while (!isDone) {
      const engine::MemoryReport report = engine->memory();
      largest = std::max(largest, report.use.total());
      mostTokens = std::max(mostTokens, report.cachedTokens);
      std::this_thread::yield();
    }
  });
  const GenerateResult result = engine->generate(demoPrompt("sample"), greedy(20), {}, {});
  engine->configureCache(engine::presetById("quality").cache, 0);
  isDone = true;
  reader.join();
  QVERIFY(largest > engine->weightBytes());
  QVERIFY(mostTokens <= result.promptTokens + static_cast<std::int64_t>(result.tokens.size()));
}

void SessionTest::cacheThatDoesNotFitKeepsTheOldOne() {
  const auto engine = loadDemo(f16Cache());
  engine->generate(demoPrompt("hello"), greedy(3), {}, {});
  const std::size_t before = engine->cachedTokens().size();
  QVERIFY(errorOf([&] {
            engine->configureCache(engine::presetById("exact").cache, std::int64_t{1} << 30U);
          }) == ErrorCode::kOutOfMemory);
  QVERIFY(errorOf([&] {
            engine->configureCache(engine::presetById("exact").cache, std::int64_t{1} << 60U);
          }) == ErrorCode::kInvalidArgument);
  engine::KvCacheConfig bad;
  bad.keyNbits = 5;
  QVERIFY(errorOf([&] { engine->configureCache(bad, 0); }) == ErrorCode::kInvalidArgument);
  QVERIFY(errorOf([&] { engine->configureCache({}, -1); }) == ErrorCode::kInvalidArgument);
  QCOMPARE(engine->cachedTokens().size(), before);
  QCOMPARE(engine->cacheConfig(), f16Cache());
  QCOMPARE(engine->memory().cachedTokens, static_cast<std::int64_t>(before));
}

void SessionTest::reservedMemoryIsNotCountedTwiceForAnotherCache() {
  // Reserved for a full context, nearly nothing of it written: it still counts as free memory.
  const auto engine = loadTiny(engine::presetById("memory-limit").cache);
  engine::PlanRequest plan;
  plan.model = engine->modelConfig();
  plan.cache = engine::presetById("throughput").cache;
  plan.contextLength = 1'000'000;
  const auto bytesPerToken = static_cast<double>(cacheBytes(engine::planMemory(plan))) / 1e6;
  const auto freeBytes = static_cast<double>(engine->memory().device.freeBytes);
  const auto context = static_cast<std::int64_t>(1.3 * freeBytes / bytesPerToken);
  engine->configureCache(engine::presetById("memory-limit").cache, context);
  const std::vector<std::int32_t> prompt = tinyPrompt(100);
  engine::GenerateOptions options = greedy(0);
  std::stop_source source;
  engine::GenerateObserver observer;
  observer.token = [&](std::string_view, std::int32_t) { source.request_stop(); };
  engine->generate(prompt, options, observer, source.get_token());
  const std::size_t before = engine->cachedTokens().size();
  QVERIFY(static_cast<double>(cacheBytes(engine->memory().use)) > 0.4 * freeBytes);

  QVERIFY(errorOf([&] {
            engine->configureCache(engine::presetById("throughput").cache, context);
          }) == ErrorCode::kOutOfMemory);
  QVERIFY(errorOf([&] {
            engine->convertCache(engine::presetById("throughput").cache, context, {}, {});
          }) == ErrorCode::kOutOfMemory);
  QCOMPARE(engine->cachedTokens().size(), before);
}

void SessionTest::otherCacheForgetsAndAnswersAgain() {
  const auto engine = loadDemo(f16Cache());
  const std::vector<std::int32_t> prompt = demoPrompt("fact");
  const GenerateResult exact = engine->generate(prompt, greedy(20), {}, {});
  engine->configureCache(engine::presetById("throughput").cache, 1000);
  QCOMPARE(engine->contextLength(), 1000);
  QCOMPARE(engine->memory().cachedTokens, 0);
  const GenerateResult quantized = engine->generate(prompt, greedy(20), {}, {});
  QCOMPARE(quantized.reusedTokens, 0);
  QCOMPARE(quantized.text, exact.text);
}

void SessionTest::threadsCanChange() {
  const auto engine = loadDemo(f16Cache());
  const std::vector<std::int32_t> prompt = demoPrompt("fact");
  const GenerateResult one = engine->generate(prompt, greedy(20), {}, {});
  engine->setThreads(3);
  QVERIFY(engine->backendDescription().find("3 threads") != std::string::npos);
  engine->clear();
  QCOMPARE(engine->generate(prompt, greedy(20), {}, {}).tokens, one.tokens);
  QVERIFY(errorOf([&] { engine->setThreads(-1); }) == ErrorCode::kInvalidArgument);
}

void SessionTest::memoryGrowsWithTheChatAndShrinksWithANewOne() {
  const auto engine = loadDemo(engine::presetById("quality").cache);
  const auto cacheBytes = [&] {
    const engine::MemoryUse use = engine->memory().use;
    return use[engine::MemoryCategory::kKvCodes] + use[engine::MemoryCategory::kKvScales];
  };
  QCOMPARE(cacheBytes(), std::uint64_t{0});
  engine->generate(demoPrompt("hello"), greedy(10), {}, {});
  const std::uint64_t small = cacheBytes();
  engine->generate(demoPrompt("sample"), greedy(10), {}, {});
  const std::uint64_t large = cacheBytes();
  QVERIFY(large > small);
  engine->generate(demoPrompt("hello"), greedy(10), {}, {});
  QVERIFY(cacheBytes() < large);
  engine->clear();
  QCOMPARE(cacheBytes(), std::uint64_t{0});
}

void SessionTest::memoryReservedForTheAnswerIsToldApartFromMemoryInUse() {
  using Category = engine::MemoryCategory;
  const engine::KvCacheConfig config = engine::presetById("quality").cache;
  EngineOptions options;
  options.contextLength = 20000;
  const auto engine = loadDemo(config, options);
  const auto codesOf = [&](std::int64_t tokens) {
    const engine::ModelConfig& model = engine->modelConfig();
    return engine::kvCacheUse(config, engine::attentionShape(model), model.nLayers,
                              tokens)[Category::kKvCodes];
  };
  // No limit: the whole context is reserved.
  engine::GenerateOptions unlimited = greedy(0);
  unlimited.stopTexts = {"."};
  std::vector<engine::MemoryReport> reports;
  engine::GenerateObserver observer;
  observer.prefill = [&](const engine::PrefillProgress& /*progress*/) {
    reports.push_back(engine->memory());
  };
  engine->generate(demoPrompt("sample"), unlimited, observer, {});
  reports.push_back(engine->memory());

  const engine::MemoryReport& first = reports.front();  // nothing is computed yet
  QCOMPARE(first.use[Category::kKvCodes], codesOf(20000));
  QCOMPARE(first.unused[Category::kKvCodes], first.use[Category::kKvCodes]);
  QCOMPARE(first.unused[Category::kKvExact], first.use[Category::kKvExact]);
  const engine::MemoryReport& last = reports.back();
  QCOMPARE(last.use[Category::kKvCodes], codesOf(20000));
  QVERIFY(codesOf(last.cachedTokens) > 0);
  QCOMPARE(last.use[Category::kKvCodes] - last.unused[Category::kKvCodes],
           codesOf(last.cachedTokens));
  QVERIFY(last.unused[Category::kKvExact] < last.use[Category::kKvExact]);
  QCOMPARE(last.unused[Category::kWeights], std::uint64_t{0});
  engine->clear();
  QCOMPARE(engine->memory().unused.total(), std::uint64_t{0});
}

void SessionTest::randomModelGeneratesWithoutText() {
  const auto engine = loadTiny(f16Cache());
  const GenerateResult result = engine->generate(tinyPrompt(20), greedy(10), {}, {});
  QCOMPARE(result.tokens.size(), std::size_t{10});
  QVERIFY(result.text.empty());
  QVERIFY(errorOf([&] { engine->tokenizer(); }) == ErrorCode::kInvalidArgument);
}

}  // namespace longhand

QTEST_APPLESS_MAIN(longhand::SessionTest)
#include "session_test.moc"
