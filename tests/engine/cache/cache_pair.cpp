#include "tests/engine/cache/cache_pair.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/checks/kv_integer_error.h"
#include "kernels/cpu/base/cpu_path.h"
#include "kernels/cpu/kv/kv_store.h"
#include "kernels/half.h"
#include "kernels/page_layout.h"

namespace longhand::tests {
namespace {

using kernels::DataType;
using kernels::ExactSpan;
using kernels::checks::integerError;

/// Spread evenly over -1..1 by a hash (splitmix64).
float evenNumber(std::uint64_t stream, std::uint64_t index) {
  std::uint64_t x = (index + 1) * 0x9e3779b97f4a7c15U + stream * 0xd1342543de82ef95U;
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
  x ^= x >> 31U;
  return static_cast<float>(x >> 40U) * 0x1p-23F - 1.0F;
}

}  // namespace

CachePair::CachePair(const kernels::AttentionShape& shape, const engine::KvCacheConfig& config,
                     kernels::CpuPath path)
    : CachePair(shape, config, kernels::createCpuBackend({1, path})) {
  hasIntegers_ = kernels::kvKernelsFor(kernels::resolvePath(path)).attendsByIntegers &&
                 shape.nHeads / shape.nKvHeads <= kernels::kMaxDirectQueries;
}

CachePair::CachePair(const kernels::AttentionShape& shape, const engine::KvCacheConfig& config,
                     std::unique_ptr<kernels::Backend> backend)
    : shape_(shape),
      inner_(std::move(backend)),
      backend_(*inner_),
      cache_(backend_, ledger_, shape, 1, config),
      twin_(shape, config) {}

std::vector<float> CachePair::exactKeys(std::int64_t token, unsigned text) const {
  std::vector<float> row(static_cast<std::size_t>(shape_.nKvHeads * shape_.headDim));
  for (std::size_t i = 0; i < row.size(); ++i) {
    const std::uint64_t index = static_cast<std::uint64_t>(token) * row.size() + i;
    row[i] = 1.7F * evenNumber(3 * text + 1, index) + (i % 7 == 3 ? 6.0F : 0.0F);
  }
  return row;
}

std::vector<float> CachePair::exactValues(std::int64_t token, unsigned text) const {
  std::vector<float> row(static_cast<std::size_t>(shape_.nKvHeads * shape_.headDim));
  for (std::size_t i = 0; i < row.size(); ++i) {
    const std::uint64_t index = static_cast<std::uint64_t>(token) * row.size() + i;
    row[i] = 0.8F * evenNumber(3 * text + 2, index) + static_cast<float>(i % 5) * 0.25F;
  }
  return row;
}

/// A score is a float sum of headDim products, or of two such sums where codes are read in place.
/// Its rounding errors add up to about e = 2^-24 |q| |k| / sqrt(headDim) with |q| = sqrt(headDim),
/// so e = 2^-24 |k|, and move the output by up to 2 e max|v|; probabilities and exp add a few
/// 2^-24 max|v| (as in tests/kernels/cpu/cpu_kv_test.cpp). Where codes meet integers, what that
/// rounds comes on top.
double CachePair::tolerance(const kernels::MatrixView& query, float scoreScale) const {
  const double keyRms = std::sqrt(keySquares_ / static_cast<double>(nKeys_));
  const double keyNorm = std::sqrt(static_cast<double>(shape_.headDim)) * keyRms;
  const double ofFloats = 0x1p-24 * (2.0 * keyNorm + 8.0) * static_cast<double>(largestValue_);
  if (!hasIntegers_) return ofFloats;
  return ofFloats + integerError(shape_, scoreScale, query, cache_.view(0))
                        .tolerance(static_cast<double>(largestValue_));
}

bool CachePair::feed(std::int64_t count, std::int64_t nQueries, unsigned text) {
  const std::int64_t width = shape_.nKvHeads * shape_.headDim;
  const std::int64_t first = twin_.length();
  const DataType type = cache_.config().exactType;
  std::vector<float> keys;
  std::vector<float> values;
  for (std::int64_t token = first; token < first + count; ++token) {
    const std::vector<float> key = exactKeys(token, text);
    const std::vector<float> value = exactValues(token, text);
    keys.insert(keys.end(), key.begin(), key.end());
    values.insert(values.end(), value.begin(), value.end());
  }
  for (const float key : keys) keySquares_ += static_cast<double>(key) * static_cast<double>(key);
  nKeys_ += std::ssize(keys);
  for (const float value : values) largestValue_ = std::max(largestValue_, std::fabs(value));

  const std::int64_t capacity = count + 3;  // what lies behind must not be read
  const std::size_t partBytes = kernels::bytesOf(type, capacity * width);
  std::vector<std::byte> memory(2 * partBytes, std::byte{0xff});
  const ExactSpan chunk{type, memory.data(), memory.data() + partBytes, capacity, count};
  backend_.storeExact(shape_, {keys.data(), count, width, width},
                      {values.data(), count, width, width}, chunk, 0);
  for (std::int64_t row = std::max<std::int64_t>(0, count - nQueries); row < count; ++row) {
    if (!compareAttention(keys, values, chunk, row, text)) return false;
  }
  cache_.reserve(first + count);
  cache_.beginChunk(count);
  cache_.append(0, chunk);
  cache_.commitChunk();
  for (std::int64_t i = 0; i < count; ++i) {
    const auto from = static_cast<std::size_t>(i * width);
    twin_.add(std::span(keys).subspan(from, static_cast<std::size_t>(width)),
              std::span(values).subspan(from, static_cast<std::size_t>(width)));
  }
  if (cache_.length() != twin_.length() || cache_.packedTokens() != twin_.packedTokens()) {
    failure_ = "of " + std::to_string(twin_.length()) + " tokens " +
               std::to_string(cache_.packedTokens()) + " are packed, not " +
               std::to_string(twin_.packedTokens());
    return false;
  }
  return true;
}

bool CachePair::compareAttention(const std::vector<float>& keys, const std::vector<float>& values,
                                 const ExactSpan& chunk, std::int64_t row, unsigned text) {
  const std::int64_t cols = shape_.nHeads * shape_.headDim;
  std::vector<float> query(static_cast<std::size_t>(cols));
  for (std::size_t i = 0; i < query.size(); ++i) {
    const auto index = static_cast<std::uint64_t>(twin_.length() + row) * query.size() + i;
    query[i] = 1.7F * evenNumber(3 * text + 3, index);  // mean square 1
  }
  std::vector<float> output(query.size(), std::nanf(""));
  const float scoreScale = 1.0F / std::sqrt(static_cast<float>(shape_.headDim));
  backend_.attend(shape_, scoreScale, {query.data(), 1, cols, cols}, cache_.view(0), chunk, row,
                  {output.data(), 1, cols, cols});
  const std::vector<double> expected = twin_.attend(query, keys, values, row + 1);
  const double allowed = tolerance({query.data(), 1, cols, cols}, scoreScale);
  for (std::size_t i = 0; i < output.size(); ++i) {
    if (std::abs(static_cast<double>(output[i]) - expected[i]) <= allowed) continue;
    failure_ = "token " + std::to_string(twin_.length() + row) + ", output " + std::to_string(i) +
               ": " + std::to_string(output[i]) + ", not " + std::to_string(expected[i]);
    return false;
  }
  return true;
}

void CachePair::truncate(std::int64_t n) {
  cache_.truncate(n);
  twin_.truncate(n);
}

std::vector<float> CachePair::read() const {
  const std::int64_t width = shape_.nKvHeads * shape_.headDim;
  const kernels::KvView view = cache_.view(0);
  std::vector<float> all;
  // Rows [nKvHeads, capacity, headDim] of floats, turned into rows of tokens.
  const auto addTokens = [&](const float* keys, const float* values, std::int64_t capacity,
                             std::int64_t nTokens) {
    for (std::int64_t token = 0; token < nTokens; ++token) {
      for (const float* part : {keys, values}) {
        for (std::int64_t head = 0; head < shape_.nKvHeads; ++head) {
          const float* row = part + (head * capacity + token) * shape_.headDim;
          all.insert(all.end(), row, row + shape_.headDim);
        }
      }
    }
  };
  const auto addSpan = [&](const ExactSpan& span) {
    std::vector<float> numbers(static_cast<std::size_t>(2 * span.nTokens * width));
    const auto number = [&](const std::byte* from, std::int64_t index) {
      if (span.type == DataType::kF32) {
        float value = 0.0F;
        std::memcpy(&value, from + 4 * index, 4);
        return value;
      }
      std::uint16_t half = 0;
      std::memcpy(&half, from + 2 * index, 2);
      return kernels::halfToFloat(half);
    };
    for (std::int64_t head = 0; head < shape_.nKvHeads; ++head) {
      for (std::int64_t i = 0; i < span.nTokens * shape_.headDim; ++i) {
        const std::int64_t from = head * span.tokenCapacity * shape_.headDim + i;
        const auto to = static_cast<std::size_t>(head * span.nTokens * shape_.headDim + i);
        numbers[to] = number(span.keys, from);
        numbers[numbers.size() / 2 + to] = number(span.values, from);
      }
    }
    addTokens(numbers.data(), numbers.data() + numbers.size() / 2, span.nTokens, span.nTokens);
  };

  const std::size_t nSinkSpans = cache_.config().sinkLength > 0 && !view.exact.empty() ? 1 : 0;
  if (nSinkSpans > 0) addSpan(view.exact[0]);
  for (std::int64_t i = 0; i < view.nPages; ++i) {
    const kernels::PageRef& page = view.pages[i];
    std::vector<float> numbers(static_cast<std::size_t>(2 * page.nTokens * width));
    std::byte* bytes = std::as_writable_bytes(std::span(numbers)).data();
    const ExactSpan unpacked{DataType::kF32, bytes, bytes + numbers.size() / 2 * sizeof(float),
                             page.nTokens, 0};
    inner_->unpackPage(shape_, page, unpacked);
    addTokens(numbers.data(), numbers.data() + numbers.size() / 2, page.nTokens, page.nTokens);
  }
  for (std::size_t i = nSinkSpans; i < view.exact.size(); ++i) addSpan(view.exact[i]);
  return all;
}

bool CachePair::readsAsTheTwin() {
  const std::int64_t width = shape_.nKvHeads * shape_.headDim;
  const std::vector<float> actual = read();
  if (std::ssize(actual) != 2 * width * twin_.length()) {
    failure_ = std::to_string(std::ssize(actual) / (2 * width)) + " tokens, not " +
               std::to_string(twin_.length());
    return false;
  }
  for (std::int64_t token = 0; token < twin_.length(); ++token) {
    const float* row = actual.data() + token * 2 * width;
    const bool isEqual = std::equal(row, row + width, twin_.keys(token).begin()) &&
                         std::equal(row + width, row + 2 * width, twin_.values(token).begin());
    if (isEqual) continue;
    failure_ = "token " + std::to_string(token) + " of " + std::to_string(twin_.length()) +
               (twin_.isPacked(token) ? " (packed)" : " (exact)") + " reads otherwise";
    return false;
  }
  return true;
}

std::vector<std::uint64_t> CachePair::pageHashes() const {
  const kernels::KvView view = cache_.view(0);
  std::vector<std::uint64_t> hashes;
  for (std::int64_t i = 0; i < view.nPages; ++i) {
    const kernels::PageRef& page = view.pages[i];
    std::uint64_t hash = 0xcbf29ce484222325U;
    const std::size_t bytes =
        kernels::pageLayout(page.format, shape_.nKvHeads, shape_.headDim).totalBytes;
    for (std::size_t b = 0; b < bytes; ++b) {
      hash = (hash ^ std::to_integer<std::uint64_t>(page.data[b])) * 0x100000001b3U;
    }
    hashes.push_back(hash);
  }
  return hashes;
}

}  // namespace longhand::tests
