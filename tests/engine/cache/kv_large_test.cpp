// Sizes at which 32 bits are not enough. Memory is mostly address space, or 2-bit codes.
#include <sys/mman.h>

#include <cmath>
#include <cstring>

#include <QTest>

#include "engine/cache/kv_cache.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/page_layout.h"
#include "tests/engine/cache/cache_pair.h"

namespace longhand {

using kernels::AttentionShape;
using kernels::DataType;
using kernels::ExactSpan;
using tests::CachePair;

class KvLargeTest : public QObject {
  Q_OBJECT

 private slots:
  void spanOfMoreThanFourGibIsAttended();
  void exactPartsOfMoreThanFourGibKeepTheirLayersApart();
  void layerOfMoreThanTwoToThe31ElementsIsAttended();
};

namespace {

/// Address space whose pages cost memory only once they are written.
class SparseMemory {
 public:
  explicit SparseMemory(std::size_t bytes)
      : bytes_(bytes),
        data_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {}
  SparseMemory(const SparseMemory&) = delete;
  SparseMemory& operator=(const SparseMemory&) = delete;
  ~SparseMemory() {
    if (isValid()) munmap(data_, bytes_);
  }
  bool isValid() const { return data_ != MAP_FAILED; }
  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  std::size_t bytes_;
  void* data_;
};

/// Tokens [first, first + count) of CachePair's made-up text.
struct Tokens {
  Tokens(const CachePair& source, std::int64_t first, std::int64_t count, unsigned text) {
    for (std::int64_t token = first; token < first + count; ++token) {
      const std::vector<float> key = source.exactKeys(token, text);
      const std::vector<float> value = source.exactValues(token, text);
      keys.insert(keys.end(), key.begin(), key.end());
      values.insert(values.end(), value.begin(), value.end());
    }
  }
  std::vector<float> keys;
  std::vector<float> values;
};

void store(kernels::Backend& backend, const AttentionShape& shape, Tokens& tokens,
           const ExactSpan& span, std::int64_t firstToken) {
  const std::int64_t width = shape.nKvHeads * shape.headDim;
  const std::int64_t count = std::ssize(tokens.keys) / width;
  backend.storeExact(shape, {tokens.keys.data(), count, width, width},
                     {tokens.values.data(), count, width, width}, span, firstToken);
}

ExactSpan spanIn(std::byte* memory, const AttentionShape& shape, std::int64_t capacity,
                 std::int64_t nTokens) {
  const std::size_t bytes =
      kernels::bytesOf(DataType::kF16, shape.nKvHeads * capacity * shape.headDim);
  return {DataType::kF16, memory, memory + bytes, capacity, nTokens};
}

}  // namespace

/// Two kv heads 4 GiB apart, the tokens behind element 2^31 of their head.
void KvLargeTest::spanOfMoreThanFourGibIsAttended() {
  constexpr std::int64_t kFirst = std::int64_t{1} << 24U;
  constexpr std::int64_t kCount = 70;
  constexpr std::int64_t kCapacity = kFirst + kCount;
  const AttentionShape shape{4, 2, 128};
  const std::size_t bytes = 4 * kernels::bytesOf(DataType::kF16, kCapacity * shape.headDim);
  const SparseMemory large(bytes);
  if (!large.isValid()) QSKIP("the system grants no 16 GiB of address space");
  std::vector<std::byte> small(4 * kernels::bytesOf(DataType::kF16, kCount * shape.headDim));

  const auto backend = kernels::createCpuBackend({1, kernels::CpuPath::kAuto});
  const CachePair source(shape, {});
  Tokens tokens(source, 0, kCount, 0);
  const ExactSpan far = spanIn(large.data(), shape, kCapacity, kCapacity);
  const ExactSpan near = spanIn(small.data(), shape, kCount, kCount);
  store(*backend, shape, tokens, far, kFirst);
  store(*backend, shape, tokens, near, 0);

  const std::int64_t cols = shape.nHeads * shape.headDim;
  std::vector<float> query(static_cast<std::size_t>(cols));
  for (std::size_t i = 0; i < query.size(); ++i) query[i] = std::sin(static_cast<float>(i));
  const auto attend = [&](const ExactSpan& span) {
    std::vector<float> output(query.size());
    const ExactSpan history = span.slice(0, kCount - 1, shape.headDim);
    const ExactSpan chunk = span.slice(kCount - 1, 1, shape.headDim);
    backend->attend(shape, 0.1F, {query.data(), 1, cols, cols},
                    {nullptr, 0, 0, std::span(&history, 1)}, chunk, 0,
                    {output.data(), 1, cols, cols});
    return output;
  };
  const std::vector<float> expected = attend(near);
  QCOMPARE(attend(far.slice(kFirst, kCount, shape.headDim)), expected);

  const kernels::PageFormat format{4, 4, 64};
  const std::size_t pageBytes =
      kernels::pageLayout(format, shape.nKvHeads, shape.headDim).totalBytes;
  std::vector<std::byte> farPage(pageBytes);
  std::vector<std::byte> nearPage(pageBytes);
  const ExactSpan farSource = far.slice(kFirst, 64, shape.headDim);
  const ExactSpan nearSource = near.slice(0, 64, shape.headDim);
  backend->packPage(shape, {&farSource, 1}, format, kernels::QuantSolver::kMinMax, farPage.data());
  backend->packPage(shape, {&nearSource, 1}, format, kernels::QuantSolver::kMinMax,
                    nearPage.data());
  QCOMPARE(farPage, nearPage);
}

/// Llama-2-7B with the longest sink and residual: 4.06 GiB in one buffer, of which few tokens touch
/// little.
void KvLargeTest::exactPartsOfMoreThanFourGibKeepTheirLayersApart() {
  const AttentionShape shape{32, 32, 128};
  constexpr std::int64_t kLayers = 32;
  constexpr std::int64_t kCount = 3;
  engine::KvCacheConfig config;
  config.residualLength = 4096;
  config.sinkLength = 4096;
  config.groupSize = 128;
  const engine::MemoryUse use = engine::kvCacheUse(config, shape, kLayers, kCount);
  QVERIFY(use[engine::MemoryCategory::kKvExact] > std::uint64_t{1} << 32U);
  const auto backend = kernels::createCpuBackend({1, kernels::CpuPath::kAuto});
  if (backend->memoryInfo().freeBytes < use.total()) QSKIP("too little memory is free");
  engine::MemoryLedger ledger;
  engine::KvCache cache(*backend, ledger, shape, kLayers, config);
  cache.reserve(kCount);

  const CachePair source(shape, {});
  const std::int64_t width = shape.nKvHeads * shape.headDim;
  const std::size_t partBytes = kernels::bytesOf(DataType::kF16, kCount * width);
  std::vector<std::vector<std::byte>> chunks;
  cache.beginChunk(kCount);
  for (std::int64_t layer = 0; layer < kLayers; ++layer) {
    Tokens tokens(source, 0, kCount, static_cast<unsigned>(layer));
    std::vector<std::byte>& memory = chunks.emplace_back(2 * partBytes);
    const ExactSpan chunk = spanIn(memory.data(), shape, kCount, kCount);
    store(*backend, shape, tokens, chunk, 0);
    cache.append(layer, chunk);
  }
  cache.commitChunk();
  for (std::int64_t layer = 0; layer < kLayers; ++layer) {
    const ExactSpan& sink = cache.view(layer).exact.front();
    QCOMPARE(sink.nTokens, kCount);
    const std::size_t rowBytes = kernels::bytesOf(DataType::kF16, kCount * shape.headDim);
    const std::byte* expected = chunks[static_cast<std::size_t>(layer)].data();
    for (std::int64_t head = 0; head < shape.nKvHeads; ++head) {
      const std::size_t from =
          kernels::bytesOf(DataType::kF16, head * sink.tokenCapacity * shape.headDim);
      const std::size_t to = rowBytes * static_cast<std::size_t>(head);
      QVERIFY(std::memcmp(sink.keys + from, expected + to, rowBytes) == 0);
      QVERIFY(std::memcmp(sink.values + from, expected + partBytes + to, rowBytes) == 0);
    }
  }
}

/// 16.8 million tokens of 2 bits: the same 4,096 over and over, then 4,096 others whose keys lie
/// along the query, so that they weigh about as much as all before. Pages of equal tokens are
/// equal, so the slow twin needs each token once, and how often it stands there.
void KvLargeTest::layerOfMoreThanTwoToThe31ElementsIsAttended() {
  const AttentionShape shape{1, 1, 128};
  constexpr std::int64_t kChunk = 4096;
  constexpr std::int64_t kRepeats = 4100;
  constexpr std::int64_t kTokens = kChunk * (kRepeats + 1);
  static_assert(kTokens * 128 > std::int64_t{1} << 31U);
  engine::KvCacheConfig config;
  config.keyNbits = config.valueNbits = 2;
  config.groupSize = 128;
  config.residualLength = 0;
  config.sinkLength = 0;
  const auto backend = kernels::createCpuBackend({0, kernels::CpuPath::kAuto});
  if (backend->memoryInfo().freeBytes < 2 * engine::kvCacheUse(config, shape, 1, kTokens).total()) {
    QSKIP("too little memory is free");
  }
  const CachePair source(shape, config);
  Tokens common(source, 0, kChunk, 0);
  Tokens special(source, 0, kChunk, 1);
  std::vector<float> query(128);
  double squares = 0.0;
  for (std::size_t i = 0; i < query.size(); ++i) {
    query[i] = std::sin(static_cast<float>(3 * i));
    squares += static_cast<double>(query[i]) * static_cast<double>(query[i]);
  }
  const double scoreScale = 1.0 / std::sqrt(128.0);
  const auto alongQuery = static_cast<float>(std::log(kRepeats) / (squares * scoreScale));
  for (std::size_t i = 0; i < special.keys.size(); ++i) {
    special.keys[i] += alongQuery * query[i % 128];
  }

  engine::MemoryLedger ledger;
  engine::KvCache cache(*backend, ledger, shape, 1, config);
  cache.reserve(kTokens);
  const std::size_t chunkBytes = 2 * kernels::bytesOf(DataType::kF16, kChunk * 128);
  std::vector<std::byte> commonMemory(chunkBytes);
  std::vector<std::byte> specialMemory(chunkBytes);
  const ExactSpan commonChunk = spanIn(commonMemory.data(), shape, kChunk, kChunk);
  const ExactSpan specialChunk = spanIn(specialMemory.data(), shape, kChunk, kChunk);
  store(*backend, shape, common, commonChunk, 0);
  store(*backend, shape, special, specialChunk, 0);
  for (std::int64_t i = 0; i <= kRepeats; ++i) {
    cache.beginChunk(kChunk);
    cache.append(0, i < kRepeats ? commonChunk : specialChunk);
    cache.commitChunk();
  }
  QCOMPARE(cache.packedTokens(), kTokens);

  const ExactSpan own = specialChunk.slice(0, 1, 128);
  std::vector<float> output(128);
  backend->attend(shape, static_cast<float>(scoreScale), {query.data(), 1, 128, 128}, cache.view(0),
                  own, 0, {output.data(), 1, 128, 128});

  tests::CacheTwin twin(shape, config);
  for (Tokens* tokens : {&common, &special}) {
    for (std::size_t token = 0; token < kChunk; ++token) {
      twin.add(std::span(tokens->keys).subspan(token * 128, 128),
               std::span(tokens->values).subspan(token * 128, 128));
    }
  }
  std::vector<double> expected(128, 0.0);
  double sum = 0.0;
  double specialSum = 0.0;
  const auto addToken = [&](std::span<const float> key, std::span<const float> value,
                            double times) {
    double score = 0.0;
    for (std::size_t c = 0; c < 128; ++c) {
      score += static_cast<double>(query[c]) * static_cast<double>(key[c]);
    }
    const double weight = times * std::exp(score * scoreScale);
    sum += weight;
    for (std::size_t c = 0; c < 128; ++c) expected[c] += weight * static_cast<double>(value[c]);
    return weight;
  };
  for (std::int64_t t = 0; t < kChunk; ++t) addToken(twin.keys(t), twin.values(t), kRepeats);
  for (std::int64_t t = kChunk; t < 2 * kChunk; ++t) {
    specialSum += addToken(twin.keys(t), twin.values(t), 1.0);
  }
  addToken(std::span(special.keys).first(128), std::span(special.values).first(128), 1.0);
  qInfo("the last 4,096 tokens weigh %.1f %%", 100.0 * specialSum / sum);
  QVERIFY(specialSum > 0.1 * sum && specialSum < 0.9 * sum);
  double worst = 0.0;
  for (std::size_t c = 0; c < 128; ++c) {
    worst = std::max(worst, std::abs(static_cast<double>(output[c]) - expected[c] / sum));
  }
  // Sums of 2^24 floats: 2^-24 times their number's root, and values up to 1.8.
  QVERIFY2(worst <= 1.8 * 0x1p-12, qPrintable(QString("largest difference %1").arg(worst)));
  qInfo("largest difference %.2g", worst);
}

}  // namespace longhand

QTEST_APPLESS_MAIN(longhand::KvLargeTest)
#include "kv_large_test.moc"
