// A self-test's parts b and c without a device: what a card should reach.

#include <algorithm>
#include <ostream>

#include "engine/cli/options.h"
#include "engine/cli/selftest/selftest_tables.h"

namespace longhand::engine::cli {
namespace {

class CardPrediction {
 public:
  CardPrediction(const Card& card, const SelftestOptions& options, SelftestReport& report)
      : card_(card),
        options_(options),
        report_(report),
        rows_(options, speedOf(card)),
        tables_(report, options, /*isMeasured=*/false) {
    tables_.setSpeed(speedOf(card));
  }

  void run() {
    if (has('b')) predictStages();
    if (has('c')) {
      predictModel(WeightFormat::kNf4, {kDecodeNbits.begin(), kDecodeNbits.end()}, {2, 4});
      predictModel(WeightFormat::kF16, {16}, {});
    }
    if (has('b') || has('c')) tables_.compareWithTargets();
  }

 private:
  bool has(char part) const { return options_.parts.find(part) != std::string::npos; }
  void predictStages();
  void predictModel(WeightFormat weights, const std::vector<int>& decodeNbits,
                    const std::vector<int>& prefillNbits);
  void predictPrefill(WeightFormat weights, int nbits);
  /// False, and says so, where it needs more than the card has.
  bool fits(const std::string& what, const PlanRequest& request);

  const Card& card_;
  const SelftestOptions& options_;
  SelftestReport& report_;
  SelftestRows rows_;
  SelftestTables tables_;
};

void CardPrediction::predictStages() {
  tables_.beginStages();
  tables_.add(rows_.copy(static_cast<double>(options_.workingSetBytes)));
  for (const WeightFormat format : kSelftestFormats) {
    for (const std::int64_t nTokens : rows_.productTokens()) {
      for (const ProductRow& product : rows_.products(format, nTokens)) tables_.add(product.row);
    }
    for (const StageRow& row : rows_.fusedProducts(format)) tables_.add(row);
  }
  for (const std::int64_t depth : options_.depths) {
    if (depth == 0) continue;
    for (const auto& [keyNbits, valueNbits] : kSelftestCaches) {
      tables_.add(rows_.attention(keyNbits, valueNbits, depth, 1));
      const std::int64_t nQueries = rows_.prefillQueries(keyNbits, valueNbits);
      if (nQueries > 0) tables_.add(rows_.attention(keyNbits, valueNbits, depth, nQueries));
    }
  }
  for (const auto& [nbits, solver] : kSelftestPackings) tables_.add(rows_.packing(nbits, solver));
}

bool CardPrediction::fits(const std::string& what, const PlanRequest& request) {
  const std::uint64_t needed = planMemory(request).total();
  if (needed <= card_.usableBytes()) return true;
  const auto gib = [](std::uint64_t bytes) {
    return decimalText(static_cast<double>(bytes) * 0x1p-30, 2);
  };
  report_.leaveOut(what, "it does not fit: " + gib(needed) + " GiB are needed, and of " +
                             gib(card_.memoryBytes) + " GiB the driver leaves " +
                             gib(card_.usableBytes()));
  return false;
}

void CardPrediction::predictModel(WeightFormat weights, const std::vector<int>& decodeNbits,
                                  const std::vector<int>& prefillNbits) {
  tables_.beginDecode(weights);
  for (const int nbits : decodeNbits) {
    for (const std::int64_t depth : options_.depths) {
      const std::string what = "decode with " + weightFormatName(weights) + " weights and " +
                               std::to_string(nbits) + " bits at depth " + std::to_string(depth);
      if (fits(what, rows_.plan(weights, nbits, depth + kMostSteps + 8, 1, card_.backendBytes()))) {
        tables_.add(rows_.decode(weights, nbits, depth));
      }
    }
  }
  if (prefillNbits.empty() || options_.prefillTokens == 0) return;
  tables_.beginPrefill(weights);
  for (const int nbits : prefillNbits) predictPrefill(weights, nbits);
}

void CardPrediction::predictPrefill(WeightFormat weights, int nbits) {
  const std::int64_t deepest = options_.depths.back();
  const std::int64_t nNew = options_.prefillTokens;
  const std::int64_t behind = std::max<std::int64_t>(0, deepest - nNew);
  const PlanRequest section =
      rows_.plan(weights, nbits, std::max(deepest, nNew) + 8, nNew, card_.backendBytes());
  const std::string what = "prefill with " + weightFormatName(weights) + " weights and " +
                           std::to_string(nbits) + " bits";
  const bool isPossible = fits(what, section);
  if (isPossible) tables_.add(rows_.prefill(weights, nbits, 0, nNew));
  if (behind == 0) return;
  if (isPossible) tables_.add(rows_.prefill(weights, nbits, behind, nNew));
  MemoryRow memory{weights, nbits};  // also where it does not fit
  memory.plannedTakenBytes = planMemory(section).total();
  memory.plannedUsedBytes = memory.plannedTakenBytes + card_.memoryBytes - card_.usableBytes();
  tables_.add(memory);
  // The longest prompt, in chunks as the engine chooses them.
  if (isPossible && nbits == 4) tables_.add(rows_.prefill(weights, nbits, 0, deepest));
}

}  // namespace

void predictSelftest(const Card& card, const SelftestOptions& options, std::ostream& table) {
  std::ostream noProgress(nullptr);
  SelftestReport report(table, noProgress, options.jsonFile, options.budgetSeconds);
  const DeviceSpeed speed = speedOf(card);
  table << card.title << ", by its data sheet, for shape " << options.model.name
        << "; nothing here is measured\n"
        << decimalText(static_cast<double>(card.memoryBytes) * 0x1p-30, 1) << " GiB; "
        << decimalText(card.bytesPerSecond * 1e-9, 0) << " GB/s, of which a copy gets "
        << decimalText(speed.copyBytesPerSecond * 1e-9, 0) << "; "
        << decimalText(card.halfOperationsPerSecond * 1e-12, 1)
        << " TFLOP/s in halves, of which the best product gets "
        << decimalText(speed.halfOperationsPerSecond * 1e-12, 1) << "; " << card.nMultiprocessors
        << " multiprocessors of " << decimalText(card.clockHz * 1e-9, 2) << " GHz" << std::endl;
  report.note("predicted_for", card.name);
  report.note("shape", options.model.name);
  report.note("device_bytes", card.memoryBytes);
  report.note("copy_bytes_per_second", speed.copyBytesPerSecond);
  report.note("half_operations_per_second", speed.halfOperationsPerSecond);
  CardPrediction(card, options, report).run();
  report.finish("Predicted from counted bytes, operations and instructions; nothing was measured.");
}

}  // namespace longhand::engine::cli
