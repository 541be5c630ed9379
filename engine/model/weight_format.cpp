#include "engine/model/weight_format.h"

#include "kernels/rounding.h"

namespace longhand::engine {
namespace {

using kernels::ceilDivide;
using kernels::DataType;

std::size_t alignUp(std::size_t bytes) {
  constexpr std::size_t kAlignment = 64;
  return kernels::roundUp(bytes, kAlignment);
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
    case DataType::kInt8:
      return WeightFormat::kInt8;
    case DataType::kNf4:
      break;
  }
  return target.doubleQuantization ? WeightFormat::kNf4 : WeightFormat::kNf4NoDoubleQuantization;
}

WeightTarget chooseTarget(WeightFormat format, const WeightSpec& spec, const WeightTarget& source) {
  if (spec.role == WeightRole::kNorm) return {DataType::kF32};
  const bool isTable = spec.role == WeightRole::kEmbedding || spec.role == WeightRole::kHead;
  const bool isLargeHead =
      spec.role == WeightRole::kHead && spec.rows * spec.cols >= kLargeHeadValues;
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
    case WeightFormat::kInt8:
      break;
  }
  if (isLargeHead) return {DataType::kInt8};
  if (isTable) return is16Bit ? source : WeightTarget{DataType::kF16};
  if (format == WeightFormat::kInt8) return {DataType::kInt8};
  return {DataType::kNf4, format == WeightFormat::kNf4};
}

WeightFormat formatOfSpec(WeightFormat format, const WeightSpec& spec, bool hasQuantizedLinear) {
  const bool follows =
      format == WeightFormat::kAuto && hasQuantizedLinear && spec.role == WeightRole::kHead;
  return follows ? WeightFormat::kNf4 : format;
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
  layout.dataBytes = kernels::bytesOf(target.type, count);
  layout.totalBytes = layout.dataBytes;
  if (!kernels::isQuantized(target.type)) return layout;
  static_assert(kernels::kInt8BlockSize == kernels::kNf4BlockSize);
  layout.nBlocks = ceilDivide(count, kernels::kNf4BlockSize);
  const auto nBlocks = static_cast<std::size_t>(layout.nBlocks);
  layout.absmaxOffset = alignUp(layout.dataBytes);
  if (!target.doubleQuantization) {
    layout.totalBytes = layout.absmaxOffset + nBlocks * sizeof(float);
    return layout;
  }
  layout.nNestedBlocks = ceilDivide(layout.nBlocks, kernels::kNf4NestedBlockSize);
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
  if (!kernels::isQuantized(target.type)) return view;
  if (target.type == DataType::kInt8) {
    view.scales = floatsAt(memory + layout.absmaxOffset);
  } else if (target.doubleQuantization) {
    view.absmaxCodes = reinterpret_cast<const std::uint8_t*>(memory + layout.absmaxOffset);
    view.nestedAbsmax = floatsAt(memory + layout.nestedOffset);
  } else {
    view.absmax = floatsAt(memory + layout.absmaxOffset);
  }
  return view;
}

}  // namespace longhand::engine
