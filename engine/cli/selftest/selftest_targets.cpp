// What issue 5 of the project's plan wants of a real GPU, beside what was predicted and measured.

#include <string>
#include <vector>

#include "engine/cli/selftest/selftest_tables.h"

namespace longhand::engine::cli {
namespace {

struct Target {
  std::string what;
  double wanted = 0.0;
  double predicted = 0.0;  // 0: not predicted
  double measured = 0.0;   // 0: not measured
  const char* unit = "";
  bool isLimit = false;  // at most, instead of at least

  bool isMetBy(double value) const { return isLimit ? value <= wanted : value >= wanted; }
};

double ratio(double numerator, double denominator) {
  return numerator > 0.0 && denominator > 0.0 ? numerator / denominator : 0.0;
}

template <typename Map, typename Key>
double valueOf(const Map& map, const Key& key) {
  const auto found = map.find(key);
  return found == map.end() ? 0.0 : found->second;
}

double attentionOf(const SelftestFindings& f, int nbits, std::int64_t depth) {
  return valueOf(f.attentionSeconds, std::pair(nbits, depth));
}

double decodeOf(const SelftestFindings& f, const char* weights, int nbits, std::int64_t depth) {
  return valueOf(f.tokensPerSecond, std::tuple(std::string(weights), nbits, depth));
}

std::vector<Target> targetsOf(const SelftestOptions& options, const SelftestFindings& predicted,
                              const SelftestFindings& measured) {
  const std::int64_t deepest = options.depths.back();
  const std::string behind = " at " + std::to_string(deepest) + " tokens";
  std::vector<Target> targets;
  const auto add = [&](const std::string& what, double wanted, const char* unit, const auto& value,
                       bool isLimit = false) {
    targets.push_back({what, wanted, value(predicted), value(measured), unit, isLimit});
  };
  const auto faster = [&](int slowNbits, int nbits) {
    return [=](const SelftestFindings& f) {
      return ratio(attentionOf(f, slowNbits, deepest), attentionOf(f, nbits, deepest));
    };
  };
  add("NF4 matrix-vector products, of the copy rate", 80.0, "%",
      [](const SelftestFindings& f) { return f.nf4PercentOfCopy; });
  add("decode step at depth 0, NF4, of the copy rate", 70.0, "%",
      [](const SelftestFindings& f) { return f.decodePercentOfCopy; });
  add("F16 decode attention" + behind + ", of the copy rate", 80.0, "%",
      [](const SelftestFindings& f) { return f.halfAttentionPercentOfCopy; });
  add("int8 decode attention" + behind + ", against F16", 1.7, "x", faster(16, 8));
  add("int4 decode attention" + behind + ", against F16", 3.0, "x", faster(16, 4));
  add("int2 decode attention" + behind + ", against int4", 1.0, "x", faster(4, 2));
  add(std::string("prefill of the longest prompt, of the matrix rate") +
          (measured.isPrefillEstimated ? " (estimated)" : ""),
      40.0, "%", [](const SelftestFindings& f) { return f.prefillPercentOfRate; });
  for (const std::int64_t depth : options.depths) {
    add("NF4 + int4 decode against F16 + F16, depth " + std::to_string(depth), 1.0, "x",
        [depth](const SelftestFindings& f) {
          return ratio(decodeOf(f, "nf4", 4, depth), decodeOf(f, "f16", 16, depth));
        });
  }
  if (options.model.name == "llama-2-7b" && deepest >= 100'000) {
    for (const auto& [nbits, gib] : {std::pair{4, 20.5}, std::pair{2, 14.5}}) {
      add(
          "memory of int" + std::to_string(nbits) + behind, gib, "GiB",
          [nbits = nbits](const SelftestFindings& f) { return valueOf(f.usedGiB, nbits); }, true);
    }
  }
  return targets;
}

std::string valueText(double value) {
  return value > 0.0 ? decimalText(value, 2, 10) : std::string(9, ' ') + "-";
}

}  // namespace

void SelftestTables::compareWithTargets() {
  report_.heading("Targets (of a graphics card)\n" + padded("what", 64) + "  wanted predicted" +
                  (isMeasured_ ? "  measured" : ""));
  for (const Target& t : targetsOf(options_, predicted_, measured_)) {
    const double value = isMeasured_ ? t.measured : t.predicted;
    const bool isKnown = value > 0.0;
    const bool isMet = isKnown && t.isMetBy(value);
    const char* const verdict = isMeasured_ ? (!isKnown ? "not measured"
                                               : isMet  ? "met"
                                                        : "MISSED")
                                : !isKnown  ? "not predicted"
                                : isMet     ? "expected"
                                            : "MISS EXPECTED";
    const std::string wanted = (t.isLimit ? "<= " : ">= ") + decimalText(t.wanted, 1);
    nlohmann::json numbers = {{"what", t.what},
                              {"wanted", t.wanted},
                              {"is_limit", t.isLimit},
                              {"predicted", t.predicted},
                              {"unit", t.unit},
                              {"is_predicted", t.predicted > 0.0},
                              {"is_miss_predicted", t.predicted > 0.0 && !t.isMetBy(t.predicted)}};
    if (isMeasured_) {
      numbers["measured"] = t.measured;
      numbers["is_measured"] = isKnown;
      numbers["is_met"] = isMet;
    }
    report_.row("targets", std::move(numbers),
                padded(t.what, 64) + padded(wanted, 8) + valueText(t.predicted) +
                    (isMeasured_ ? valueText(t.measured) : "") + " " + padded(t.unit, 5) + verdict);
  }
}

}  // namespace longhand::engine::cli
