// Speed of decode attention on this machine against a plain read of memory in the same run: not a
// test, excluded from ctest's presets by its label. One row at a time:
//   cpu_kv_decode_bench "decode:1.1B 100000 k4v4 AVX-512 VNNI"
// LONGHAND_BENCH_THREADS sets the number of threads (2); LONGHAND_BENCH_LEAST_BYTES=0 keeps the
// cache in the processor's, which shows what arithmetic alone costs.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <span>
#include <vector>

#include <QtTest>

#include "kernels/cpu/base/cpu_path.h"
#include "kernels/cpu/kv/kv_store.h"
#include "kernels/host_memory.h"
#include "kernels/page_layout.h"

using namespace longhand::kernels;

namespace {

constexpr std::int64_t kGroupSize = 64;
/// More than any cache of the processor holds, so that every run reads from memory, as a decode
/// step does that has read the weights in between.
std::int64_t leastBytes() {
  bool isSet = false;
  const int value = qEnvironmentVariableIntValue("LONGHAND_BENCH_LEAST_BYTES", &isSet);
  return isSet ? value : 400'000'000;
}

double secondsOf(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

int threads() {
  bool isSet = false;
  const int value = qEnvironmentVariableIntValue("LONGHAND_BENCH_THREADS", &isSet);
  return isSet ? value : 2;
}

class HostMemory {
 public:
  explicit HostMemory(std::size_t bytes) : bytes_(bytes), memory_(allocateHostMemory(bytes)) {}
  ~HostMemory() { releaseHostMemory(memory_, bytes_); }
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;
  std::byte* data() const { return memory_; }

 private:
  std::size_t bytes_;
  std::byte* memory_;
};

/// Layers of a cache, all pages of one format: a few pages of random tokens, over and over. Heap
/// order as in the engine: the pages of a layer follow each other.
class Layers {
 public:
  Layers(const AttentionShape& shape, const PageFormat& format, std::int64_t nTokens, CpuKv& kv)
      : nPages_(nTokens / kGroupSize),
        pageBytes_(pageLayout(format, shape.nKvHeads, shape.headDim).totalBytes),
        nLayers_(1 + leastBytes() / (nPages_ * static_cast<std::int64_t>(pageBytes_))),
        memory_(static_cast<std::size_t>(nLayers_ * nPages_) * pageBytes_) {
    constexpr std::int64_t kDistinct = 16;
    for (std::int64_t i = 0; i < nLayers_ * nPages_; ++i) {
      std::byte* data = memory_.data() + static_cast<std::size_t>(i) * pageBytes_;
      if (i < kDistinct) {
        fillExact(shape, static_cast<unsigned>(i), kv);
        kv.packPage(shape, {&exact_, 1}, format, QuantSolver::kMinMax, data);
      } else {
        std::memcpy(data, memory_.data() + static_cast<std::size_t>(i % kDistinct) * pageBytes_,
                    pageBytes_);
      }
      pages_.push_back({data, format, 0, kGroupSize});
    }
  }

  std::int64_t count() const { return nLayers_; }
  KvView view(std::int64_t layer) const {
    return {pages_.data() + layer * nPages_, nPages_, nPages_ * kGroupSize, {}};
  }
  const ExactSpan& exact() const { return exact_; }
  double layerBytes() const {
    return static_cast<double>(nPages_) * static_cast<double>(pageBytes_);
  }

 private:
  void fillExact(const AttentionShape& shape, unsigned seed, CpuKv& kv) {
    const std::int64_t cols = shape.nKvHeads * shape.headDim;
    std::vector<float> numbers(static_cast<std::size_t>(kGroupSize * cols));
    unsigned state = seed * 977U + 1U;
    for (float& number : numbers) {
      state = state * 1664525U + 1013904223U;
      number = static_cast<float>(state >> 8U) * 0x1p-23F - 1.0F;
    }
    exactMemory_.resize(2 * numbers.size());
    exact_.keys = reinterpret_cast<std::byte*>(exactMemory_.data());
    exact_.values = reinterpret_cast<std::byte*>(exactMemory_.data() + numbers.size());
    exact_.tokenCapacity = kGroupSize;
    exact_.nTokens = kGroupSize;
    const MatrixView rows{numbers.data(), kGroupSize, cols, cols};
    kv.storeExact(shape, rows, rows, exact_, 0);
  }

  std::int64_t nPages_;
  std::size_t pageBytes_;
  std::int64_t nLayers_;
  HostMemory memory_;
  std::vector<std::uint16_t> exactMemory_;
  ExactSpan exact_;
  std::vector<PageRef> pages_;
};

/// Reads memory front to back, each thread a part of its own.
class PlainRead {
 public:
  PlainRead() : memory_(kBytes) { std::memset(memory_.data(), 1, kBytes); }

  double bytesPerSecond(ThreadPool& pool) {
    const auto* words = reinterpret_cast<const std::uint64_t*>(memory_.data());
    constexpr std::int64_t kPart = 1 << 17;  // words
    const double seconds = secondsOf([&] {
      pool.parallelFor(kBytes / 8 / kPart, 1, [&](int, std::int64_t first, std::int64_t last) {
        std::uint64_t sums[16] = {};
        for (std::int64_t i = first * kPart; i < last * kPart; i += 16) {
          for (std::int64_t j = 0; j < 16; ++j) sums[j] |= words[i + j];
        }
        for (const std::uint64_t sum : sums) sink_.fetch_or(sum, std::memory_order_relaxed);
      });
    });
    return static_cast<double>(kBytes) / seconds;
  }

 private:
  static constexpr std::int64_t kBytes = 256 << 20;
  HostMemory memory_;
  std::atomic<std::uint64_t> sink_{0};
};

}  // namespace

class CpuKvDecodeBench : public QObject {
  Q_OBJECT

 private slots:
  void decode_data();
  void decode();

 private:
  PlainRead plainRead_;
};

void CpuKvDecodeBench::decode_data() {
  QTest::addColumn<AttentionShape>("shape");
  QTest::addColumn<std::int64_t>("nTokens");
  QTest::addColumn<int>("keyNbits");
  QTest::addColumn<int>("valueNbits");
  QTest::addColumn<int>("path");
  for (const auto& [name, path] : {std::pair{"AVX-512 VNNI", CpuPath::kAvx512Vnni},
                                   {"AVX-512", CpuPath::kAvx512},
                                   {"AVX2", CpuPath::kAvx2},
                                   {"portable", CpuPath::kPortable}}) {
    for (const auto& [shapeName, shape] :
         {std::pair{"7B", AttentionShape{32, 32, 128}}, {"1.1B", AttentionShape{32, 4, 64}}}) {
      for (const std::int64_t nTokens : {4096, 16384, 100'000}) {
        for (const auto& [k, v] : {std::pair{16, 16}, {8, 8}, {4, 4}, {4, 2}, {2, 2}}) {
          QTest::addRow("%s %d k%dv%d %s", shapeName, static_cast<int>(nTokens), k, v, name)
              << shape << nTokens << k << v << static_cast<int>(path);
        }
      }
    }
  }
}

void CpuKvDecodeBench::decode() {
  QFETCH(AttentionShape, shape);
  QFETCH(std::int64_t, nTokens);
  QFETCH(int, keyNbits);
  QFETCH(int, valueNbits);
  QFETCH(int, path);
  if (!isSupported(static_cast<CpuPath>(path))) QSKIP("this machine lacks the path");
  ThreadPool pool(threads());
  CpuKv kv(kvKernelsFor(static_cast<CpuPath>(path)), pool);
  PageFormat format;
  format.keyNbits = static_cast<std::uint8_t>(keyNbits);
  format.valueNbits = static_cast<std::uint8_t>(valueNbits);
  Layers layers(shape, format, nTokens, kv);
  const std::int64_t cols = shape.nHeads * shape.headDim;
  std::vector<float> queries(static_cast<std::size_t>(cols));
  for (std::size_t i = 0; i < queries.size(); ++i) {
    queries[i] = std::sin(static_cast<float>(i * i));
  }
  std::vector<float> output(queries.size());
  std::vector<double> seconds;
  std::vector<double> plain;
  // A plain read sweeps the cache out of the processor's.
  const int nRepeats = leastBytes() == 0 ? 20 : 1;
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(500);
  do {
    for (int i = 0; i < nRepeats; ++i) {
      seconds.push_back(secondsOf([&] {
        for (std::int64_t layer = 0; layer < layers.count(); ++layer) {
          kv.attend(shape, 0.09F, {queries.data(), 1, cols, cols}, layers.view(layer),
                    layers.exact(), 0, {output.data(), 1, cols, cols});
        }
      }));
    }
    plain.push_back(plainRead_.bytesPerSecond(pool));
  } while (std::chrono::steady_clock::now() < end || seconds.size() < 3);
  const double best = *std::min_element(seconds.begin(), seconds.end());
  const double read = *std::max_element(plain.begin(), plain.end()) * 1e-9;
  const double rate = layers.layerBytes() * static_cast<double>(layers.count()) / best * 1e-9;
  qInfo("%s: %8.3f ms a layer, %5.1f GB/s, plain read %5.1f GB/s, %3.0f %% of the floor",
        QTest::currentDataTag(), best * 1e3 / static_cast<double>(layers.count()), rate, read,
        100.0 * rate / read);
}

QTEST_APPLESS_MAIN(CpuKvDecodeBench)
#include "cpu_kv_decode_bench.moc"
