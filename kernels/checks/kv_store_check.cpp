#include "kernels/checks/kv_store_check.h"

#include <cmath>
#include <string>
#include <vector>

#include "kernels/checks/device_copies.h"
#include "kernels/checks/kv_scene.h"
#include "kernels/page_layout.h"
#include "kernels/reference/reference_kv.h"

namespace longhand::kernels::checks {
namespace {

constexpr std::int64_t kKvHeads = 2;

std::string textOf(std::int64_t headDim, const PageFormat& format) {
  return "head_dim " + std::to_string(headDim) + ", bits " + std::to_string(format.keyNbits) + "/" +
         std::to_string(format.valueNbits) + ", group " + std::to_string(format.groupSize);
}

CheckResult differs(const std::string& what) { return {HUGE_VAL, what + ": bytes differ"}; }

bool sameSpans(const AttentionShape& shape, const ExactSpan& a, const ExactSpan& b) {
  const std::size_t bytes = bytesOf(a.type, shape.nKvHeads * a.tokenCapacity * shape.headDim);
  return sameBytes(a.keys, b.keys, bytes) && sameBytes(a.values, b.values, bytes);
}

CheckResult compareSpans(const AttentionShape& shape, const ExactSpan& a, const ExactSpan& b,
                         const std::string& what) {
  return sameSpans(shape, a, b) ? CheckResult{} : differs(what);
}

std::string textOf(std::int64_t headDim, DataType type, std::int64_t nTokens) {
  return "head_dim " + std::to_string(headDim) + (type == DataType::kF16 ? ", F16" : ", F32") +
         ", " + std::to_string(nTokens) + " tokens";
}

}  // namespace

CheckResult checkStoreExact(Backend& backend, std::int64_t headDim, DataType type,
                            std::int64_t nTokens) {
  KvScene scene({2 * kKvHeads, kKvHeads, headDim}, 5);
  const std::int64_t cols = kKvHeads * headDim;
  const std::int64_t stride = cols + 5;
  std::vector<float> keys = scene.randomRows(nTokens, cols, stride, 3.0F);
  std::vector<float> values = scene.randomRows(nTokens, cols, stride, 1.0e-6F);  // subnormal
  keys[0] = 65519.0F;
  keys[1] = 1.0e6F;  // infinity in F16
  const ExactSpan expected = scene.poisonedSpan(type, nTokens + 4);
  const ExactSpan stored = scene.poisonedSpan(type, nTokens + 4);
  storeExactReference(scene.shape(), {keys.data(), nTokens, cols, stride},
                      {values.data(), nTokens, cols, stride}, expected, 2);
  DeviceCopies copies(backend);
  const auto there = [&](std::vector<float>& rows) -> MatrixView {
    auto* const bytes = static_cast<std::byte*>(static_cast<void*>(rows.data()));
    void* const copy = copies.copy(bytes, rows.size() * sizeof(float));
    return {static_cast<float*>(copy), nTokens, cols, stride};
  };
  backend.storeExact(scene.shape(), there(keys), there(values), copies.copy(scene.shape(), stored),
                     2);
  copies.fetch(stored);
  return compareSpans(scene.shape(), stored, expected, textOf(headDim, type, nTokens));
}

CheckResult checkCopyExact(Backend& backend, std::int64_t headDim, DataType type,
                           std::int64_t nTokens) {
  KvScene scene({2 * kKvHeads, kKvHeads, headDim}, 6);
  const ExactSpan source = scene.randomSpan(type, nTokens + 3, nTokens + 7);
  const ExactSpan expected = scene.poisonedSpan(type, nTokens + 5);
  const ExactSpan copied = scene.poisonedSpan(type, nTokens + 5);
  copyExactReference(scene.shape(), source, 2, expected, 1, nTokens);
  DeviceCopies copies(backend);
  backend.copyExact(scene.shape(), copies.copy(scene.shape(), source), 2,
                    copies.copy(scene.shape(), copied), 1, nTokens);
  copies.fetch(copied);
  return compareSpans(scene.shape(), copied, expected, textOf(headDim, type, nTokens));
}

CheckResult checkPackPage(Backend& backend, std::int64_t headDim, const PageFormat& format,
                          QuantSolver solver) {
  KvScene scene({kKvHeads, kKvHeads, headDim}, 9);
  const std::int64_t group = format.groupSize;
  const ExactSpan source[] = {scene.randomSpan(DataType::kF16, 7, 20),
                              scene.randomSpan(DataType::kF32, group - 12, group),
                              scene.randomSpan(DataType::kF16, 5, 5)};
  const PageRef expected = scene.poisonedPage(format);
  const PageRef packed = scene.poisonedPage(format);
  packPageReference(scene.shape(), source, format, solver, expected.data);
  DeviceCopies copies(backend);
  std::vector<ExactSpan> sourceThere;
  for (const ExactSpan& span : source) sourceThere.push_back(copies.copy(scene.shape(), span));
  backend.packPage(scene.shape(), sourceThere, format, solver,
                   copies.copy(scene.shape(), packed).data);
  copies.fetch(packed.data);
  if (sameBytes(packed.data, expected.data, pageLayout(format, kKvHeads, headDim).totalBytes)) {
    return {};
  }
  return differs(textOf(headDim, format) + (solver == QuantSolver::kHqq ? ", hqq" : ", minmax"));
}

CheckResult checkUnpackPage(Backend& backend, std::int64_t headDim, const PageFormat& format,
                            DataType type) {
  KvScene scene({kKvHeads, kKvHeads, headDim}, 21);
  scene.addPage(format, format.groupSize - 13);
  const ExactSpan expected = scene.poisonedSpan(type, format.groupSize);
  const ExactSpan unpacked = scene.poisonedSpan(type, format.groupSize);
  unpackPageReference(scene.shape(), scene.history().pages[0], expected);
  DeviceCopies copies(backend);
  backend.unpackPage(scene.shape(), copies.copy(scene.shape(), scene.history().pages[0]),
                     copies.copy(scene.shape(), unpacked));
  copies.fetch(unpacked);
  return compareSpans(scene.shape(), unpacked, expected, textOf(headDim, format));
}

}  // namespace longhand::kernels::checks
