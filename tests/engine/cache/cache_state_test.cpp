// What the KV cache promises across its states: packing, truncation, another chat.
#include <algorithm>
#include <cmath>

#include <QTest>

#include "engine/cache/presets.h"
#include "tests/engine/cache/cache_pair.h"
#include "tests/engine/engine_harness.h"

Q_DECLARE_METATYPE(longhand::engine::KvCacheConfig)

namespace longhand {

using namespace tests;  // NOLINT: a test file

class CacheStateTest : public QObject {
  Q_OBJECT

 private slots:
  void codesNeverChangeAfterPacking_data();
  void codesNeverChangeAfterPacking();
  void truncatedCacheGoesOnAsAFreshOne_data();
  void truncatedCacheGoesOnAsAFreshOne();
  void anotherChatLeavesNoTrace_data();
  void anotherChatLeavesNoTrace();
};

namespace {

engine::KvCacheConfig makeConfig(int keyNbits, int valueNbits, int groupSize,
                                 std::int64_t residualLength, std::int64_t sinkLength) {
  engine::KvCacheConfig config;
  config.keyNbits = keyNbits;
  config.valueNbits = valueNbits;
  config.groupSize = groupSize;
  config.residualLength = residualLength;
  config.sinkLength = sinkLength;
  return config;
}

void addConfigs() {
  QTest::addColumn<engine::KvCacheConfig>("config");
  const int settings[][5] = {{4, 4, 32, 20, 4},
                             {2, 2, 64, 0, 0},
                             {8, 8, 32, 64, 37},
                             {4, 2, 128, 1, 4},
                             {16, 2, 32, 31, 1}};
  for (const auto& [key, value, group, residual, sink] : settings) {
    QTest::addRow("%d/%d bits, group %d, residual %d, sink %d", key, value, group, residual, sink)
        << makeConfig(key, value, group, residual, sink);
  }
}

/// How far CachePair's made-up numbers may move: they spread over at most 3.4 in a group, and are
/// up to 8 in size. Half a step of a code, and rounding to F16 of the scale and of the numbers.
double largestError(int nbits) {
  return nbits == 16 ? 0.0 : 3.4 / ((1 << nbits) - 1) * 0.5 + 8.0 * 0x1p-10;
}

}  // namespace

void CacheStateTest::codesNeverChangeAfterPacking_data() { addConfigs(); }

void CacheStateTest::codesNeverChangeAfterPacking() {
  QFETCH(engine::KvCacheConfig, config);
  CachePair pair({4, 2, 20}, config);
  std::vector<std::uint64_t> expected;
  for (int step = 0; step < 1000; ++step) {
    if (step % 89 == 88 && pair.cache().exactTokens() > 44) pair.truncate(pair.twin().length() - 6);
    QVERIFY2(pair.feed(1), pair.failure().c_str());
    const std::vector<std::uint64_t> hashes = pair.pageHashes();
    QVERIFY(hashes.size() >= expected.size());
    QVERIFY(std::equal(expected.begin(), expected.end(), hashes.begin()));
    expected = hashes;
  }
  QVERIFY(expected.size() >= 6);
  QVERIFY2(pair.readsAsTheTwin(), pair.failure().c_str());
}

void CacheStateTest::truncatedCacheGoesOnAsAFreshOne_data() { addConfigs(); }

/// Another text goes on behind the cut, so that numbers left from before would show.
void CacheStateTest::truncatedCacheGoesOnAsAFreshOne() {
  QFETCH(engine::KvCacheConfig, config);
  constexpr std::int64_t kWidth = 20;
  const kernels::AttentionShape shape{4, 2, kWidth / 2};
  for (std::int64_t kept = 0; kept <= 300; ++kept) {
    CachePair cut(shape, config);
    QVERIFY(cut.feed(300, 0));
    cut.truncate(kept);
    CachePair fresh(shape, config);
    if (kept > 0) QVERIFY(fresh.feed(kept, 0));
    for (int step = 0; step < 40; ++step) {
      QVERIFY2(cut.feed(1, 1, 1), cut.failure().c_str());
      QVERIFY(fresh.feed(1, 0, 1));
    }
    QVERIFY2(cut.readsAsTheTwin(), cut.failure().c_str());
    const std::vector<float> cutRows = cut.read();
    const std::vector<float> freshRows = fresh.read();
    QCOMPARE(cutRows.size(), freshRows.size());
    for (std::int64_t token = 0; token < kept + 40; ++token) {
      const float* row = cutRows.data() + token * 2 * kWidth;
      if (!cut.twin().isPacked(token) && !fresh.twin().isPacked(token)) {
        const float* freshRow = freshRows.data() + token * 2 * kWidth;
        QVERIFY(std::equal(row, row + 2 * kWidth, freshRow));
      }
      const std::vector<float> keys = cut.exactKeys(token, token < kept ? 0 : 1);
      const std::vector<float> values = cut.exactValues(token, token < kept ? 0 : 1);
      double keyError = 0.0;
      double valueError = 0.0;
      for (std::size_t i = 0; i < keys.size(); ++i) {
        keyError = std::max(keyError, std::abs(static_cast<double>(row[i] - keys[i])));
        valueError =
            std::max(valueError,
                     std::abs(static_cast<double>(row[kWidth + static_cast<int>(i)] - values[i])));
      }
      constexpr double kHalf = 8.0 * 0x1p-11;  // exact tokens are F16
      LONGHAND_VERIFY_AT_MOST(keyError, kHalf + largestError(config.keyNbits));
      LONGHAND_VERIFY_AT_MOST(valueError, kHalf + largestError(config.valueNbits));
    }
  }
}

void CacheStateTest::anotherChatLeavesNoTrace_data() {
  QTest::addColumn<engine::KvCacheConfig>("config");
  for (const engine::Preset& preset : engine::builtInPresets()) {
    QTest::newRow(preset.id.c_str()) << preset.cache;
  }
  QTest::newRow("no sink, no residual") << makeConfig(2, 2, 32, 0, 0);
  QTest::newRow("short residual") << makeConfig(4, 4, 128, 16, 4);
}

/// Chat B comes after chat A, with which it shares a prefix. What A said behind the prefix must not
/// change one logit of B: neither through stale tokens nor through scales of pages that A's tokens
/// shared with the prefix.
void CacheStateTest::anotherChatLeavesNoTrace() {
  QFETCH(engine::KvCacheConfig, config);
  auto text = readJson(dataPath("longhand-demo/longhand-demo.json"))
                  .at("document")
                  .at("ids")
                  .get<std::vector<std::int32_t>>();
  text.resize(620);
  const auto logitsOfB = [&](std::size_t prefix, std::int32_t canary) {
    const auto engine = loadEngine(resourcePath("longhand-demo"), config);
    std::vector<std::int32_t> chatA = text;
    std::fill(chatA.begin() + static_cast<std::ptrdiff_t>(prefix) + 1, chatA.end(), canary);
    chatA[prefix] = 300;  // B goes on otherwise, whatever the canary is
    engine->prefill(chatA, {}, {});
    std::vector<std::int32_t> chatB(text.begin(),
                                    text.begin() + static_cast<std::ptrdiff_t>(prefix));
    chatB.insert(chatB.end(), 40, 301);
    std::vector<float> all;
    for (int step = 0; step < 12; ++step) {
      const std::vector<float> logits = engine->nextLogits(chatB);
      all.insert(all.end(), logits.begin(), logits.end());
      chatB.push_back(400 + step);
    }
    return all;
  };
  for (const std::size_t prefix : {1U, 4U, 5U, 70U, 201U, 300U, 500U}) {
    QVERIFY2(logitsOfB(prefix, 500) == logitsOfB(prefix, 1234), std::to_string(prefix).c_str());
  }
}

}  // namespace longhand

QTEST_APPLESS_MAIN(longhand::CacheStateTest)
#include "cache_state_test.moc"
