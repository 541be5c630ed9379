// Sampler: each rule on a small example that can be checked by hand, and portable draws.

#include "engine/sampler.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include <QTest>

#include "engine/base/error.h"

using longhand::engine::Error;
using longhand::engine::Sampler;
using longhand::engine::SamplerConfig;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
const float kNaN = std::nanf("");

/// All rules off: a plain draw from the softmax.
SamplerConfig plain(std::uint64_t seed = 1) {
  SamplerConfig config;
  config.temperature = 1.0;
  config.topK = 0;
  config.topP = 1.0;
  config.seed = seed;
  return config;
}

SamplerConfig greedy() {
  SamplerConfig config;
  config.temperature = 0.0;
  return config;
}

std::vector<float> logitsOf(const std::vector<double>& probabilities) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p)));
  return logits;
}

/// How often each token comes in `n` draws.
std::map<std::int32_t, int> draw(const SamplerConfig& config, const std::vector<float>& logits,
                                 int n, const std::vector<std::int32_t>& recent = {}) {
  Sampler sampler(config);
  std::map<std::int32_t, int> counts;
  for (int i = 0; i < n; ++i) ++counts[sampler.sample(logits, recent)];
  return counts;
}

std::set<std::int32_t> drawn(const SamplerConfig& config, const std::vector<float>& logits,
                             const std::vector<std::int32_t>& recent = {}) {
  std::set<std::int32_t> tokens;
  for (const auto& [token, count] : draw(config, logits, 4000, recent)) tokens.insert(token);
  return tokens;
}

/// Logits like a model's: a few high ones, a long tail. The same on every machine.
std::vector<float> modelLikeLogits(std::size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<float> logits(n);
  for (float& logit : logits) {
    const double u = (static_cast<double>(random()) + 1.0) / 4294967297.0;
    logit = static_cast<float>(-2.0 * std::log(u));
  }
  return logits;
}

}  // namespace

class SamplerTest : public QObject {
  Q_OBJECT

 private slots:
  void greedyTakesTheLowestIndexOfTheMaximum();
  void drawsWithTheProbabilitiesOfTheSoftmax();
  void temperatureSharpensAndFlattens();
  void topKKeepsTheBestAndBreaksTiesByLowerId();
  void topPKeepsTheSmallestSetThatReachesIt();
  void minPKeepsWhatIsLikelyEnoughBesideTheBest();
  void repetitionPenaltyLowersRecentTokensOnce();
  void onlyTheWindowIsPenalized();
  void ordersTheRules();
  void sameSeedSameTokensOnEveryMachine();
  void topKOfTheWholeVocabularyEqualsNoTopK();
  void survivesInfinitiesAndNaN();
  void refusesLogitsWithoutAnyNumber();
  void refusesValuesOutOfRange();
  void theBestLogitsGiveTheSameTokens();
  void saysWhenAllLogitsAreNeeded();
  void isFastOnALargeVocabulary();
};

void SamplerTest::greedyTakesTheLowestIndexOfTheMaximum() {
  QCOMPARE(Sampler(greedy()).sample(std::vector{1.0F, 3.0F, 2.0F, 3.0F}, {}), 1);
  QCOMPARE(Sampler(greedy()).sample(std::vector{kNaN, -5.0F, -kInfinity}, {}), 1);
  QCOMPARE(Sampler(greedy()).sample(std::vector{-kInfinity, kInfinity, 2.0F}, {}), 1);
}

void SamplerTest::drawsWithTheProbabilitiesOfTheSoftmax() {
  const auto counts = draw(plain(), logitsOf({0.5, 0.3, 0.15, 0.05}), 100000);
  // Four standard deviations: 4 * sqrt(p (1 - p) n) < 640.
  QVERIFY(std::abs(counts.at(0) - 50000) < 640);
  QVERIFY(std::abs(counts.at(1) - 30000) < 640);
  QVERIFY(std::abs(counts.at(2) - 15000) < 640);
  QVERIFY(std::abs(counts.at(3) - 5000) < 640);
}

void SamplerTest::temperatureSharpensAndFlattens() {
  SamplerConfig config = plain();
  config.temperature = 0.5;  // squares: 0.64 : 0.04
  QVERIFY(std::abs(draw(config, logitsOf({0.8, 0.2}), 100000).at(1) - 100000 / 17) < 300);
  config.temperature = 2.0;  // roots: 2 : 1
  QVERIFY(std::abs(draw(config, logitsOf({0.8, 0.2}), 100000).at(1) - 100000 / 3) < 640);
  config.temperature = 1e-30;
  QCOMPARE(drawn(config, logitsOf({0.4, 0.6})), (std::set<std::int32_t>{1}));
}

void SamplerTest::topKKeepsTheBestAndBreaksTiesByLowerId() {
  SamplerConfig config = plain();
  config.topK = 2;
  QCOMPARE(drawn(config, {1.0F, 1.0F, 2.0F, 1.0F}), (std::set<std::int32_t>{0, 2}));
  config.topK = 1;
  QCOMPARE(drawn(config, {1.0F, 2.0F, 2.0F, 1.0F}), (std::set<std::int32_t>{1}));
  config.topK = 9;
  QCOMPARE(drawn(config, {1.0F, 2.0F}), (std::set<std::int32_t>{0, 1}));
}

void SamplerTest::topPKeepsTheSmallestSetThatReachesIt() {
  SamplerConfig config = plain();
  const std::vector<float> logits = logitsOf({0.1, 0.5, 0.3, 0.1});
  config.topP = 0.4;
  QCOMPARE(drawn(config, logits), (std::set<std::int32_t>{1}));
  config.topP = 0.7;
  QCOMPARE(drawn(config, logits), (std::set<std::int32_t>{1, 2}));
  config.topP = 0.85;
  QCOMPARE(drawn(config, logits), (std::set<std::int32_t>{0, 1, 2}));
  config.topP = 1e-9;
  QCOMPARE(drawn(config, logits), (std::set<std::int32_t>{1}));
}

void SamplerTest::minPKeepsWhatIsLikelyEnoughBesideTheBest() {
  SamplerConfig config = plain();
  const std::vector<float> logits = logitsOf({0.1, 0.5, 0.3, 0.1});
  config.minP = 0.5;
  QCOMPARE(drawn(config, logits), (std::set<std::int32_t>{1, 2}));
  config.minP = 0.15;
  QCOMPARE(drawn(config, logits), (std::set<std::int32_t>{0, 1, 2, 3}));
  config.minP = 1.0;
  QCOMPARE(drawn(config, logits), (std::set<std::int32_t>{1}));
}

void SamplerTest::repetitionPenaltyLowersRecentTokensOnce() {
  SamplerConfig config = greedy();
  config.repetitionPenalty = 2.0;
  // 3 / 2 < 2: divided once, although it stands there twice; at 4 / 2 == 2 the lower id wins.
  QCOMPARE(Sampler(config).sample(std::vector{3.0F, 2.0F}, std::vector{0, 0}), 1);
  QCOMPARE(Sampler(config).sample(std::vector{4.5F, 2.0F}, std::vector{0, 0}), 0);
  QCOMPARE(Sampler(config).sample(std::vector{4.0F, 2.0F}, std::vector{0}), 0);
  // Negative logits are multiplied: -1 becomes -2.
  QCOMPARE(Sampler(config).sample(std::vector{-1.0F, -1.5F}, std::vector{0}), 1);
  QCOMPARE(Sampler(config).sample(std::vector{-1.0F, -2.5F}, std::vector{0, -1, 99}), 0);
}

void SamplerTest::onlyTheWindowIsPenalized() {
  SamplerConfig config = greedy();
  config.repetitionPenalty = 10.0;
  config.repetitionWindow = 2;
  const std::vector<float> logits = {3.0F, 2.0F, 1.0F};
  QCOMPARE(Sampler(config).sample(logits, std::vector{0, 1, 1}), 0);
  QCOMPARE(Sampler(config).sample(logits, std::vector{1, 0, 1}), 2);
  config.repetitionWindow = 0;
  QCOMPARE(Sampler(config).sample(logits, std::vector{0}), 0);
}

void SamplerTest::ordersTheRules() {
  // top_k before top_p: of 0.4, 0.3, 0.2, 0.1 the first two remain, renormalized 0.57 and 0.43.
  SamplerConfig config = plain();
  config.topK = 2;
  config.topP = 0.55;
  QCOMPARE(drawn(config, logitsOf({0.4, 0.3, 0.2, 0.1})), (std::set<std::int32_t>{0}));
  // temperature before top_p: at 0.5 the best has 0.16 / 0.30 = 0.53 of the whole.
  config = plain();
  config.temperature = 0.5;
  config.topP = 0.5;
  QCOMPARE(drawn(config, logitsOf({0.4, 0.3, 0.2, 0.1})), (std::set<std::int32_t>{0}));
  // penalty before top_k.
  config = plain();
  config.topK = 1;
  config.repetitionPenalty = 2.0;
  QCOMPARE(drawn(config, {3.0F, 2.0F}, {0}), (std::set<std::int32_t>{1}));
}

void SamplerTest::sameSeedSameTokensOnEveryMachine() {
  // mt19937_64 is defined bit by bit, and its 10,000th output by the standard; the double is
  // (x >> 11) / 2^53. With equal logits the token is therefore floor(u * n).
  std::mt19937_64 random(42);
  SamplerConfig config = plain(42);
  Sampler sampler(config);
  const std::vector<float> logits(1000, 0.5F);
  for (int i = 0; i < 100; ++i) {
    const double u = static_cast<double>(random() >> 11U) / 9007199254740992.0;
    QCOMPARE(sampler.sample(logits, {}), static_cast<std::int32_t>(u * 1000.0));
  }
  config.temperature = 4.0;
  SamplerConfig other = config;
  other.seed = 43;
  const std::vector<float> modelLike = modelLikeLogits(500, 1);
  QVERIFY(draw(config, modelLike, 50) == draw(config, modelLike, 50));
  QVERIFY(draw(config, modelLike, 50) != draw(other, modelLike, 50));
}

void SamplerTest::topKOfTheWholeVocabularyEqualsNoTopK() {
  for (unsigned seed = 0; seed < 20; ++seed) {
    const std::vector<float> logits = modelLikeLogits(3000, seed);
    SamplerConfig config = plain(seed);
    config.topP = seed % 2 == 0 ? 1.0 : 0.9;
    Sampler without(config);
    config.topK = 2999;
    Sampler with(config);
    int nEqual = 0;
    for (int i = 0; i < 50; ++i) {
      nEqual += without.sample(logits, {}) == with.sample(logits, {}) ? 1 : 0;
    }
    QVERIFY(nEqual >= 49);  // one candidate fewer: at most a rounding apart
  }
}

void SamplerTest::survivesInfinitiesAndNaN() {
  SamplerConfig config = plain();
  QCOMPARE(drawn(config, {kInfinity, 3.0F, kInfinity, kNaN}), (std::set<std::int32_t>{0, 2}));
  QCOMPARE(drawn(config, {-kInfinity, 3.0F, kNaN, 3.0F}), (std::set<std::int32_t>{1, 3}));
  config.topK = 3;
  QCOMPARE(drawn(config, {-kInfinity, 3.0F, kNaN, 3.0F}), (std::set<std::int32_t>{1, 3}));
  QCOMPARE(drawn(config, {1e38F, -1e38F}), (std::set<std::int32_t>{0}));
}

void SamplerTest::refusesLogitsWithoutAnyNumber() {
  QVERIFY_EXCEPTION_THROWN(Sampler(plain()).sample(std::vector{kNaN, -kInfinity}, {}), Error);
  QVERIFY_EXCEPTION_THROWN(Sampler(greedy()).sample(std::vector<float>{}, {}), Error);
}

void SamplerTest::refusesValuesOutOfRange() {
  const auto isRefused = [](auto change) {
    SamplerConfig config;
    change(config);
    try {
      config.validate();
    } catch (const Error&) {
      return true;
    }
    return false;
  };
  QVERIFY(!isRefused([](SamplerConfig&) {}));
  QVERIFY(isRefused([](SamplerConfig& c) { c.temperature = -0.1; }));
  QVERIFY(isRefused([](SamplerConfig& c) { c.temperature = std::nan(""); }));
  QVERIFY(isRefused([](SamplerConfig& c) { c.topK = -1; }));
  QVERIFY(isRefused([](SamplerConfig& c) { c.topP = 0.0; }));
  QVERIFY(isRefused([](SamplerConfig& c) { c.topP = 1.1; }));
  QVERIFY(isRefused([](SamplerConfig& c) { c.minP = 1.1; }));
  QVERIFY(isRefused([](SamplerConfig& c) { c.repetitionPenalty = 0.0; }));
  QVERIFY(isRefused([](SamplerConfig& c) { c.repetitionWindow = -1; }));
}

void SamplerTest::theBestLogitsGiveTheSameTokens() {
  std::mt19937 random(5);
  const std::size_t sizes[] = {1, 3, 41, 42, 60, 500};
  for (unsigned round = 0; round < 400; ++round) {
    SamplerConfig config = plain(round);
    config.temperature = round % 5 == 0 ? 0.0 : 0.5 + 0.5 * static_cast<double>(round % 3);
    config.topK = std::array{1, 2, 40, 41, 100}[random() % 5];
    config.topP = random() % 2 == 0 ? 1.0 : 0.9;
    config.minP = random() % 3 == 0 ? 0.05 : 0.0;
    config.repetitionPenalty = std::array{1.0, 1.1, 2.0, 10.0}[random() % 4];
    config.repetitionWindow = std::array{0, 1, 8, 64}[random() % 4];
    std::vector<float> logits = modelLikeLogits(sizes[random() % 6], round);
    for (float& logit : logits) {
      // Equal ones, on both sides of 0; sometimes so large that a penalty makes them -infinity.
      logit = std::round(4.0F * (logit - 2.0F)) / 4.0F;
      if (random() % 40 == 0) logit = std::array{kNaN, -kInfinity, -1e38F, -0.0F}[random() % 4];
    }
    if (random() % 8 == 0) logits[random() % logits.size()] = kInfinity;
    if (std::none_of(logits.begin(), logits.end(), [](float x) { return x > -1e37F; })) continue;

    Sampler whole(config);
    Sampler few(config);
    std::vector<longhand::kernels::ScoredToken> best;
    for (std::size_t i = 0; i < logits.size(); ++i) {
      if (logits[i] > -kInfinity) best.push_back({logits[i], static_cast<std::int32_t>(i)});
    }
    std::ranges::stable_sort(best, std::greater<>(), &longhand::kernels::ScoredToken::logit);
    QVERIFY(few.nBestWanted() > 0);
    best.resize(std::min(best.size(), static_cast<std::size_t>(few.nBestWanted())));
    std::vector<std::int32_t> recent;  // likely tokens, over and over
    for (int i = 0; i < 60; ++i) {
      const std::int32_t token = whole.sample(logits, recent);
      QCOMPARE(few.sampleBest(best, recent), token);
      recent.push_back(token);
    }
  }
}

void SamplerTest::saysWhenAllLogitsAreNeeded() {
  SamplerConfig config = plain();
  config.topK = 0;
  QCOMPARE(Sampler(config).nBestWanted(), 0);
  config.topK = 40;
  QCOMPARE(Sampler(config).nBestWanted(), 41);
  config.repetitionPenalty = 1.1;
  config.repetitionWindow = 64;
  QCOMPARE(Sampler(config).nBestWanted(), 105);
  config.repetitionWindow = 1000;
  QCOMPARE(Sampler(config).nBestWanted(), 0);
  config.repetitionWindow = 64;
  config.repetitionPenalty = 0.9;
  QCOMPARE(Sampler(config).nBestWanted(), 0);
  QCOMPARE(Sampler(greedy()).nBestWanted(), 1);
  QVERIFY_EXCEPTION_THROWN(Sampler(greedy()).sampleBest({}, {}), Error);
}

void SamplerTest::isFastOnALargeVocabulary() {
  const std::vector<float> logits = modelLikeLogits(32000, 3);
  SamplerConfig config;
  const auto secondsOf = [&logits](const SamplerConfig& c) {
    Sampler sampler(c);
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < 50; ++i) sampler.sample(logits, {});
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  // Far above what is needed (about 0.3 ms a token optimized), for Debug with sanitizers.
  QVERIFY(secondsOf(config) < 5.0);
  config.topK = 0;
  QVERIFY(secondsOf(config) < 5.0);
}

QTEST_GUILESS_MAIN(SamplerTest)
#include "sampler_test.moc"
