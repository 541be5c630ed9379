#include "kernels/checks/kv_scene.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/half.h"
#include "kernels/page_layout.h"
#include "kernels/reference/reference_kv.h"

namespace longhand::kernels::checks {

PageFormat pageFormat(int keyNbits, int valueNbits, int groupSize, QuantScheme scheme,
                      DataType exactType) {
  return {static_cast<std::uint8_t>(keyNbits), static_cast<std::uint8_t>(valueNbits),
          static_cast<std::uint8_t>(groupSize), scheme, exactType};
}

bool sameBytes(const std::byte* a, const std::byte* b, std::size_t bytes) {
  return std::memcmp(a, b, bytes) == 0;
}

double largestErrorRatio(const std::vector<float>& output, const std::vector<float>& expected,
                         std::int64_t nRows, std::int64_t cols, std::int64_t stride,
                         double tolerance) {
  double worst = 0.0;
  for (std::int64_t row = 0; row < nRows; ++row) {
    for (std::int64_t col = 0; col < stride; ++col) {
      const auto index = static_cast<std::size_t>(row * stride + col);
      if (col >= cols) {
        if (!std::isnan(output[index])) return HUGE_VAL;  // wrote beyond the row
        continue;
      }
      const double difference =
          std::fabs(static_cast<double>(output[index]) - static_cast<double>(expected[index]));
      if (!(difference <= tolerance))
        return std::isnan(difference) ? HUGE_VAL : difference / tolerance;
      worst = std::max(worst, difference / tolerance);
    }
  }
  return worst;
}

KvScene::KvScene(const AttentionShape& shape, unsigned seed) : shape_(shape), random_(seed) {}

std::byte* KvScene::poisoned(std::size_t bytes) {
  auto& lines = memory_.emplace_back((bytes + sizeof(Line) - 1) / sizeof(Line));
  std::memset(lines.data(), 0xff, lines.size() * sizeof(Line));  // NaN in F16 and in F32
  return lines.data()->bytes;
}

ExactSpan KvScene::poisonedSpan(DataType type, std::int64_t capacity) {
  const std::size_t bytes = bytesOf(type, shape_.nKvHeads * capacity * shape_.headDim);
  ExactSpan span;
  span.type = type;
  span.tokenCapacity = capacity;
  span.keys = poisoned(std::max<std::size_t>(1, bytes));
  span.values = poisoned(std::max<std::size_t>(1, bytes));
  return span;
}

ExactSpan KvScene::randomSpan(DataType type, std::int64_t nTokens, std::int64_t capacity) {
  ExactSpan span = poisonedSpan(type, capacity);
  span.nTokens = nTokens;
  if (nTokens == 0) return span;
  const std::int64_t cols = shape_.nKvHeads * shape_.headDim;
  std::vector<float> keys = randomRows(nTokens, cols, cols, 1.0F);
  std::vector<float> values = randomRows(nTokens, cols, cols, 0.5F);
  for (std::int64_t t = 0; t < nTokens; ++t) {
    for (std::int64_t c = 0; c < cols; ++c) {
      float& key = keys[static_cast<std::size_t>(t * cols + c)];
      key = c % 7 == 3 ? 6.0F + key : key;  // outlier channels with an offset
      float& value = values[static_cast<std::size_t>(t * cols + c)];
      value += static_cast<float>(c % 5) * 0.25F;
      keySquares_ += static_cast<double>(key) * static_cast<double>(key);
      ++nKeys_;
      largestValue_ = std::max(largestValue_, std::fabs(value));
    }
  }
  storeExactReference(shape_, {keys.data(), nTokens, cols, cols},
                      {values.data(), nTokens, cols, cols}, span, 0);
  return span;
}

PageRef KvScene::poisonedPage(const PageFormat& format) {
  PageRef page;
  page.format = format;
  page.data = poisoned(pageLayout(format, shape_.nKvHeads, shape_.headDim).totalBytes);
  return page;
}

void KvScene::addPage(const PageFormat& format, int nTokens) {
  const std::int64_t group = format.groupSize;
  const PageLayout layout = pageLayout(format, shape_.nKvHeads, shape_.headDim);
  PageRef page = poisonedPage(format);
  page.nTokens = static_cast<std::uint16_t>(nTokens);
  const ExactSpan source = randomSpan(DataType::kF16, group, group);
  packPageReference(shape_, {&source, 1}, format, QuantSolver::kMinMax, page.data);

  const auto poison = [&](std::size_t part, std::int64_t rows, DataType type, std::int64_t width) {
    // Numbers of tokens [nTokens, group) in `rows` rows of [group, width].
    for (std::int64_t row = 0; part != kNoPart && row < rows; ++row) {
      std::memset(page.data + part + bytesOf(type, (row * group + nTokens) * width), 0xff,
                  bytesOf(type, (group - nTokens) * width));
    }
  };
  poison(layout.valueScales, shape_.nKvHeads * layout.nValueGroups, DataType::kF16, 1);
  poison(layout.valueMins, shape_.nKvHeads * layout.nValueGroups, DataType::kF16, 1);
  if (format.keyNbits == 16) {
    poison(layout.keyCodes, shape_.nKvHeads, format.exactType, shape_.headDim);
  }
  if (format.valueNbits == 16) {
    poison(layout.valueCodes, shape_.nKvHeads, format.exactType, shape_.headDim);
  }
  pages_.push_back(page);
  nPagedTokens_ += nTokens;
}

void KvScene::addSpan(DataType type, std::int64_t nTokens, std::int64_t capacity) {
  spans_.push_back(randomSpan(type, nTokens, capacity));
}

void KvScene::setChunk(DataType type, std::int64_t nTokens, std::int64_t capacity) {
  chunk_ = randomSpan(type, nTokens, capacity);
}

KvView KvScene::history() const {
  return {pages_.data(), std::ssize(pages_), nPagedTokens_, spans_};
}

double KvScene::keyRms() const { return std::sqrt(keySquares_ / static_cast<double>(nKeys_)); }

std::vector<float> KvScene::randomRows(std::int64_t rows, std::int64_t cols, std::int64_t stride,
                                       float size) {
  std::normal_distribution<float> normal;
  std::vector<float> result(static_cast<std::size_t>(rows * stride),
                            std::numeric_limits<float>::quiet_NaN());
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t col = 0; col < cols; ++col) {
      result[static_cast<std::size_t>(row * stride + col)] = size * normal(random_);
    }
  }
  return result;
}

}  // namespace longhand::kernels::checks
