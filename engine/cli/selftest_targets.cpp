// What issue 5 of the project's plan wants of a real GPU, beside what was measured.

#include <string>
#include <vector>

#include "engine/cli/selftest_parts.h"

namespace longhand::engine::cli {
namespace {

struct Target {
  std::string what;
  double wanted = 0.0;
  double measured = 0.0;  // 0: not measured
  const char* unit = "";
  bool isLimit = false;  // at most, instead of at least
};

double ratio(double numerator, double denominator) {
  return numerator > 0.0 && denominator > 0.0 ? numerator / denominator : 0.0;
}

template <typename Map, typename Key>
double valueOf(const Map& map, const Key& key) {
  const auto found = map.find(key);
  return found == map.end() ? 0.0 : found->second;
}

std::vector<Target> targetsOf(const SelftestRun& run) {
  const SelftestFindings& f = run.findings;
  const std::int64_t deepest = run.options.depths.back();
  const std::string behind = " at " + std::to_string(deepest) + " tokens";
  const auto attention = [&](int nbits) {
    return valueOf(f.attentionSeconds, std::pair(nbits, deepest));
  };
  std::vector<Target> targets = {
      {"NF4 matrix-vector products, of the copy rate", 80.0, f.nf4PercentOfCopy, "%"},
      {"decode step at depth 0, NF4, of the copy rate", 70.0, f.decodePercentOfCopy, "%"},
      {"F16 decode attention" + behind + ", of the copy rate", 80.0, f.halfAttentionPercentOfCopy,
       "%"},
      {"int8 decode attention" + behind + ", against F16", 1.7, ratio(attention(16), attention(8)),
       "x"},
      {"int4 decode attention" + behind + ", against F16", 3.0, ratio(attention(16), attention(4)),
       "x"},
      {"int2 decode attention" + behind + ", against int4", 1.0, ratio(attention(4), attention(2)),
       "x"},
      {std::string("prefill of the longest prompt, of the matrix rate") +
           (f.isPrefillEstimated ? " (estimated)" : ""),
       40.0, f.prefillPercentOfRate, "%"}};
  for (const std::int64_t depth : run.options.depths) {
    const double fast = valueOf(f.tokensPerSecond, std::tuple(std::string("nf4"), 4, depth));
    const double exact = valueOf(f.tokensPerSecond, std::tuple(std::string("f16"), 16, depth));
    targets.push_back({"NF4 + int4 decode against F16 + F16, depth " + std::to_string(depth), 1.0,
                       ratio(fast, exact), "x"});
  }
  if (run.options.model.name == "llama-2-7b" && deepest >= 100'000) {
    targets.push_back({"memory of int4" + behind, 20.5, valueOf(f.usedGiB, 4), "GiB", true});
    targets.push_back({"memory of int2" + behind, 14.5, valueOf(f.usedGiB, 2), "GiB", true});
  }
  return targets;
}

}  // namespace

void compareWithTargets(const SelftestRun& run) {
  run.report.heading("Targets (of a graphics card)\n" + padded("what", 64) + "  wanted  measured");
  for (const Target& t : targetsOf(run)) {
    const bool isMeasured = t.measured > 0.0;
    const bool isMet = isMeasured && (t.isLimit ? t.measured <= t.wanted : t.measured >= t.wanted);
    const char* const verdict = !isMeasured ? "not measured" : isMet ? "met" : "MISSED";
    const std::string wanted = (t.isLimit ? "<= " : ">= ") + decimalText(t.wanted, 1);
    run.report.row("targets",
                   {{"what", t.what},
                    {"wanted", t.wanted},
                    {"is_limit", t.isLimit},
                    {"measured", t.measured},
                    {"unit", t.unit},
                    {"is_measured", isMeasured},
                    {"is_met", isMet}},
                   padded(t.what, 64) + padded(wanted, 9) +
                       (isMeasured ? decimalText(t.measured, 2, 8) : std::string(8, ' ')) + " " +
                       padded(t.unit, 5) + verdict);
  }
}

}  // namespace longhand::engine::cli
