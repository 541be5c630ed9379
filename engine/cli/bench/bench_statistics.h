#pragma once
// Several measurements of one thing: the middle one, and how far apart they lie.

#include <algorithm>
#include <vector>

namespace longhand::engine::cli {

/// Of ten values and more, the lowest and highest tenth are left out: a machine does other things.
struct Sample {
  double median = 0.0;
  double lowest = 0.0;
  double highest = 0.0;

  /// Half of the distance from the lowest to the highest, in per cent of the median.
  double spreadPercent() const { return median > 0.0 ? 50.0 * (highest - lowest) / median : 0.0; }
};

/// Zeros of no values.
inline Sample sampleOf(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  const double median =
      values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2.0;
  const std::size_t outliers = values.size() / 10;
  return {median, values[outliers], values[values.size() - 1 - outliers]};
}

}  // namespace longhand::engine::cli
