#pragma once
// What a comparison with the slow twin found.

#include <algorithm>
#include <string>
#include <utility>

namespace longhand::kernels::checks {

struct CheckResult {
  /// The largest error over what rounding explains: at most 1 when all is well. 0 where bytes are
  /// compared.
  double worst = 0.0;
  std::string problem;  // what went wrong, in words; empty when nothing did

  bool isGood() const { return problem.empty(); }
  /// Takes the worse of both, and the first problem.
  void add(CheckResult other) {
    worst = std::max(worst, other.worst);
    if (problem.empty()) problem = std::move(other.problem);
  }
};

}  // namespace longhand::kernels::checks
