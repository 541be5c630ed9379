#include "tests/engine/cache/cache_sweep.h"

#include <memory>
#include <set>

#include "tests/engine/cache/cache_pair.h"

namespace longhand::tests {

std::string SweepCase::name() const {
  return "case " + std::to_string(index) + ": k" + std::to_string(config.keyNbits) + "v" +
         std::to_string(config.valueNbits) + " g" + std::to_string(config.groupSize) + " r" +
         std::to_string(config.residualLength) + " s" + std::to_string(config.sinkLength) +
         " heads " + std::to_string(shape.nHeads) + "/" + std::to_string(shape.nKvHeads) + " of " +
         std::to_string(shape.headDim);
}

std::vector<SweepCase> sweepCases() {
  std::vector<SweepCase> cases;
  for (const int keyNbits : {16, 8, 4, 2}) {
    for (const int valueNbits : {16, 8, 4, 2}) {
      for (const int group : {32, 64, 128}) {
        for (const std::int64_t residual : {0, 1, group - 1, group, 128, 256}) {
          for (const std::int64_t headDim : {8, 64, 80, 100, 128}) {
            for (const std::int64_t nHeads : {2, 4}) {
              const int index = static_cast<int>(cases.size());
              SweepCase& each = cases.emplace_back();
              each.index = index;
              each.shape = {nHeads, 2, headDim};
              each.config.keyNbits = keyNbits;
              each.config.valueNbits = valueNbits;
              each.config.groupSize = group;
              each.config.residualLength = residual;
              // Primes, so that each meets all of the others.
              each.config.sinkLength = index % 3 == 0 ? 0 : index % 3 == 1 ? 4 : 37;
              if (index % 7 == 3) each.config.scheme = kernels::QuantScheme::kSymmetric;
              if (index % 11 == 5) each.config.solver = kernels::QuantSolver::kHqq;
              if (index % 13 == 6) each.config.exactType = kernels::DataType::kF32;
            }
          }
        }
      }
    }
  }
  return cases;
}

namespace {

std::unique_ptr<CachePair> makePair(const SweepCase& each, const BackendMaker& create) {
  if (create) return std::make_unique<CachePair>(each.shape, each.config, create());

  constexpr kernels::CpuPath kPaths[] = {kernels::CpuPath::kAuto, kernels::CpuPath::kPortable,
                                         kernels::CpuPath::kAuto, kernels::CpuPath::kAvx2,
                                         kernels::CpuPath::kAuto};
  const kernels::CpuPath path = kPaths[each.index % 5];  // one the machine lacks falls back
  return std::make_unique<CachePair>(each.shape, each.config, path);
}

}  // namespace

std::string sweep(const SweepCase& each, std::int64_t nSteps, const BackendMaker& create) {
  const std::int64_t residual = each.config.residualLength;
  const std::int64_t group = each.config.groupSize;
  const std::set<std::int64_t> lengths = {residual - 1,         residual,         residual + 1,
                                          residual + group - 1, residual + group, 2 * residual};
  std::unique_ptr<CachePair> pair;
  for (const std::int64_t length : lengths) {
    const std::int64_t nTokens = each.config.sinkLength + length;
    if (nTokens < 1) continue;
    pair = makePair(each, create);
    if (!pair->feed(nTokens, 2) || !pair->readsAsTheTwin()) {
      return each.name() + ", prefill of " + std::to_string(nTokens) + ": " + pair->failure();
    }
  }
  // A chunk that reads history and is packed in part, then single tokens.
  if (!pair->feed(group + 5, 2)) return each.name() + ", second chunk: " + pair->failure();
  for (std::int64_t step = 0; step < nSteps; ++step) {
    if (!pair->feed(1)) return each.name() + ", decode: " + pair->failure();
  }
  if (!pair->readsAsTheTwin()) return each.name() + ", at the end: " + pair->failure();
  return {};
}

}  // namespace longhand::tests
