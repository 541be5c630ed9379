#include "kernels/reference/reference_kv.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include <QtTest>

#include "kernels/checks/kv_scene.h"
#include "kernels/half.h"
#include "kernels/page_layout.h"
#include "tests/support/golden_file.h"
#include "tests/support/paths.h"

using namespace longhand::kernels;
using longhand::kernels::checks::KvScene;
using longhand::tests::dataPath;
using longhand::tests::GoldenFile;
using longhand::tests::GoldenTensor;

namespace {

/// A golden tensor [kvHeads, tokens, channels] as rows of tokens, [tokens, kvHeads * channels].
std::vector<float> asRows(const GoldenTensor& tensor) {
  const std::vector<float> x = tensor.floats();
  const auto heads = static_cast<std::size_t>(tensor.shape[0]);
  const auto tokens = static_cast<std::size_t>(tensor.shape[1]);
  const auto headDim = static_cast<std::size_t>(tensor.shape[2]);
  std::vector<float> rows(x.size());
  for (std::size_t head = 0; head < heads; ++head) {
    for (std::size_t token = 0; token < tokens; ++token) {
      for (std::size_t channel = 0; channel < headDim; ++channel) {
        rows[(token * heads + head) * headDim + channel] =
            x[(head * tokens + token) * headDim + channel];
      }
    }
  }
  return rows;
}

/// The spans' storage belongs to a scene.
struct Tokens {
  KvScene scene;
  ExactSpan span;
  std::int64_t count;

  Tokens(const GoldenFile& inputs, const std::string& set, DataType type)
      : scene({2 * inputs.at(set + ".k").shape[0], inputs.at(set + ".k").shape[0],
               inputs.at(set + ".k").shape[2]},
              1),
        count(inputs.at(set + ".k").shape[1]) {
    span = scene.poisonedSpan(type, count);
    std::vector<float> keys = asRows(inputs.at(set + ".k"));
    std::vector<float> values = asRows(inputs.at(set + ".v"));
    const std::int64_t cols = scene.shape().nKvHeads * scene.shape().headDim;
    storeExactReference(scene.shape(), {keys.data(), count, cols, cols},
                        {values.data(), count, cols, cols}, span, 0);
    span.nTokens = count;
  }
};

float floatAt(const std::byte* memory, std::int64_t index) {
  float value;
  std::memcpy(&value, memory + index * 4, sizeof value);
  return value;
}

}  // namespace

class ReferenceKvTest : public QObject {
  Q_OBJECT

 private slots:
  void pagesHoldTheReferenceValues_data();
  void pagesHoldTheReferenceValues();
  void wordsHoldCodesWhereTheLayoutSays();
  void exactPagesHoldTheirTokens();
  void valuesBeyondF16AreClampedWhereTheyBecomeF16();
  void attentionEqualsTheReferenceValues_data();
  void attentionEqualsTheReferenceValues();
  void attentionToPagesIsAttentionToTheirUnpackedTokens();
  void laterTokensOfTheChunkAreNotSeen();
  void copiedTokensStandWhereTheyShould();
};

void ReferenceKvTest::pagesHoldTheReferenceValues_data() {
  QTest::addColumn<QString>("set");
  QTest::addColumn<int>("nbits");
  QTest::addColumn<int>("groupSize");
  QTest::addColumn<bool>("isF32");
  for (const char* set : {"A", "B"}) {
    for (const int nbits : {8, 4, 2}) {
      for (const int groupSize : {32, 64, 128}) {
        for (const bool isF32 : {false, true}) {
          QTest::addRow("%s-b%d-g%d from %s", set, nbits, groupSize, isF32 ? "F32" : "F16")
              << set << nbits << groupSize << isF32;
        }
      }
    }
  }
}

void ReferenceKvTest::pagesHoldTheReferenceValues() {
  QFETCH(QString, set);
  QFETCH(int, nbits);
  QFETCH(int, groupSize);
  QFETCH(bool, isF32);
  const std::string name =
      set.toStdString() + "-b" + std::to_string(nbits) + "-g" + std::to_string(groupSize);
  const GoldenFile inputs(dataPath("kvquant/inputs.safetensors"));
  const GoldenFile file(dataPath("kvquant/" + name + ".safetensors"));
  Tokens tokens(inputs, set.toStdString(), isF32 ? DataType::kF32 : DataType::kF16);
  const AttentionShape& shape = tokens.scene.shape();
  PageFormat format;
  format.keyNbits = format.valueNbits = static_cast<std::uint8_t>(nbits);
  format.groupSize = static_cast<std::uint8_t>(groupSize);

  const std::vector<float> keyCodes = file.at("k16.codes").floats();
  const std::vector<float> keyScales = file.at("k16.scale").floats();
  const std::vector<float> keyZeros = file.at("k16.zero").floats();
  const std::vector<float> valueCodes = file.at("v16.codes").floats();
  const std::vector<float> valueScales = file.at("v16.scale").floats();
  const std::vector<float> valueZeros = file.at("v16.zero").floats();
  const std::int64_t nPages = tokens.count / groupSize;
  const std::int64_t valueGroup = std::min<std::int64_t>(groupSize, shape.headDim);
  for (std::int64_t p = 0; p < nPages; ++p) {
    PageRef page = tokens.scene.poisonedPage(format);
    page.nTokens = static_cast<std::uint16_t>(groupSize);
    const ExactSpan source = tokens.span.slice(p * groupSize, groupSize, shape.headDim);
    packPageReference(shape, {&source, 1}, format, QuantSolver::kMinMax, page.data);
    const ExactSpan unpacked = tokens.scene.poisonedSpan(DataType::kF32, groupSize);
    unpackPageReference(shape, page, unpacked);
    for (std::int64_t head = 0; head < shape.nKvHeads; ++head) {
      for (std::int64_t t = 0; t < groupSize; ++t) {
        for (std::int64_t c = 0; c < shape.headDim; ++c) {
          const std::int64_t at = (head * groupSize + t) * shape.headDim + c;
          const std::int64_t token = p * groupSize + t;
          const auto keyIndex =
              static_cast<std::size_t>((head * nPages * groupSize + token) * shape.headDim + c);
          const auto keyGroup = static_cast<std::size_t>((head * shape.headDim + c) * nPages + p);
          QCOMPARE(floatAt(unpacked.keys, at),
                   keyCodes[keyIndex] * keyScales[keyGroup] + keyZeros[keyGroup]);
          const auto valueIndex =
              static_cast<std::size_t>((head * tokens.count + token) * shape.headDim + c);
          const std::size_t group = valueIndex / static_cast<std::size_t>(valueGroup);
          QCOMPARE(floatAt(unpacked.values, at),
                   valueCodes[valueIndex] * valueScales[group] + valueZeros[group]);
        }
      }
    }
  }
}

void ReferenceKvTest::wordsHoldCodesWhereTheLayoutSays() {
  // Two bits, one head of 16 channels, 32 tokens: every key is 3 apart from token 0 (all 0) and
  // channel 6 of token 1; so scale is 1, min 0, and one code differs in one word.
  KvScene scene({1, 1, 16}, 1);
  std::vector<float> keys(32 * 16, 3.0F);
  std::fill_n(keys.begin(), 16, 0.0F);
  keys[16 + 6] = 1.0F;
  std::vector<float> values = keys;
  ExactSpan span = scene.poisonedSpan(DataType::kF16, 32);
  storeExactReference(scene.shape(), {keys.data(), 32, 16, 16}, {values.data(), 32, 16, 16}, span,
                      0);
  span.nTokens = 32;
  PageFormat format;
  format.keyNbits = format.valueNbits = 2;
  format.groupSize = 32;
  const PageRef page = scene.poisonedPage(format);
  packPageReference(scene.shape(), {&span, 1}, format, QuantSolver::kMinMax, page.data);
  const PageLayout layout = pageLayout(format, 1, 16);
  const auto byteAt = [&](std::size_t offset) { return std::to_integer<int>(page.data[offset]); };
  // Key words: [word of 16 channels][token]. Code 6 = 4 * 1 + 2: byte 2, bits 2 and 3.
  for (std::size_t byte = 0; byte < 4; ++byte) {
    QCOMPARE(byteAt(layout.keyCodes + byte), 0);
    QCOMPARE(byteAt(layout.keyCodes + 4 + byte), byte == 2 ? 0xf7 : 0xff);
    QCOMPARE(byteAt(layout.keyCodes + 8 + byte), 0xff);
  }
  // Values of token 1: min 1, scale 2/3; code 0 in channel 6, 3 elsewhere. Words: [word of 16
  // tokens][channel], token 1 in byte 1, bits 0 and 1; tokens 0 and 2.. are constant groups, code
  // 0.
  for (std::size_t channel = 0; channel < 16; ++channel) {
    for (std::size_t byte = 0; byte < 4; ++byte) {
      QCOMPARE(byteAt(layout.valueCodes + channel * 4 + byte),
               byte == 1 && channel != 6 ? 0x03 : 0x00);
    }
  }
}

void ReferenceKvTest::exactPagesHoldTheirTokens() {
  for (const DataType type : {DataType::kF16, DataType::kF32}) {
    KvScene scene({2, 2, 20}, 8);
    const ExactSpan source[] = {scene.randomSpan(type, 10, 12), scene.randomSpan(type, 22, 22)};
    PageFormat format;
    format.keyNbits = format.valueNbits = 16;
    format.groupSize = 32;
    format.exactType = type;
    PageRef page = scene.poisonedPage(format);
    page.nTokens = 32;
    packPageReference(scene.shape(), source, format, QuantSolver::kMinMax, page.data);
    const ExactSpan unpacked = scene.poisonedSpan(type, 32);
    unpackPageReference(scene.shape(), page, unpacked);
    for (std::int64_t head = 0; head < 2; ++head) {
      const auto bytes = [&](std::int64_t tokens) { return bytesOf(type, tokens * 20); };
      QVERIFY(std::memcmp(unpacked.keys + bytes(head * 32), source[0].keys + bytes(head * 12),
                          bytes(10)) == 0);
      QVERIFY(std::memcmp(unpacked.values + bytes(head * 32 + 10),
                          source[1].values + bytes(head * 22), bytes(22)) == 0);
    }
  }
}

void ReferenceKvTest::valuesBeyondF16AreClampedWhereTheyBecomeF16() {
  // The reference file's group `full_range`: at 2 bits the rounded scale reaches 65536.
  KvScene scene({1, 1, 8}, 1);
  std::vector<float> keys(32 * 8, 65504.0F);
  std::fill_n(keys.begin(), 8, -65504.0F);
  ExactSpan span = scene.poisonedSpan(DataType::kF16, 32);
  storeExactReference(scene.shape(), {keys.data(), 32, 8, 8}, {keys.data(), 32, 8, 8}, span, 0);
  span.nTokens = 32;
  PageFormat format;
  format.keyNbits = format.valueNbits = 2;
  format.groupSize = 32;
  PageRef page = scene.poisonedPage(format);
  page.nTokens = 32;
  packPageReference(scene.shape(), {&span, 1}, format, QuantSolver::kMinMax, page.data);
  const ExactSpan wide = scene.poisonedSpan(DataType::kF32, 32);
  unpackPageReference(scene.shape(), page, wide);
  QCOMPARE(floatAt(wide.keys, 8), 65536.0F);
  const ExactSpan narrow = scene.poisonedSpan(DataType::kF16, 32);
  unpackPageReference(scene.shape(), page, narrow);
  std::uint16_t half;
  std::memcpy(&half, narrow.keys + 16, 2);
  QCOMPARE(halfToFloat(half), 65504.0F);
}

void ReferenceKvTest::attentionEqualsTheReferenceValues_data() {
  QTest::addColumn<bool>("isHalf");
  QTest::newRow("exact") << false;
  QTest::newRow("f16") << true;
}

void ReferenceKvTest::attentionEqualsTheReferenceValues() {
  QFETCH(bool, isHalf);
  const GoldenFile inputs(dataPath("kvquant/inputs.safetensors"));
  const GoldenFile attention(dataPath("kvquant/attention.safetensors"));
  Tokens tokens(inputs, "A", isHalf ? DataType::kF16 : DataType::kF32);
  const AttentionShape& shape = tokens.scene.shape();
  std::vector<float> queries = attention.at("q").floats();  // [42, 4, 64]
  const std::vector<float> expected = attention.at(QTest::currentDataTag()).floats();
  const std::int64_t cols = shape.nHeads * shape.headDim;
  std::vector<float> output(queries.size(), NAN);

  // Tokens 0..149 as history in three spans, the 42 that follow as one chunk: each query sees the
  // chunk up to itself, which is what decoding one token at a time sees.
  const ExactSpan history[] = {tokens.span.slice(0, 4, shape.headDim),
                               tokens.span.slice(4, 100, shape.headDim),
                               tokens.span.slice(104, 46, shape.headDim)};
  KvView view;
  view.exact = history;
  attendReference(shape, 0.125F, {queries.data(), 42, cols, cols}, view,
                  tokens.span.slice(150, 42, shape.headDim), 0, {output.data(), 42, cols, cols});
  for (std::size_t i = 0; i < output.size(); ++i) {
    QVERIFY(std::fabs(output[i] - expected[i]) <= 1e-5F);
  }
}

void ReferenceKvTest::attentionToPagesIsAttentionToTheirUnpackedTokens() {
  KvScene scene({4, 2, 36}, 17);
  PageFormat format;
  format.valueNbits = 2;
  format.groupSize = 32;
  scene.addPage(format, 32);
  format.keyNbits = 8;
  format.scheme = QuantScheme::kSymmetric;
  scene.addPage(format, 11);
  scene.setChunk(DataType::kF16, 3, 4);
  std::vector<ExactSpan> unpacked;
  for (std::int64_t i = 0; i < scene.history().nPages; ++i) {
    const PageRef& page = scene.history().pages[i];
    unpacked.push_back(scene.poisonedSpan(DataType::kF32, 40));
    unpackPageReference(scene.shape(), page, unpacked.back());
    unpacked.back().nTokens = page.nTokens;
  }
  KvView exact;
  exact.exact = unpacked;
  std::vector<float> queries = scene.randomRows(3, 144, 144, 1.0F);
  std::vector<float> fromPages(queries.size(), NAN);
  std::vector<float> fromSpans(queries.size(), NAN);
  const MatrixView rows{queries.data(), 3, 144, 144};
  attendReference(scene.shape(), 0.2F, rows, scene.history(), scene.chunk(), 0,
                  {fromPages.data(), 3, 144, 144});
  attendReference(scene.shape(), 0.2F, rows, exact, scene.chunk(), 0,
                  {fromSpans.data(), 3, 144, 144});
  QCOMPARE(fromPages, fromSpans);
}

void ReferenceKvTest::laterTokensOfTheChunkAreNotSeen() {
  KvScene scene({1, 1, 8}, 2);
  scene.setChunk(DataType::kF32, 6, 6);
  std::vector<float> queries = scene.randomRows(6, 8, 8, 1.0F);
  std::vector<float> together(queries.size(), NAN);
  attendReference(scene.shape(), 1.0F, {queries.data(), 6, 8, 8}, {}, scene.chunk(), 0,
                  {together.data(), 6, 8, 8});
  for (std::int64_t row = 0; row < 6; ++row) {
    std::vector<float> alone(8, NAN);
    attendReference(scene.shape(), 1.0F, {queries.data() + row * 8, 1, 8, 8}, {},
                    scene.chunk().slice(0, row + 1, 8), row, {alone.data(), 1, 8, 8});
    QVERIFY(std::equal(alone.begin(), alone.end(), together.begin() + row * 8));
  }
  // The first query sees one token only: its output is that token's value.
  for (std::int64_t c = 0; c < 8; ++c) {
    QCOMPARE(together[static_cast<std::size_t>(c)], floatAt(scene.chunk().values, c));
  }
}

void ReferenceKvTest::copiedTokensStandWhereTheyShould() {
  KvScene scene({2, 2, 10}, 6);
  const ExactSpan source = scene.randomSpan(DataType::kF16, 9, 9);
  const ExactSpan destination = scene.poisonedSpan(DataType::kF16, 20);
  copyExactReference(scene.shape(), source, 2, destination, 13, 5);
  for (std::int64_t head = 0; head < 2; ++head) {
    for (std::int64_t token = 0; token < 20; ++token) {
      const std::byte* row = destination.keys + (head * 20 + token) * 20;
      if (token >= 13 && token < 18) {
        QVERIFY(std::memcmp(row, source.keys + (head * 9 + token - 11) * 20, 20) == 0);
      } else {
        QCOMPARE(std::to_integer<int>(row[0]), 0xff);  // untouched
      }
    }
  }
}

QTEST_APPLESS_MAIN(ReferenceKvTest)
#include "reference_kv_test.moc"
