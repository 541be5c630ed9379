#include "engine/graph/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <span>

namespace longhand::engine {
namespace {

std::vector<double> inverseFrequencies(double theta, std::int64_t headDim) {
  std::vector<double> result(static_cast<std::size_t>(headDim / 2));
  for (std::size_t i = 0; i < result.size(); ++i) {
    result[i] = std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(headDim));
  }
  return result;
}

/// theta' = theta (factor L / M - (factor - 1))^(d / (d - 2)), L = max(sequence, M).
double dynamicTheta(const RopeConfig& config, std::int64_t headDim, std::int64_t sequenceLength) {
  const auto trained = static_cast<double>(config.maxPositionEmbeddings);
  const double length = std::max(static_cast<double>(sequenceLength), trained);
  const auto dim = static_cast<double>(headDim);
  return config.theta *
         std::pow(config.factor * length / trained - (config.factor - 1.0), dim / (dim - 2.0));
}

/// YaRN, section 3.2: which pair of channels turns `rotations` times within the original length.
double yarnChannel(const RopeConfig& config, double dim, double originalLength, double rotations) {
  return dim * std::log(originalLength / (rotations * 2.0 * std::numbers::pi)) /
         (2.0 * std::log(config.theta));
}

RopeFrequencies yarnFrequencies(const RopeConfig& config, std::int64_t headDim) {
  const auto dim = static_cast<double>(headDim);
  double factor = config.factor;
  auto originalLength = static_cast<double>(config.maxPositionEmbeddings);
  if (config.originalMaxPositionEmbeddings > 0) {
    originalLength = static_cast<double>(config.originalMaxPositionEmbeddings);
    factor = static_cast<double>(config.maxPositionEmbeddings) / originalLength;
  }
  const double low =
      std::max(0.0, std::floor(yarnChannel(config, dim, originalLength, config.betaFast)));
  double high =
      std::min(dim - 1.0, std::ceil(yarnChannel(config, dim, originalLength, config.betaSlow)));
  if (high == low) high += 0.001;  // as the authors' code: no division by zero

  RopeFrequencies result;
  result.inverse = inverseFrequencies(config.theta, headDim);
  for (std::size_t i = 0; i < result.inverse.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    result.inverse[i] *= ramp / factor + (1.0 - ramp);
  }
  result.attentionFactor =
      config.attentionFactor.value_or(factor <= 1.0 ? 1.0 : 0.1 * std::log(factor) + 1.0);
  return result;
}

}  // namespace

RopeFrequencies ropeFrequencies(const RopeConfig& config, std::int64_t headDim,
                                std::int64_t sequenceLength) {
  RopeFrequencies result;
  switch (config.scaling) {
    case RopeScaling::kNone:
      result.inverse = inverseFrequencies(config.theta, headDim);
      break;
    case RopeScaling::kLinear:
      result.inverse = inverseFrequencies(config.theta, headDim);
      for (double& each : result.inverse) each /= config.factor;
      break;
    case RopeScaling::kDynamic:
      result.inverse = inverseFrequencies(dynamicTheta(config, headDim, sequenceLength), headDim);
      break;
    case RopeScaling::kYarn:
      result = yarnFrequencies(config, headDim);
      break;
  }
  return result;
}

std::vector<float> ropeRows(const RopeFrequencies& frequencies, std::int64_t firstPosition,
                            std::int64_t nRows) {
  const std::size_t half = frequencies.inverse.size();
  std::vector<float> rows(static_cast<std::size_t>(nRows) * 2 * half);
  for (std::int64_t r = 0; r < nRows; ++r) {
    const std::span<float> row =
        std::span(rows).subspan(static_cast<std::size_t>(r) * 2 * half, 2 * half);
    const auto position = static_cast<double>(firstPosition + r);
    for (std::size_t i = 0; i < half; ++i) {
      const double angle = position * frequencies.inverse[i];
      row[i] = static_cast<float>(std::cos(angle) * frequencies.attentionFactor);
      row[half + i] = static_cast<float>(std::sin(angle) * frequencies.attentionFactor);
    }
  }
  return rows;
}

RopeTable::RopeTable(kernels::Backend& backend, MemoryLedger& ledger, const RopeConfig& config,
                     std::int64_t headDim)
    : backend_(backend), ledger_(ledger), config_(config), headDim_(headDim) {}

void RopeTable::prepare(std::int64_t firstPosition, std::int64_t nRows,
                        std::int64_t sequenceLength) {
  const std::uint64_t bytes = ropeTableBytes(headDim_, nRows);
  // Shrinks too: a long prompt's table is of no use to the tokens that follow one by one.
  if (bytes != buffer_.sizeBytes()) {
    buffer_ = BackendBuffer();
    buffer_ = BackendBuffer(backend_, ledger_, MemoryCategory::kWorkspace, bytes);
  }
  const RopeFrequencies frequencies = ropeFrequencies(config_, headDim_, sequenceLength);
  constexpr std::int64_t kRowsAtOnce = 1024;  // bounds the host copy
  for (std::int64_t first = 0; first < nRows; first += kRowsAtOnce) {
    const std::vector<float> rows =
        ropeRows(frequencies, firstPosition + first, std::min(kRowsAtOnce, nRows - first));
    const std::span<const std::byte> source = std::as_bytes(std::span(rows));
    backend_.upload(buffer_.data() + ropeTableBytes(headDim_, first), source.data(), source.size());
  }
  firstPosition_ = firstPosition;
}

const float* RopeTable::row(std::int64_t position) const {
  return buffer_.floats() + (position - firstPosition_) * headDim_;
}

std::uint64_t ropeTableBytes(std::int64_t headDim, std::int64_t chunkTokens) {
  return static_cast<std::uint64_t>(headDim * chunkTokens) * sizeof(float);
}

}  // namespace longhand::engine
