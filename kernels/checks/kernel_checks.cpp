#include "kernels/checks/kernel_checks.h"

#include <chrono>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <new>
#include <string>
#include <vector>

#include "kernels/checks/attention_check.h"
#include "kernels/checks/attention_scenes.h"
#include "kernels/checks/elementwise_check.h"
#include "kernels/checks/kv_scene.h"
#include "kernels/checks/kv_store_check.h"
#include "kernels/checks/matmul_check.h"
#include "kernels/checks/test_matrix.h"

namespace longhand::kernels::checks {
namespace {

using Sizes = std::initializer_list<std::int64_t>;

/// Leaves the list.
struct Ended {};

/// What the rows of the list are given, and where they say what they found.
class Run {
 public:
  Run(Backend& backend, CheckExtent extent, const std::function<bool(const KernelCheck&)>& onCheck)
      : backend_(backend), extent_(extent), onCheck_(onCheck) {}

  Backend& backend() const { return backend_; }
  bool isFull() const { return extent_ == CheckExtent::kFull; }

  /// Starts a row; the cases that follow belong to it. Throws Ended.
  void begin(const char* operation, const std::string& what) {
    end();
    row_ = {};
    row_.operation = operation;
    row_.what = what;
    start_ = std::chrono::steady_clock::now();
  }
  void add(CheckResult result) {
    ++row_.nCases;
    row_.result.add(std::move(result));
  }
  void end() {
    if (row_.nCases == 0) return;
    const bool isLost = noteFault();
    const auto now = std::chrono::steady_clock::now();
    row_.seconds = std::chrono::duration<double>(now - start_).count();
    const bool goesOn = onCheck_(row_);
    row_.nCases = 0;
    if (!goesOn || isLost) throw Ended{};
  }
  /// Ends the row that a fault of the device broke off; false when there was none.
  bool endIfLost() {
    if (!noteFault()) return false;
    onCheck_(row_);
    return true;
  }

 private:
  bool noteFault() {
    const std::string fault = backend_.synchronize();
    if (!fault.empty()) row_.result = {HUGE_VAL, "the device failed: " + fault};
    return !fault.empty();
  }

  Backend& backend_;
  CheckExtent extent_;
  const std::function<bool(const KernelCheck&)>& onCheck_;
  KernelCheck row_;
  std::chrono::steady_clock::time_point start_;
};

void checkMemoryAndSmall(Run& run) {
  Backend& b = run.backend();
  run.begin("memory", "upload, copy, download");
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{4097}, std::size_t{5'000'003}}) {
    run.add(checkMemory(b, bytes));
  }
  run.begin("embed", "F32, F16, BF16");
  for (const WeightForm form : {WeightForm::kF32, WeightForm::kF16, WeightForm::kBF16}) {
    for (const std::int64_t cols : {1, 67, 4096}) run.add(checkEmbed(b, form, 50, cols, 9));
  }
  run.begin("rms norm", "rows of 1 to 11008, in place too");
  for (const std::int64_t cols : {1, 31, 64, 130, 600, 4096, 11008}) {
    for (const std::int64_t nTokens : {1, 3, 40}) {
      if (!run.isFull() && nTokens * cols > 20'000) continue;
      run.add(checkRmsNorm(b, nTokens, cols, nTokens == 3));
    }
  }
  run.begin("rope", "head_dim 2 to 256");
  for (const std::int64_t headDim : {2, 30, 64, 80, 128, 256}) {
    for (const std::int64_t nTokens : {1, 2, 90}) run.add(checkRope(b, nTokens, headDim));
  }
  run.begin("silu multiply", "gates of all sizes");
  for (const std::int64_t cols : {1, 33, 500, 11008}) {
    run.add(checkSiluMultiply(b, 1, cols, 4.0F));
    run.add(checkSiluMultiply(b, 3, cols, 40.0F));
  }
  run.begin("argmax", "ties and NaN too");
  for (const std::int64_t count : {2, 33, 1000, 32000}) run.add(checkArgmax(b, count));
  run.begin("top logits", "ties, NaN, infinities");
  for (const std::int64_t count : {40, 1000, 32000, 128256}) {
    if (!run.isFull() && count > 32000) continue;
    for (const std::int64_t nBest : {1, 40, 64}) run.add(checkTopLogits(b, count, nBest));
  }
}

/// Up to 8 tokens take the vector products, more of them the tiles.
constexpr Sizes kFewTokens = {1, 2, 3, 4, 5, 6, 7, 8};
constexpr Sizes kManyTokens = {9, 17, 64, 130};

void checkProducts(Run& run) {
  Backend& b = run.backend();
  for (const WeightForm form : kWeightForms) {
    const std::string name = nameOf(form);
    run.begin("matmul", name + ", 1 to 8 tokens");
    for (const std::int64_t nTokens : kFewTokens) {
      run.add(checkMatmul(b, {form, 40, 1152, nTokens, nTokens % 2 == 0, true}));
      run.add(checkMatmul(b, {form, 33, 192, nTokens, false, true}));
      run.add(checkMatmul(b, {form, 7, 51, nTokens, true, false}));  // nothing is aligned
    }
    if (run.isFull()) {
      run.add(checkMatmul(b, {form, 1024, 4096, 1, false, true}));
      run.add(checkMatmul(b, {form, 256, 11008, 1, true, true}));
      run.add(checkMatmul(b, {form, 256, 11008, 8, false, true}));
    }
    run.begin("matmul", name + ", many tokens");
    for (const std::int64_t nTokens : kManyTokens) {
      if (!run.isFull() && nTokens > 20) continue;
      run.add(checkMatmul(b, {form, 130, 192, nTokens, false, true}));
      run.add(checkMatmul(b, {form, 65, 1088, nTokens, true, true}));
      run.add(checkMatmul(b, {form, 9, 65, nTokens, false, false}));
    }
    if (run.isFull()) run.add(checkMatmul(b, {form, 300, 4096, 140, false, true}));
  }
}

/// Operations that a device may do in one.
void checkFused(Run& run) {
  Backend& b = run.backend();
  constexpr std::int64_t kQueryKeyValue[] = {64, 32, 32};
  constexpr std::int64_t kHead[] = {130};
  for (const WeightForm form : kWeightForms) {
    const std::string name = nameOf(form);
    run.begin("norm + matmul each", name);
    for (const std::int64_t nTokens : {1, 3, 8, 20}) {
      const MatmulCase aligned{form, 64, 1152, nTokens, false, true};
      run.add(checkMatmulEach(b, aligned, kQueryKeyValue));
      run.add(checkNormMatmulEach(b, aligned, kQueryKeyValue));
      run.add(checkNormMatmulEach(b, {form, 130, 192, nTokens, false, true}, kHead));
      run.add(checkNormMatmulEach(b, {form, 64, 77, nTokens, false, false}, kQueryKeyValue));
    }
    run.begin("norm + gate + up", name);
    for (const std::int64_t nTokens : {1, 3, 8, 20}) {
      run.add(checkNormGateUp(b, {form, 96, 256, nTokens, false, true}));
      run.add(checkNormGateUp(b, {form, 11, 77, nTokens, false, false}));
    }
  }
  run.begin("rope + store", "F16, F32");
  for (const std::int64_t headDim : {8, 30, 64, 80, 128, 256}) {
    for (const DataType type : {DataType::kF16, DataType::kF32}) {
      for (const std::int64_t nTokens : {1, 5, 40}) {
        run.add(checkRopeAndStore(b, {4, 2, headDim}, type, nTokens));
      }
    }
  }
}

std::string bitsText(int keyNbits, int valueNbits) {
  return "keys " + std::to_string(keyNbits) + ", values " + std::to_string(valueNbits) + " bits";
}

void checkStoring(Run& run) {
  Backend& b = run.backend();
  run.begin("store exact", "F16, F32");
  for (const std::int64_t headDim : {8, 30, 64, 80, 128, 256}) {
    for (const DataType type : {DataType::kF16, DataType::kF32}) {
      for (const std::int64_t n : {1, 3, 40}) run.add(checkStoreExact(b, headDim, type, n));
    }
  }
  run.begin("copy exact", "F16, F32");
  for (const std::int64_t headDim : {8, 30, 64, 80, 128, 256}) {
    for (const DataType type : {DataType::kF16, DataType::kF32}) {
      for (const std::int64_t n : {1, 3, 40}) run.add(checkCopyExact(b, headDim, type, n));
    }
  }
  for (const QuantSolver solver : {QuantSolver::kMinMax, QuantSolver::kHqq}) {
    run.begin("pack page", solver == QuantSolver::kHqq ? "hqq, bytes" : "minmax, bytes");
    for (const std::int64_t headDim : {30, 64, 80, 128}) {
      if (!run.isFull() && headDim % 64 == 0) continue;
      for (const int keyNbits : {16, 8, 4, 2}) {
        for (const int valueNbits : {16, 8, 4, 2}) {
          const int group = 32 << ((keyNbits + valueNbits / 2 + headDim / 16) % 3);
          const auto scheme = headDim == 80 ? QuantScheme::kSymmetric : QuantScheme::kAsymmetric;
          run.add(
              checkPackPage(b, headDim, pageFormat(keyNbits, valueNbits, group, scheme), solver));
        }
      }
    }
  }
  run.begin("unpack page", "bytes");
  for (const std::int64_t headDim : {30, 64, 80, 128}) {
    for (const int nbits : {16, 8, 4, 2}) {
      for (const DataType type : {DataType::kF16, DataType::kF32}) {
        const auto scheme = nbits == 4 ? QuantScheme::kSymmetric : QuantScheme::kAsymmetric;
        run.add(checkUnpackPage(b, headDim, pageFormat(nbits, nbits, 64, scheme), type));
      }
    }
  }
}

/// A layer with a sink, some full pages and one that is not, and a residual.
KvScene sceneOf(const AttentionShape& shape, const PageFormat& format, int nPages,
                std::int64_t chunkTokens) {
  KvScene scene(shape, 31);
  scene.addSpan(DataType::kF16, 4, 4);
  for (int i = 0; i + 1 < nPages; ++i) scene.addPage(format, format.groupSize);
  scene.addPage(format, format.groupSize - 13);
  scene.addSpan(DataType::kF16, 45, 50);
  scene.setChunk(DataType::kF16, chunkTokens, chunkTokens + 2);
  return scene;
}

void checkFormats(Run& run, const char* operation, std::int64_t nRows) {
  for (const int keyNbits : {16, 8, 4, 2}) {
    for (const int valueNbits : {16, 8, 4, 2}) {
      run.begin(operation, bitsText(keyNbits, valueNbits));
      for (const int group : {32, 64, 128}) {
        for (const std::int64_t headDim : {64, 80, 128}) {
          // Each pair of group and head_dim with some bits; all of them where there is time.
          if (!run.isFull() && (keyNbits + valueNbits + group / 32 + headDim / 16) % 3 != 0)
            continue;
          const auto scheme = group == 64 ? QuantScheme::kSymmetric : QuantScheme::kAsymmetric;
          KvScene scene = sceneOf({4, 2, headDim}, pageFormat(keyNbits, valueNbits, group, scheme),
                                  run.isFull() ? 4 : 2, nRows);
          run.add(checkAttention(scene, run.backend(), nRows, 0));
        }
      }
    }
  }
}

void checkMixed(Run& run, const char* operation, std::int64_t nRows) {
  run.begin(operation, "mixed pages, long");
  for (const std::int64_t headDim : {64, 80, 128}) {
    if (!run.isFull() && headDim != 80) continue;
    MixedHistory history;
    history.headDim = headDim;
    history.nPages = run.isFull() ? 60 : 20;
    history.nRows = nRows;
    run.add(checkMixedHistory(sceneCheck(run.backend()), history));
  }
}

void checkDecode(Run& run) {
  constexpr const char* kName = "decode attention";
  checkFormats(run, kName, 1);
  checkMixed(run, kName, 1);
  run.begin(kName, "head_dim 8 to 256");
  for (const std::int64_t headDim : {8, 10, 24, 40, 96, 100, 256}) {
    for (const int nbits : {8, 4, 2}) {
      KvScene scene = sceneOf({2, 1, headDim}, pageFormat(nbits, nbits, 32), 2, 1);
      run.add(checkAttention(scene, run.backend(), 1, 0));
    }
  }
  run.begin(kName, "1 to 8 queries a kv head, several rows");
  for (const std::int64_t queriesPerKvHead : {1, 2, 3, 5, 8}) {
    for (const std::int64_t nRows : {1, 2, 4}) {
      KvScene scene = sceneOf({2 * queriesPerKvHead, 2, 64}, pageFormat(4, 2, 32), 3, nRows);
      run.add(checkAttention(scene, run.backend(), nRows, 0));
    }
  }
  run.begin(kName, "1 to 64 valid tokens");
  for (int nTokens = 1; nTokens <= 64; nTokens += run.isFull() ? 3 : 9) {
    for (const int nbits : {16, 8, 4, 2}) {
      KvScene scene({2, 1, 128}, 19);
      scene.addPage(pageFormat(nbits, nbits, 64), nTokens);
      scene.setChunk(DataType::kF16, 1, 1);
      run.add(checkAttention(scene, run.backend(), 1, 0));
    }
  }
}

void checkPrefill(Run& run) {
  constexpr const char* kName = "prefill attention";
  checkFormats(run, kName, 19);
  checkMixed(run, kName, 70);
  run.begin(kName, "GQA, 33 to 101 rows, offsets");
  int i = 0;
  for (const std::int64_t queriesPerKvHead : {1, 3, 8}) {
    for (const std::int64_t nRows : {33, 64, 101}) {
      if (!run.isFull() && nRows == 101) continue;
      KvScene scene({2 * queriesPerKvHead, 2, i % 2 == 0 ? 64 : 80}, 7);
      const std::int64_t offset = i % 3 * 37;
      scene.addSpan(DataType::kF16, 4, 4);
      if (i % 3 == 0) scene.addPage(pageFormat(4, 2, 64), 64);
      scene.setChunk(i % 2 == 0 ? DataType::kF16 : DataType::kF32, offset + nRows,
                     offset + nRows + 3);
      run.add(checkAttention(scene, run.backend(), nRows, offset));
      ++i;
    }
  }
  run.begin(kName, "head_dim without tiles");
  for (const std::int64_t headDim : {10, 40, 256}) {
    KvScene scene = sceneOf({2, 1, headDim}, pageFormat(4, 4, 32), 2, 40);
    run.add(checkAttention(scene, run.backend(), 40, 0));
  }
}

/// A new operation gets a function here, or a row in one.
constexpr void (*kAll[])(Run&) = {checkMemoryAndSmall, checkProducts, checkFused,
                                  checkStoring,        checkDecode,   checkPrefill};

}  // namespace

bool checkKernels(Backend& backend, CheckExtent extent,
                  const std::function<bool(const KernelCheck&)>& onCheck) {
  Run run(backend, extent, onCheck);
  try {
    for (const auto& checkSome : kAll) checkSome(run);
    run.end();
    return true;
  } catch (const Ended&) {
    return false;
  } catch (const std::bad_alloc&) {  // a lost device gives no memory either
    if (!run.endIfLost()) throw;
    return false;
  }
}

}  // namespace longhand::kernels::checks
