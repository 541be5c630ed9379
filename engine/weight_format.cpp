#include "engine/weight_format.h"

namespace longhand::engine {
namespace {

using kernels::DataType;

std::size_t alignUp(std::size_t bytes) {
  constexpr std::size_t kAlignment = 64;
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

std::int64_t ceilDivide(std::int64_t value, std::int64_t divisor) {
  return (value + divisor - 1) / divisor;
}

const float* floatsAt(const std::byte* memory) {
  return static_cast<const float*>(static_cast<const void*>(memory));
}

}  // namespace

WeightTarget targetOf(const kernels::WeightView& view) {
  return {view.type, view.type == DataType::kNf4 && view.absmax == nullptr};
}

WeightFormat formatOf(const WeightTarget& target) {
  switch (target.type) {
    case DataType::kF32:
      return WeightFormat::kF32;
    case DataType::kF16:
      return WeightFormat::kF16;
    case DataType::kBF16:
      return WeightFormat::kBF16;
    case DataType::kNf4:
      break;
  }
  return target.doubleQuantization ? WeightFormat::kNf4 : WeightFormat::kNf4NoDoubleQuantization;
}

WeightTarget chooseTarget(WeightFormat format, WeightRole role, const WeightTarget& source) {
  if (role == WeightRole::kNorm) return {DataType::kF32};
  const bool isTable = role == WeightRole::kEmbedding || role == WeightRole::kHead;
  // A table in either 16-bit type stays as it is: converting between them loses, and saves nothing.
  const bool is16Bit = source.type == DataType::kF16 || source.type == DataType::kBF16;
  switch (format) {
    case WeightFormat::kAuto:
      return source;
    case WeightFormat::kF32:
      return {DataType::kF32};
    case WeightFormat::kF16:
      return isTable && is16Bit ? source : WeightTarget{DataType::kF16};
    case WeightFormat::kBF16:
      return isTable && is16Bit ? source : WeightTarget{DataType::kBF16};
    case WeightFormat::kNf4:
    case WeightFormat::kNf4NoDoubleQuantization:
      break;
  }
  if (isTable) return is16Bit ? source : WeightTarget{DataType::kF16};
  return {DataType::kNf4, format == WeightFormat::kNf4};
}

bool autoQuantizes(const ModelConfig& config) {
  constexpr std::uint64_t kLimitBytes = std::uint64_t{1} << 30U;
  std::uint64_t bytes = 0;
  for (const WeightSpec& spec : weightSpecs(config)) {
    bytes += static_cast<std::uint64_t>(spec.rows) * static_cast<std::uint64_t>(spec.cols) * 2;
  }
  return bytes >= kLimitBytes;
}

WeightLayout weightLayout(const WeightTarget& target, std::int64_t rows, std::int64_t cols) {
  WeightLayout layout;
  const std::int64_t count = rows * cols;
  if (target.type != DataType::kNf4) {
    layout.dataBytes = kernels::bytesOf(target.type, count);
    layout.totalBytes = layout.dataBytes;
    return layout;
  }
  layout.nBlocks = ceilDivide(count, kernels::kNf4BlockSize);
  layout.nNestedBlocks = ceilDivide(layout.nBlocks, kernels::kNf4NestedBlockSize);
  const auto nBlocks = static_cast<std::size_t>(layout.nBlocks);
  layout.dataBytes = static_cast<std::size_t>(ceilDivide(count, 2));
  layout.absmaxOffset = alignUp(layout.dataBytes);
  if (!target.doubleQuantization) {
    layout.totalBytes = layout.absmaxOffset + nBlocks * sizeof(float);
    return layout;
  }
  layout.nestedOffset = alignUp(layout.absmaxOffset + nBlocks);
  layout.totalBytes =
      layout.nestedOffset + static_cast<std::size_t>(layout.nNestedBlocks) * sizeof(float);
  return layout;
}

kernels::WeightView viewOf(const WeightTarget& target, std::int64_t rows, std::int64_t cols,
                           const std::byte* memory) {
  const WeightLayout layout = weightLayout(target, rows, cols);
  kernels::WeightView view;
  view.type = target.type;
  view.rows = rows;
  view.cols = cols;
  view.data = memory;
  if (target.type != DataType::kNf4) return view;
  if (target.doubleQuantization) {
    view.absmaxCodes = reinterpret_cast<const std::uint8_t*>(memory + layout.absmaxOffset);
    view.nestedAbsmax = floatsAt(memory + layout.nestedOffset);
  } else {
    view.absmax = floatsAt(memory + layout.absmaxOffset);
  }
  return view;
}

}  // namespace longhand::engine
