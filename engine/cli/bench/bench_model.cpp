#include "engine/cli/bench/bench_model.h"

#include <algorithm>
#include <iomanip>
#include <iostream>
#include <optional>
#include <random>
#include <sstream>

#include "engine/base/error.h"
#include "engine/cache/cache_json.h"
#include "engine/cli/bench/bench_statistics.h"
#include "engine/cli/engine_setup.h"
#include "engine/cli/output.h"
#include "engine/session/step_cost.h"

#include <nlohmann/json.hpp>

namespace longhand::engine::cli {
namespace {

constexpr std::int64_t kWarmUpPrompt = 8;
constexpr std::int64_t kWarmUpTokens = 2;

/// One cache at one depth, over all rounds.
struct BenchRow {
  std::int64_t depth = 0;
  NamedCache cache;
  std::vector<double> prefillRates;  // tokens/s
  std::vector<double> prefillPercents;
  std::vector<double> firstTokenSeconds;
  std::vector<double> decodeRates;  // tokens/s
  std::vector<double> decodePercents;
  double prefillMultiplyAdds = 0.0;  // of all tokens
  DecodeBytes decodeBytes;           // of a token in the middle of those decoded
  MemoryUse use;
  std::uint64_t residentBytes = 0;
};

DecodeBytes meanOf(const DecodeBytes& a, const DecodeBytes& b) {
  return {(a.weights + b.weights) / 2, (a.weightScales + b.weightScales) / 2,
          (a.kvCodes + b.kvCodes) / 2, (a.kvScales + b.kvScales) / 2, (a.kvExact + b.kvExact) / 2};
}

/// The same tokens for every run; none of them special.
std::vector<std::int32_t> randomTokens(std::int64_t count, std::int64_t vocabSize) {
  constexpr std::int64_t kFirstOrdinary = 3;  // after <unk>, <s>, </s>
  std::mt19937 random(1);
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(count));
  const auto nOrdinary =
      static_cast<std::uint32_t>(std::max<std::int64_t>(1, vocabSize - kFirstOrdinary));
  const auto first = static_cast<std::int32_t>(std::min(kFirstOrdinary, vocabSize - 1));
  for (std::int32_t& token : tokens)
    token = first + static_cast<std::int32_t>(random() % nOrdinary);
  return tokens;
}

class Bench {
 public:
  Bench(const BenchOptions& options, Interrupt& interrupt) : options_(options), scope_(interrupt) {
    const std::int64_t maxDepth = *std::max_element(options.depths.begin(), options.depths.end());
    ModelOptions model = options.model;
    const std::int64_t mostNew =
        std::max({options.prefillTokens, options.decodeTokens, kWarmUpPrompt + kWarmUpTokens});
    model.contextLength = std::max(model.contextLength, maxDepth + mostNew + 1);
    engine_ = load(model);
    newTokens_ = randomTokens(std::max(kWarmUpPrompt, options.prefillTokens),
                              engine_->modelConfig().vocabSize);
    generate(std::span(newTokens_).first(kWarmUpPrompt),
             kWarmUpTokens);  // wakes threads and memory
    probe_.emplace([this] { return engine_->measureMachineRates(); }, engine_->usesHostMemory());
  }

  const Engine& engine() const { return *engine_; }
  MachineSpeed machine() const { return probe_->median(); }

  /// One round: caches are measured in turn, so that all of them meet the same machine.
  void measure(BenchRow& row) {
    engine_->configureCache(row.cache.config, engine_->contextLength());
    GenerateResult prefill;
    GenerateResult decode;
    Work prefillWork;
    Work decodeWork;
    if (options_.prefillTokens > 0) prefillWork = measurePrefill(row, prefill);
    if (options_.decodeTokens > 0) decodeWork = measureDecode(row, decode);
    const MachineSpeed machine = probe_->bracket();
    if (options_.prefillTokens > 0) {
      row.prefillPercents.push_back(100.0 * floorSeconds(machine, prefillWork) /
                                    prefill.prefillSeconds);
    }
    if (options_.decodeTokens > 0) {
      row.decodePercents.push_back(100.0 * floorSeconds(machine, decodeWork) *
                                   decode.decodeTokensPerSecond);
    }
    const MemoryReport memory = engine_->memory();
    row.use = memory.use;
    row.residentBytes = std::max(row.residentBytes, memory.device.processBytes);
  }

 private:
  std::unique_ptr<Engine> load(const ModelOptions& model) const {
    if (options_.shape.empty()) return loadEngine(model, options_.cache, scope_.stop());
    const ModelConfig config = shapeConfig(options_.shape);
    return Engine::loadRandom(config, engineOptions(model, options_.cache, config), 1,
                              scope_.stop());
  }

  /// Returns what the prefill must do.
  Work measurePrefill(BenchRow& row, GenerateResult& result) {
    engine_->fillCacheRandomly(row.depth, 1, scope_.stop());
    const std::span<const std::int32_t> cached = engine_->cachedTokens();
    std::vector<std::int32_t> prompt(cached.begin(), cached.end());
    prompt.insert(prompt.end(), newTokens_.begin(), newTokens_.begin() + options_.prefillTokens);
    result = generate(prompt, 1);
    const std::int64_t nComputed = result.promptTokens - result.reusedTokens;
    row.prefillMultiplyAdds =
        prefillMultiplyAdds(engine_->modelConfig(), result.reusedTokens, nComputed);
    row.prefillRates.push_back(result.prefillTokensPerSecond);
    row.firstTokenSeconds.push_back(result.firstTokenSeconds);
    const auto bytes = static_cast<double>(engine_->decodeBytes().total());
    return {.bytes = bytes, .multiplyAdds = row.prefillMultiplyAdds, .footprintBytes = bytes};
  }

  /// Returns what decoding a token must do.
  Work measureDecode(BenchRow& row, GenerateResult& result) {
    engine_->fillCacheRandomly(row.depth, 1, scope_.stop());
    const std::span<const std::int32_t> cached = engine_->cachedTokens();
    std::vector<std::int32_t> prompt(cached.begin(), cached.end());
    if (prompt.empty()) prompt.push_back(newTokens_.front());  // there is no decode without
    const DecodeBytes before = engine_->decodeBytes();
    result = generate(prompt, options_.decodeTokens + 1);
    row.decodeBytes = meanOf(before, engine_->decodeBytes());
    row.decodeRates.push_back(result.decodeTokensPerSecond);
    const auto bytes = static_cast<double>(row.decodeBytes.total());
    return {.bytes = bytes, .multiplyAdds = 0.0, .footprintBytes = bytes};
  }

  GenerateResult generate(std::span<const std::int32_t> prompt, std::int64_t nGenerated) {
    GenerateOptions options;
    options.sampler.temperature = 0.0;
    options.maxTokens = nGenerated;
    options.ignoresEndOfText = true;
    GenerateObserver observer;
    observer.prefill = showPrefillProgress;
    GenerateResult result = engine_->generate(prompt, options, observer, scope_.stop());
    if (result.stopReason == StopReason::kCancelled) {
      throw Error(ErrorCode::kCancelled, "Stopped before all was measured.");
    }
    return result;
  }

  const BenchOptions& options_;
  InterruptScope scope_;
  std::unique_ptr<Engine> engine_;
  std::vector<std::int32_t> newTokens_;  // [at least prefillTokens]
  std::optional<RateProbe> probe_;       // as long as the engine
};

nlohmann::json sampleJson(const std::vector<double>& values) {
  const Sample sample = sampleOf(values);
  return {{"median", sample.median}, {"lowest", sample.lowest}, {"highest", sample.highest}};
}

/// null where there is no floor.
nlohmann::json percentJson(const std::vector<double>& percents) {
  const double median = sampleOf(percents).median;
  return median > 0.0 ? nlohmann::json(median) : nlohmann::json();
}

nlohmann::json rowJson(const BenchRow& row, const BenchOptions& options) {
  const DecodeBytes& read = row.decodeBytes;
  nlohmann::json json = {{"depth", row.depth},
                         {"cache", row.cache.name},
                         {"bytes", memoryJson(row.use)},
                         {"resident_bytes", row.residentBytes}};
  json.update(writeCacheConfig(row.cache.config));
  if (options.prefillTokens > 0) {
    const double rate = sampleOf(row.prefillRates).median;
    json["prefill_tokens_per_second"] = rate;
    json["prefill_rounds"] = sampleJson(row.prefillRates);
    json["prefill_multiply_adds"] = row.prefillMultiplyAdds;
    json["prefill_multiply_adds_per_second"] =
        row.prefillMultiplyAdds * rate / static_cast<double>(options.prefillTokens);
    json["prefill_percent_of_floor"] = percentJson(row.prefillPercents);
    json["first_token_seconds"] = sampleOf(row.firstTokenSeconds).median;
  }
  if (options.decodeTokens > 0) {
    const double rate = sampleOf(row.decodeRates).median;
    json["decode_tokens_per_second"] = rate;
    json["decode_rounds"] = sampleJson(row.decodeRates);
    json["decode_bytes"] = {{"weights", read.weights},  {"weight_scales", read.weightScales},
                            {"kv_codes", read.kvCodes}, {"kv_scales", read.kvScales},
                            {"kv_exact", read.kvExact}, {"total", read.total()}};
    json["decode_bytes_per_second"] = static_cast<double>(read.total()) * rate;
    json["decode_percent_of_floor"] = percentJson(row.decodePercents);
  }
  return json;
}

std::string decimal(double value, int decimals) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(decimals) << value;
  return text.str();
}

/// "12.34 +-1.2%", or "-" for what was not measured.
std::string rateText(const std::vector<double>& values) {
  if (values.empty()) return "-";
  const Sample sample = sampleOf(values);
  return decimal(sample.median, sample.median < 100.0 ? 2 : 1) + " +-" +
         decimal(sample.spreadPercent(), 1) + "%";
}

std::string percentText(const std::vector<double>& values) {
  return values.empty() ? "-" : percentOfFloorText(sampleOf(values).median);
}

void printHeader() {
  std::cout << "    depth           cache    prefill tokens/s  %floor     decode tokens/s  MB/token"
               "    GB/s  %floor   KV GiB  resident GiB\n";
}

void printRow(const BenchRow& row) {
  const std::uint64_t cacheBytes = row.use[MemoryCategory::kKvCodes] +
                                   row.use[MemoryCategory::kKvScales] +
                                   row.use[MemoryCategory::kKvExact];
  const auto read = static_cast<double>(row.decodeBytes.total());
  std::cout << std::setw(9) << row.depth << std::setw(16) << row.cache.name << std::setw(20)
            << rateText(row.prefillRates) << std::setw(8) << percentText(row.prefillPercents)
            << std::setw(20) << rateText(row.decodeRates) << std::setw(10)
            << decimal(read * 1e-6, 1) << std::setw(8)
            << decimal(read * sampleOf(row.decodeRates).median * 1e-9, 1) << std::setw(8)
            << percentText(row.decodePercents) << std::setw(9) << formatGiB(cacheBytes)
            << std::setw(14) << formatGiB(row.residentBytes) << std::endl;
}

void printBytes(const std::vector<BenchRow>& rows) {
  std::cout << "\nRead for each decoded token, MB:\n"
               "    depth           cache  weights  scales  KV codes  KV scales  KV exact\n";
  const auto megabytes = [](std::uint64_t bytes) {
    return decimal(static_cast<double>(bytes) * 1e-6, 2);
  };
  for (const BenchRow& row : rows) {
    const DecodeBytes& read = row.decodeBytes;
    std::cout << std::setw(9) << row.depth << std::setw(16) << row.cache.name << std::setw(9)
              << megabytes(read.weights) << std::setw(8) << megabytes(read.weightScales)
              << std::setw(10) << megabytes(read.kvCodes) << std::setw(11)
              << megabytes(read.kvScales) << std::setw(10) << megabytes(read.kvExact) << '\n';
  }
}

}  // namespace

void benchModel(const BenchOptions& options, Interrupt& interrupt) {
  const std::vector<NamedCache> caches = options.namedCaches();
  Bench bench(options, interrupt);
  if (!options.isJson) {
    std::cout << bench.engine().modelConfig().name << ", weights "
              << weightFormatName(bench.engine().weightFormat()) << ", "
              << bench.engine().backendDescription() << '\n';
    if (const std::string& why = bench.engine().whyNotDevice(); !why.empty()) {
      std::cout << "No graphics card is used: " << why << '\n';
    }
    printHeader();
  }
  std::vector<BenchRow> rows;
  for (const std::int64_t depth : options.depths) {
    std::vector<BenchRow> atDepth;
    for (const NamedCache& cache : caches) {
      BenchRow& row = atDepth.emplace_back();
      row.depth = depth;
      row.cache = cache;
    }
    for (std::int64_t round = 0; round < options.rounds; ++round) {
      for (BenchRow& row : atDepth) bench.measure(row);
    }
    for (BenchRow& row : atDepth) {
      if (!options.isJson) printRow(row);
      rows.push_back(std::move(row));
    }
  }
  if (!options.isJson) {
    if (options.decodeTokens > 0) printBytes(rows);
    std::cout << '\n' << machineLine(bench.machine()) << '\n';
    return;
  }
  nlohmann::json rowsJson = nlohmann::json::array();
  for (const BenchRow& row : rows) rowsJson.push_back(rowJson(row, options));
  printJson({{"model", bench.engine().modelConfig().name},
             {"weights", weightFormatName(bench.engine().weightFormat())},
             {"backend", bench.engine().backendDescription()},
             {"why_not_device", bench.engine().whyNotDevice()},
             {"prefill_tokens", options.prefillTokens},
             {"decode_tokens", options.decodeTokens},
             {"rounds", options.rounds},
             {"machine", machineJson(bench.machine())},
             {"rows", rowsJson}});
}

}  // namespace longhand::engine::cli
