#include "engine/cli/selftest/selftest_tables.h"

#include "engine/cli/options.h"

namespace longhand::engine::cli {
namespace {

constexpr double kGiB = 0x1p30;

double perSecond(double amount, double seconds) { return seconds > 0.0 ? amount / seconds : 0.0; }

nlohmann::json predictionJson(const Prediction& predicted) {
  const double seconds = predicted.seconds();
  if (seconds <= 0.0) return {{"predicted_seconds", nullptr}, {"predicted_limit", nullptr}};
  return {{"predicted_seconds", seconds}, {"predicted_limit", predicted.limit()}};
}

nlohmann::json sampleJson(const Sample& seconds) {
  return {{"median", seconds.median}, {"lowest", seconds.lowest}, {"highest", seconds.highest}};
}

std::string gibText(std::uint64_t bytes) {
  return decimalText(static_cast<double>(bytes) / kGiB, 2) + " GiB";
}

}  // namespace

double SelftestTables::percentOfCopy(double bytesPerSecond) const {
  return 100.0 * perSecond(bytesPerSecond, speed_.copyBytesPerSecond);
}

double SelftestTables::percentOfRate(double operationsPerSecond) const {
  return 100.0 * perSecond(operationsPerSecond, speed_.halfOperationsPerSecond);
}

/// The last columns: beside a measurement the predicted value, then what limits it.
std::string SelftestTables::predictedText(double value, int decimals,
                                          const Prediction& predicted) const {
  if (predicted.seconds() <= 0.0) return isMeasured_ ? "         -" : "  -";
  return (isMeasured_ ? decimalText(value, decimals, 12) : std::string()) + "  " +
         predicted.limit();
}

void SelftestTables::begin(const std::string& heading) {
  if (heading == heading_) return;
  heading_ = heading;
  isHeadingDue_ = true;
}

/// A line of the table; before the first one, its heading.
void SelftestTables::write(const char* section, nlohmann::json numbers, const std::string& line) {
  if (isHeadingDue_) report_.heading(heading_);
  isHeadingDue_ = false;
  report_.row(section, std::move(numbers), line);
}

void SelftestTables::beginStages() {
  begin((isMeasured_ ? "B. Stages, against a measured copy and a measured matrix product\n"
                     : "B. Stages\n") +
        padded("stage", 22) + padded("format", 12) + padded("size", 18) + "tokens" +
        (isMeasured_ ? "          us     +-%" : "        MB     GFLOP          us") +
        "     GB/s  %copy  TFLOP/s  %rate" + (isMeasured_ ? "  pred. us" : "") + "  limited by");
}

void SelftestTables::note(SelftestFindings& findings, const StageRow& row, double seconds) const {
  if (seconds <= 0.0) return;
  const double percent = percentOfCopy(row.bytes / seconds);
  if (row.stage == "matmul" && row.format == "nf4" && row.size == "a layer" && row.tokens == 1) {
    findings.nf4PercentOfCopy = percent;
  }
  if (row.tokens != 1 || row.nbits == 0) return;
  findings.attentionSeconds[{row.nbits, row.depth}] = seconds;
  if (row.nbits == 16 && row.depth == options_.depths.back()) {
    findings.halfAttentionPercentOfCopy = percent;
  }
}

void SelftestTables::add(const StageRow& row, const Sample* measured) {
  const double predicted = row.predicted.seconds();
  const double seconds = measured != nullptr ? measured->median : predicted;
  const double bytesPerSecond = perSecond(row.bytes, seconds);
  const double operationsPerSecond = perSecond(row.operations, seconds);
  nlohmann::json numbers = {{"stage", row.stage}, {"format", row.format},
                            {"size", row.size},   {"tokens", row.tokens},
                            {"bytes", row.bytes}, {"operations", row.operations}};
  numbers.update(predictionJson(row.predicted));
  if (measured != nullptr) {
    numbers["seconds"] = sampleJson(*measured);
    numbers["bytes_per_second"] = bytesPerSecond;
    numbers["operations_per_second"] = operationsPerSecond;
    numbers["percent_of_copy"] = percentOfCopy(bytesPerSecond);
    numbers["percent_of_matrix_rate"] = percentOfRate(operationsPerSecond);
    note(measured_, row, seconds);
  }
  note(predicted_, row, predicted);
  write("stages", std::move(numbers),
        padded(row.stage, 22) + padded(row.format, 12) + padded(row.size, 18) +
            decimalText(static_cast<double>(row.tokens), 0, 6) +
            (isMeasured_ ? ""
                         : decimalText(row.bytes * 1e-6, 3, 10) +
                               decimalText(row.operations * 1e-9, 3, 10)) +
            decimalText(seconds * 1e6, 1, 12) +
            (measured != nullptr ? decimalText(measured->spreadPercent(), 1, 8) : "") +
            decimalText(bytesPerSecond * 1e-9, 1, 9) +
            decimalText(percentOfCopy(bytesPerSecond), 1, 7) +
            decimalText(operationsPerSecond * 1e-12, 2, 9) +
            decimalText(percentOfRate(operationsPerSecond), 1, 7) +
            predictedText(predicted * 1e6, 1, row.predicted));
}

void SelftestTables::beginDecode(WeightFormat weights) {
  begin("C. " + options_.model.name + ", " + weightFormatName(weights) +
        " weights: decode\n    depth   cache    tokens/s" + (isMeasured_ ? "     +-%" : "") +
        "  MB/token     GB/s  %copy" + (isMeasured_ ? "       pred." : "") + "  limited by");
}

void SelftestTables::add(const DecodeRow& row, const MeasuredSteps* measured) {
  const std::string weights = weightFormatName(row.weights);
  const double predicted = perSecond(1.0, row.predicted.seconds());
  const double rate = measured != nullptr ? perSecond(1.0, measured->seconds.median) : predicted;
  const double percent = percentOfCopy(row.bytes * rate);
  nlohmann::json numbers = {
      {"weights", weights}, {"bits", row.nbits}, {"depth", row.depth}, {"bytes", row.bytes}};
  numbers.update(predictionJson(row.predicted));
  if (predicted > 0.0) numbers["predicted_tokens_per_second"] = predicted;
  if (measured != nullptr) {
    numbers["tokens_per_second"] = rate;
    numbers["steps"] = measured->count;
    numbers["seconds"] = sampleJson(measured->seconds);
    numbers["bytes_per_second"] = row.bytes * rate;
    numbers["percent_of_copy"] = percent;
    numbers["peak_bytes"] = measured->peakBytes;
  }
  const auto note = [&](SelftestFindings& findings, double tokensPerSecond) {
    if (tokensPerSecond <= 0.0) return;
    findings.tokensPerSecond[{weights, row.nbits, row.depth}] = tokensPerSecond;
    if (row.depth == 0 && row.weights == WeightFormat::kNf4 && row.nbits == 4) {
      findings.decodePercentOfCopy = percentOfCopy(row.bytes * tokensPerSecond);
    }
  };
  if (measured != nullptr) note(measured_, rate);
  note(predicted_, predicted);
  write("decode", std::move(numbers),
        decimalText(static_cast<double>(row.depth), 0, 9) + decimalText(row.nbits, 0, 8) +
            decimalText(rate, 2, 12) +
            (measured != nullptr ? decimalText(measured->seconds.spreadPercent(), 1, 8) : "") +
            decimalText(row.bytes * 1e-6, 1, 10) + decimalText(row.bytes * rate * 1e-9, 1, 9) +
            decimalText(percent, 1, 7) + predictedText(predicted, 2, row.predicted));
}

void SelftestTables::beginPrefill(WeightFormat weights) {
  begin("   " + options_.model.name + ", " + weightFormatName(weights) +
        " weights: prefill\n    depth   cache   tokens        s    tokens/s  TFLOP/s" + "  %rate" +
        (isMeasured_ ? "     pred. s" : "") + "  limited by");
}

void SelftestTables::add(const PrefillRow& row, const MeasuredPrompt& measured) {
  const std::string weights = weightFormatName(row.weights);
  const auto tokens = static_cast<double>(row.tokens);
  const double predicted = row.predicted.seconds();
  const double seconds = measured.seconds > 0.0 ? measured.seconds : predicted;
  const double operationsPerSecond = perSecond(row.operations, seconds);
  const double percent = percentOfRate(operationsPerSecond);
  nlohmann::json numbers = {{"weights", weights},
                            {"bits", row.nbits},
                            {"depth", row.depth},
                            {"tokens", row.tokens},
                            {"operations", row.operations}};
  numbers.update(predictionJson(row.predicted));
  if (predicted > 0.0) numbers["predicted_tokens_per_second"] = tokens / predicted;
  if (measured.seconds > 0.0) {
    numbers["seconds"] = seconds;
    numbers["tokens_per_second"] = tokens / seconds;
    numbers["operations_per_second"] = operationsPerSecond;
    numbers["percent_of_matrix_rate"] = percent;
    numbers["is_estimated"] = measured.isEstimated;
  }
  if (row.depth == 0) {  // of all that there are, the longest prompt
    if (measured.seconds > 0.0) {
      measured_.prefillPercentOfRate = percent;
      measured_.isPrefillEstimated = measured.isEstimated;
    }
    predicted_.prefillPercentOfRate = percentOfRate(perSecond(row.operations, predicted));
  }
  write("prefill", std::move(numbers),
        decimalText(static_cast<double>(row.depth), 0, 9) + decimalText(row.nbits, 0, 8) +
            decimalText(tokens, 0, 9) + decimalText(seconds, 2, 9) +
            decimalText(perSecond(tokens, seconds), 1, 12) +
            decimalText(operationsPerSecond * 1e-12, 2, 9) + decimalText(percent, 1, 7) +
            predictedText(predicted, 2, row.predicted) +
            (measured.isEstimated ? "  estimated from sections" : ""));
}

void SelftestTables::add(const MemoryRow& row) {
  const std::int64_t depth = options_.depths.back();
  if (row.weights == WeightFormat::kNf4) {
    measured_.usedGiB[row.nbits] = static_cast<double>(row.usedBytes) / kGiB;
    predicted_.usedGiB[row.nbits] = static_cast<double>(row.plannedUsedBytes) / kGiB;
  }
  nlohmann::json numbers = {{"weights", weightFormatName(row.weights)},
                            {"bits", row.nbits},
                            {"depth", depth},
                            {"planned_bytes", row.plannedTakenBytes},
                            {"planned_used_bytes", row.plannedUsedBytes}};
  std::string line = "   memory at " + std::to_string(depth) + " tokens of " +
                     std::to_string(row.nbits) + " bits: ";
  const std::string planned = "planned " + gibText(row.plannedTakenBytes) +
                              (isMeasured_ ? ", in all " : ", with the driver's share ") +
                              gibText(row.plannedUsedBytes);
  if (row.takenBytes > 0) {
    numbers["peak_bytes"] = row.takenBytes - row.ownBytes;
    numbers["own_bytes"] = row.ownBytes;
    numbers["used_bytes"] = row.usedBytes;
    line +=
        gibText(row.takenBytes) + " taken at most, " + gibText(row.usedBytes) + " in use in all; ";
  }
  write("memory", std::move(numbers), line + planned);
}

// compareWithTargets() is in selftest_targets.cpp.

}  // namespace longhand::engine::cli
