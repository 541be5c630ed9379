#include "kernels/checks/kv_store_check.h"

#include <cmath>
#include <string>
#include <vector>

#include "kernels/checks/device_copies.h"
#include "kernels/checks/kv_scene.h"
#include "kernels/checks/test_matrix.h"
#include "kernels/half.h"
#include "kernels/page_layout.h"
#include "kernels/reference/reference_backend.h"
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

/// Number i of a span's keys.
float readExactNumber(const ExactSpan& span, std::int64_t i) {
  const void* const numbers = span.keys;
  if (span.type == DataType::kF32) return static_cast<const float*>(numbers)[i];
  return halfToFloat(static_cast<const std::uint16_t*>(numbers)[i]);
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

CheckResult checkRopeAndStore(Backend& backend, const AttentionShape& shape, DataType type,
                              std::int64_t nTokens) {
  constexpr std::int64_t kFirst = 2;
  const std::int64_t headDim = shape.headDim;
  const std::int64_t half = headDim / 2;
  const bool isAligned = nTokens % 2 == 0;
  Random random(static_cast<unsigned>(headDim + nTokens));
  const auto rows = [&](std::int64_t cols) {
    TestMatrix matrix(nTokens, cols, isAligned ? 4 : 3, isAligned ? 0 : 1);
    matrix.fill(random);
    return matrix;
  };
  TestMatrix queries = rows(shape.nHeads * headDim);
  TestMatrix keys = rows(shape.nKvHeads * headDim);
  TestMatrix values = rows(shape.nKvHeads * headDim);
  TestMatrix cosSin(nTokens, headDim);
  for (std::int64_t t = 0; t < nTokens; ++t) {
    for (std::int64_t i = 0; i < half; ++i) {
      const float angle = static_cast<float>(random() % 1000) * 0.01F;
      cosSin.at(t, i) = std::cos(angle);
      cosSin.at(t, half + i) = std::sin(angle);
    }
  }
  KvScene scene(shape, 8);
  const std::int64_t capacity = nTokens + 2 * kFirst;
  const ExactSpan stored = scene.poisonedSpan(type, capacity);
  const ExactSpan expected = scene.poisonedSpan(type, capacity);
  TestMatrix turnedQueries = queries;
  TestMatrix turnedKeys = keys;
  DeviceCopies copies(backend);
  backend.ropeAndStore(shape, copies.copy(queries), copies.copy(keys), copies.copy(values),
                       copies.copy(cosSin).data, copies.copy(shape, stored), kFirst);
  copies.fetch(queries);
  copies.fetch(stored);
  const std::unique_ptr<Backend> reference = createReferenceBackend();
  reference->rope(turnedQueries.view(), headDim, cosSin.view().data);
  reference->rope(turnedKeys.view(), headDim, cosSin.view().data);
  reference->storeExact(shape, turnedKeys.view(), values.view(), expected, kFirst);

  // Of numbers around 1: two products and a sum of a few roundings (elementwise_check.cpp).
  constexpr double kTolerance = 16.0 * kUnitRoundoff;
  const std::string name = textOf(headDim, type, nTokens);
  CheckResult result =
      compare(queries, turnedQueries, [](std::int64_t, std::int64_t) { return kTolerance; });
  if (!result.isGood()) result.problem = name + ", queries: " + result.problem;
  const std::size_t bytes = bytesOf(type, shape.nKvHeads * capacity * headDim);
  if (!sameBytes(stored.values, expected.values, bytes)) result.add(differs(name + ", values"));
  // A key may be the next half where it lies between two.
  for (std::int64_t i = 0; i < shape.nKvHeads * capacity * headDim; ++i) {
    const auto got = static_cast<double>(readExactNumber(stored, i));
    const auto wanted = static_cast<double>(readExactNumber(expected, i));
    if (std::isnan(got) && std::isnan(wanted)) continue;
    const double unit = type == DataType::kF16 ? 0x1p-10 * std::abs(wanted) + 0x1p-24 : 0.0;
    if (std::abs(got - wanted) <= unit + kTolerance) continue;
    result.add({HUGE_VAL, name + ", key number " + std::to_string(i) + " is " +
                              std::to_string(got) + " instead of " + std::to_string(wanted)});
  }
  return result;
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
