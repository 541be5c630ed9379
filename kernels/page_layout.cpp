#include "kernels/page_layout.h"

#include <algorithm>

#include "kernels/rounding.h"

namespace longhand::kernels {
namespace {

bool isNbits(std::uint8_t nbits) { return nbits == 16 || nbits == 8 || nbits == 4 || nbits == 2; }

}  // namespace

bool isValid(const PageFormat& format) {
  const bool groupOk = format.groupSize == 32 || format.groupSize == 64 || format.groupSize == 128;
  const bool exactOk = format.exactType == DataType::kF16 || format.exactType == DataType::kF32;
  const bool schemeOk =
      format.scheme == QuantScheme::kAsymmetric || format.scheme == QuantScheme::kSymmetric;
  return isNbits(format.keyNbits) && isNbits(format.valueNbits) && groupOk && exactOk && schemeOk;
}

PageLayout pageLayout(const PageFormat& format, std::int64_t nKvHeads, std::int64_t headDim) {
  const std::int64_t group = format.groupSize;
  const bool hasMins = format.scheme == QuantScheme::kAsymmetric;
  PageLayout layout;
  layout.valueGroupSize = std::min(group, headDim);
  layout.nValueGroups = ceilDivide(headDim, layout.valueGroupSize);

  std::size_t offset = 0;
  const auto place = [&offset](std::int64_t bytes) {
    const std::size_t start = offset;
    offset = roundUp(start + static_cast<std::size_t>(bytes), kPartAlignmentBytes);
    return start;
  };

  const auto exactBytes =
      static_cast<std::int64_t>(bytesOf(format.exactType, nKvHeads * group * headDim));
  if (format.keyNbits == 16) {
    layout.keyCodes = place(exactBytes);
  } else {
    layout.keyWords = ceilDivide(headDim, 32 / format.keyNbits);
    layout.keyCodes = place(nKvHeads * layout.keyWords * group * 4);
  }
  if (format.valueNbits == 16) {
    layout.valueCodes = place(exactBytes);
  } else {
    layout.valueWords = group / (32 / format.valueNbits);
    layout.valueCodes = place(nKvHeads * layout.valueWords * headDim * 4);
  }
  layout.codeBytes = offset;

  if (format.keyNbits != 16) {
    layout.keyScales = place(nKvHeads * headDim * 2);
    if (hasMins) layout.keyMins = place(nKvHeads * headDim * 2);
  }
  if (format.valueNbits != 16) {
    layout.valueScales = place(nKvHeads * layout.nValueGroups * group * 2);
    if (hasMins) layout.valueMins = place(nKvHeads * layout.nValueGroups * group * 2);
  }
  layout.totalBytes = offset;
  layout.scaleBytes = layout.totalBytes - layout.codeBytes;
  return layout;
}

}  // namespace longhand::kernels
