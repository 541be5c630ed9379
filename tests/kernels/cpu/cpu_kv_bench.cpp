// Speed of attention and packing on this machine, by bits: not a test, excluded from ctest's
// presets by its label. LONGHAND_BENCH_THREADS and LONGHAND_BENCH_TOKENS change the defaults.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <vector>

#include <QtTest>

#include "kernels/cpu/base/cpu_path.h"
#include "kernels/cpu/kv/kv_store.h"
#include "kernels/cpu/probe/machine_probe.h"
#include "kernels/page_layout.h"

using namespace longhand::kernels;

namespace {

constexpr std::int64_t kGroupSize = 64;

constexpr std::pair<const char*, CpuPath> kPaths[] = {{"AVX-512 BF16", CpuPath::kAvx512Bf16},
                                                      {"AVX-512 VNNI", CpuPath::kAvx512Vnni},
                                                      {"AVX-512", CpuPath::kAvx512},
                                                      {"AVX2", CpuPath::kAvx2},
                                                      {"portable", CpuPath::kPortable}};

/// Best of several runs, in seconds.
double bestSeconds(const std::function<void()>& work) {
  double best = HUGE_VAL;
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(700);
  do {
    const auto start = std::chrono::steady_clock::now();
    work();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    best = std::min(best, took.count());
  } while (std::chrono::steady_clock::now() < end);
  return best;
}

std::int64_t fromEnvironment(const char* name, std::int64_t fallback) {
  bool isSet = false;
  const int value = qEnvironmentVariableIntValue(name, &isSet);
  return isSet ? value : fallback;
}

/// Floating-point operations a second that the path's best multiply-add reaches, measured once.
double peakOperations(CpuPath path, ThreadPool& pool) {
  static std::map<CpuPath, double> peaks;
  if (!peaks.contains(path)) {
    const MachineRates rates = measureMachineRates(path, pool);
    peaks[path] = 2.0 * std::max(rates.floatMultiplyAddsPerSecond, rates.bf16MultiplyAddsPerSecond);
  }
  return peaks[path];
}

/// A cache of one layer, all pages of one format, packed from the same random tokens.
class Cache {
 public:
  Cache(const AttentionShape& shape, const PageFormat& format, std::int64_t nTokens, CpuKv& kv)
      : shape_(shape) {
    const std::int64_t cols = shape.nKvHeads * shape.headDim;
    numbers_.resize(static_cast<std::size_t>(kGroupSize * cols));
    unsigned state = 1;
    for (float& number : numbers_) {
      state = state * 1664525U + 1013904223U;
      number = static_cast<float>(state >> 8U) * 0x1p-23F - 1.0F;
    }
    exactMemory_.resize(2 * numbers_.size());
    exact_.keys = reinterpret_cast<std::byte*>(exactMemory_.data());
    exact_.values = reinterpret_cast<std::byte*>(exactMemory_.data() + numbers_.size());
    exact_.tokenCapacity = kGroupSize;
    exact_.nTokens = kGroupSize;
    const MatrixView rows{numbers_.data(), kGroupSize, cols, cols};
    kv.storeExact(shape, rows, rows, exact_, 0);
    pageBytes_ = pageLayout(format, shape.nKvHeads, shape.headDim).totalBytes;
    memory_.resize(static_cast<std::size_t>(nTokens / kGroupSize) * pageBytes_ / 64);
    for (std::int64_t i = 0; i < nTokens / kGroupSize; ++i) {
      std::byte* data = memory_[static_cast<std::size_t>(i) * pageBytes_ / 64].bytes;
      if (i == 0) {
        kv.packPage(shape, {&exact_, 1}, format, QuantSolver::kMinMax, data);
      } else {
        std::memcpy(data, memory_[0].bytes, pageBytes_);
      }
      pages_.push_back({data, format, 0, kGroupSize});
    }
  }

  KvView view() const {
    return {pages_.data(), std::ssize(pages_), std::ssize(pages_) * kGroupSize, {}};
  }
  const ExactSpan& exact() const { return exact_; }
  double bytes() const { return static_cast<double>(pageBytes_ * pages_.size()); }
  std::size_t pageBytes() const { return pageBytes_; }
  std::byte* firstPage() { return memory_[0].bytes; }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  AttentionShape shape_;
  std::vector<float> numbers_;
  std::vector<std::uint16_t> exactMemory_;
  ExactSpan exact_;
  std::size_t pageBytes_ = 0;
  std::vector<Line> memory_;
  std::vector<PageRef> pages_;
};

}  // namespace

class CpuKvBench : public QObject {
  Q_OBJECT

 private slots:
  void decode_data() { addCases(); }
  void decode();
  void prefill_data();
  void prefill();
  void packing_data() { addCases(); }
  void packing();

 private:
  static void addCases() {
    QTest::addColumn<int>("path");
    QTest::addColumn<int>("keyNbits");
    QTest::addColumn<int>("valueNbits");
    QTest::addColumn<int>("queriesPerKvHead");
    for (const auto& [name, path] : kPaths) {
      for (const int queries : {1, 4}) {
        for (const auto& [k, v] : {std::pair{16, 16}, {8, 8}, {4, 4}, {4, 2}, {2, 2}}) {
          QTest::addRow("%s k%dv%d x%d", name, k, v, queries)
              << static_cast<int>(path) << k << v << queries;
        }
      }
    }
  }
  static void attend(const AttentionShape& shape, std::int64_t nRows, std::int64_t nTokens);
};

void CpuKvBench::attend(const AttentionShape& shape, std::int64_t nRows, std::int64_t nTokens) {
  QFETCH(int, path);
  QFETCH(int, keyNbits);
  QFETCH(int, valueNbits);
  if (!isSupported(static_cast<CpuPath>(path))) QSKIP("this machine lacks the path");
  ThreadPool pool(static_cast<int>(fromEnvironment("LONGHAND_BENCH_THREADS", 2)));
  CpuKv kv(kvKernelsFor(static_cast<CpuPath>(path)), pool);
  PageFormat format;
  format.keyNbits = static_cast<std::uint8_t>(keyNbits);
  format.valueNbits = static_cast<std::uint8_t>(valueNbits);
  Cache cache(shape, format, nTokens, kv);
  const std::int64_t cols = shape.nHeads * shape.headDim;
  std::vector<float> queries(static_cast<std::size_t>(nRows * cols), 0.1F);
  std::vector<float> output(queries.size());
  std::vector<std::uint16_t> chunkMemory(
      static_cast<std::size_t>(2 * nRows * shape.nKvHeads * shape.headDim));
  ExactSpan chunk;
  chunk.keys = reinterpret_cast<std::byte*>(chunkMemory.data());
  chunk.values = chunk.keys + chunkMemory.size();
  chunk.tokenCapacity = nRows;
  chunk.nTokens = nRows;
  const double seconds = bestSeconds([&] {
    kv.attend(shape, 0.09F, {queries.data(), nRows, cols, cols}, cache.view(), chunk, 0,
              {output.data(), nRows, cols, cols});
  });
  // Row r sees all pages and r + 1 tokens of the chunk.
  const double tokens = static_cast<double>(nTokens) + static_cast<double>(nRows + 1) / 2.0;
  const double products = 2.0 * static_cast<double>(nRows * cols) * tokens;
  const double rate = 2.0 * products / seconds;
  qInfo("%8.3f ms  %6.2f GB/s read  %7.1f GFLOP/s  %5.1f %% of the peak", seconds * 1e3,
        cache.bytes() / seconds * 1e-9, rate * 1e-9,
        100.0 * rate / peakOperations(static_cast<CpuPath>(path), pool));
}

void CpuKvBench::decode() {
  QFETCH(int, queriesPerKvHead);
  attend({8 * queriesPerKvHead, 8, 128}, 1, fromEnvironment("LONGHAND_BENCH_TOKENS", 16384));
}

/// One call of a layer of the 7B and of the 1.1B shape, with as many rows as the graph passes.
void CpuKvBench::prefill_data() {
  QTest::addColumn<int>("path");
  QTest::addColumn<int>("keyNbits");
  QTest::addColumn<int>("valueNbits");
  QTest::addColumn<int>("nKvHeads");
  QTest::addColumn<int>("headDim");
  QTest::addColumn<int>("nTokens");
  for (const auto& [name, path] : kPaths) {
    for (const auto& [k, v] : {std::pair{16, 16}, {8, 8}, {4, 4}, {2, 2}}) {
      QTest::addRow("%s k%dv%d 7B 4096", name, k, v)
          << static_cast<int>(path) << k << v << 32 << 128 << 4096;
      for (const int nTokens : {4096, 16384}) {
        QTest::addRow("%s k%dv%d 1.1B %d", name, k, v, nTokens)
            << static_cast<int>(path) << k << v << 4 << 64 << nTokens;
      }
    }
  }
}

void CpuKvBench::prefill() {
  QFETCH(int, nKvHeads);
  QFETCH(int, headDim);
  QFETCH(int, nTokens);
  attend({32, nKvHeads, headDim}, fromEnvironment("LONGHAND_BENCH_ROWS", 256), nTokens);
}

void CpuKvBench::packing() {
  QFETCH(int, path);
  QFETCH(int, keyNbits);
  QFETCH(int, valueNbits);
  if (!isSupported(static_cast<CpuPath>(path))) QSKIP("this machine lacks the path");
  ThreadPool pool(static_cast<int>(fromEnvironment("LONGHAND_BENCH_THREADS", 2)));
  CpuKv kv(kvKernelsFor(static_cast<CpuPath>(path)), pool);
  const AttentionShape shape{8, 8, 128};
  PageFormat format;
  format.keyNbits = static_cast<std::uint8_t>(keyNbits);
  format.valueNbits = static_cast<std::uint8_t>(valueNbits);
  Cache cache(shape, format, kGroupSize, kv);
  const ExactSpan source = cache.exact();
  const double seconds = bestSeconds([&] {
    kv.packPage(shape, {&source, 1}, format, QuantSolver::kMinMax, cache.firstPage());
  });
  qInfo("%8.1f us a page  %6.2f GB/s of F16 packed", seconds * 1e6,
        static_cast<double>(2 * 2 * kGroupSize * 8 * 128) / seconds * 1e-9);
}

QTEST_APPLESS_MAIN(CpuKvBench)
#include "cpu_kv_bench.moc"
