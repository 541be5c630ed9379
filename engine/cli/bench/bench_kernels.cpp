#include "engine/cli/bench/bench_kernels.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <functional>
#include <iomanip>
#include <iostream>
#include <memory>
#include <sstream>
#include <utility>

#include "engine/backend_factory.h"
#include "engine/base/device_fault.h"
#include "engine/base/error.h"
#include "engine/base/throttle.h"
#include "engine/cache/kv_arena.h"
#include "engine/cache/random_cache.h"
#include "engine/cli/bench/bench_statistics.h"
#include "engine/cli/bench/random_inputs.h"
#include "engine/cli/output.h"
#include "engine/graph/llama.h"
#include "engine/model/weight_format.h"
#include "engine/model/weight_specs.h"
#include "engine/session/step_cost.h"
#include "kernels/page_layout.h"

#include <nlohmann/json.hpp>

namespace longhand::engine::cli {
namespace {

using Clock = std::chrono::steady_clock;
using kernels::AttentionShape;
using kernels::ExactSpan;
using kernels::MatrixView;
using kernels::WeightView;

// What one pass over a kernel's operands reads at least, so that nothing of it is left in the
// last-level cache (32 MiB and more) when the next pass begins.
constexpr double kPassBytes = 256.0 * (1 << 20);

/// One kernel on one size.
struct KernelRow {
  std::string kernel;       // "matmul", "decode attention", ...
  std::string format;       // "nf4", "f16", "4/2"
  std::string size;         // "4096 x 4096", "depth 4096"
  std::int64_t tokens = 0;  // rows of input
  double bytes = 0.0;       // read (and, packing, written) by one call
  double multiplyAdds = 0.0;
  double footprintBytes = 0.0;  // as in Work
  double percentOfFloor = 0.0;  // 0: no floor
  Sample seconds;               // of one call
};

/// Copies of something that no cache holds together.
std::int64_t nPassesOver(double bytes, std::int64_t most) {
  return std::clamp(static_cast<std::int64_t>(std::ceil(kPassBytes / bytes)), std::int64_t{1},
                    most);
}

std::string sizeText(std::int64_t rows, std::int64_t cols) {
  return std::to_string(rows) + " x " + std::to_string(cols);
}

class KernelBench {
 public:
  KernelBench(const BenchOptions& options, Interrupt& interrupt)
      : options_(options),
        scope_(interrupt),
        config_(options.modelConfig()),
        shape_(attentionShape(config_)),
        chosen_(createBackend({options.model.threads, options.model.cpuPath, options.model.backend,
                               options.model.cudaPlugin})),
        backend_(chosen_.backend.get()),
        probe_([this] { return backend_->measureRates(); }, backend_->usesHostMemory()) {}

  std::vector<KernelRow> run() {
    measureMatrices();
    for (const NamedCache& cache : options_.namedCaches()) measureCache(cache);
    return std::move(rows_);
  }
  std::string backendDescription() const { return backend_->description(); }
  const ModelConfig& modelConfig() const { return config_; }
  MachineSpeed machine() const { return probe_.median(); }
  std::function<void(const KernelRow&)> onRow;

 private:
  void wait() {
    requireNoFault(*backend_, "The device failed");
    if (scope_.stop().stop_requested()) {
      throw Error(ErrorCode::kCancelled, "Stopped before all was measured.");
    }
  }

  /// What has just been measured.
  void emit(KernelRow row, const std::vector<double>& seconds) {
    emit(std::move(row), probe_.bracket(), seconds);
  }
  void emit(KernelRow row, const MachineSpeed& machine, const std::vector<double>& seconds) {
    row.seconds = sampleOf(seconds);
    row.percentOfFloor = 100.0 *
                         floorSeconds(machine, {row.bytes, row.multiplyAdds, row.footprintBytes}) /
                         row.seconds.median;
    if (onRow) onRow(row);
    rows_.push_back(std::move(row));
  }

  /// Seconds of one of the `nCalls` calls that a pass makes, for each round.
  std::vector<double> measure(std::int64_t nCalls, const std::function<void()>& pass) {
    std::vector<double> seconds;
    pass();
    wait();
    const Clock::time_point start = Clock::now();
    while (std::ssize(seconds) < options_.rounds || secondsSince(start) < 0.2) {
      const Clock::time_point startOfPass = Clock::now();
      pass();
      wait();
      seconds.push_back(secondsSince(startOfPass) / static_cast<double>(nCalls));
    }
    return seconds;
  }

  void measureMatrices();
  void measureLayers(const Model& model, std::int64_t nTokens);
  void measureHead(const Model& model, std::int64_t nTokens);
  void measureCache(const NamedCache& cache);
  void measureAttention(const NamedCache& cache, std::int64_t depth, std::int64_t nTokens);
  void measurePacking(const NamedCache& cache);

  const BenchOptions& options_;
  InterruptScope scope_;
  ModelConfig config_;
  AttentionShape shape_;
  MemoryLedger ledger_;
  ChosenBackend chosen_;
  kernels::Backend* backend_;  // of chosen_
  RateProbe probe_;
  std::vector<KernelRow> rows_;
};

void KernelBench::measureMatrices() {
  // As many layers as no cache holds, in whatever format.
  ModelConfig config = config_;
  config.nLayers = 1;
  double layerBytes = 0.0;
  for (const WeightSpec& spec : weightSpecs(config)) {
    if (spec.role != WeightRole::kLinear) continue;
    const WeightLayout layout = weightLayout({kernels::DataType::kNf4, true}, spec.rows, spec.cols);
    layerBytes += static_cast<double>(layout.totalBytes);
  }
  config.nLayers = nPassesOver(layerBytes, config_.nLayers);
  const auto model =
      makeRandomModel(config, options_.model.weightFormat(), 1, *backend_, ledger_, scope_.stop());
  constexpr std::array<std::int64_t, 3> kFewTokens = {1, 4, 8};
  for (const std::int64_t nTokens : kFewTokens) {
    measureLayers(*model, nTokens);
    measureHead(*model, nTokens);
  }
  const std::int64_t many = options_.prefillTokens;
  if (many > 0 && std::ranges::find(kFewTokens, many) == kFewTokens.end()) {
    measureLayers(*model, many);
  }
}

/// All matrices of all layers in turn, as in a step, each kind timed for itself.
void KernelBench::measureLayers(const Model& model, std::int64_t nTokens) {
  const std::int64_t widest =
      std::max({config_.hiddenSize, config_.intermediateSize, config_.nHeads * config_.headDim});
  const RandomFloats input(*backend_, ledger_, nTokens, widest);
  const RandomFloats output(*backend_, ledger_, nTokens, widest);
  struct Kind {
    WeightView weight;
    std::int64_t nCalls = 0;
    double seconds = 0.0;                  // of this pass
    std::vector<double> callSeconds = {};  // of each pass
  };
  std::vector<Kind> kinds;
  const auto kindOf = [&kinds](const WeightView& weight) -> Kind& {
    const auto found = std::find_if(kinds.begin(), kinds.end(), [&](const Kind& kind) {
      return kind.weight.rows == weight.rows && kind.weight.cols == weight.cols &&
             kind.weight.type == weight.type;
    });
    return found != kinds.end() ? *found : kinds.emplace_back(Kind{weight});
  };
  // Products of many tokens are no matter of memory: one layer is enough.
  const std::size_t nLayers = nTokens > 64 ? 1 : model.layers().size();
  std::vector<double> layerSeconds;
  const auto pass = [&] {
    for (Kind& kind : kinds) kind.nCalls = 0, kind.seconds = 0.0;
    for (const LayerWeights& layer : std::span(model.layers()).first(nLayers)) {
      for (const WeightView* weight :
           {&layer.query, &layer.key, &layer.value, &layer.attentionOutput, &layer.gate, &layer.up,
            &layer.down}) {
        Kind& kind = kindOf(*weight);
        const Clock::time_point start = Clock::now();
        backend_->matmul(input.view(weight->cols), *weight, output.view(weight->rows), false);
        wait();
        kind.seconds += secondsSince(start);
        ++kind.nCalls;
      }
    }
    for (Kind& kind : kinds) {
      kind.callSeconds.push_back(kind.seconds / static_cast<double>(kind.nCalls));
    }
  };
  layerSeconds = measure(static_cast<std::int64_t>(nLayers), pass);
  const MachineSpeed machine = probe_.bracket();
  double passBytes = 0.0;
  for (const Kind& kind : kinds) {
    passBytes += static_cast<double>(weightBytesRead(kind.weight).total()) *
                 static_cast<double>(kind.nCalls);
  }
  double layerBytes = 0.0;
  double layerProducts = 0.0;
  for (Kind& kind : kinds) {
    kind.callSeconds.erase(kind.callSeconds.begin());  // wakes threads and memory
    KernelRow row;
    row.kernel = "matmul";
    row.format = weightFormatName(formatOf(targetOf(kind.weight)));
    row.size = sizeText(kind.weight.rows, kind.weight.cols);
    row.tokens = nTokens;
    row.bytes = static_cast<double>(weightBytesRead(kind.weight).total());
    row.multiplyAdds = static_cast<double>(kind.weight.rows * kind.weight.cols * nTokens);
    const auto perLayer = static_cast<double>(kind.nCalls) / static_cast<double>(nLayers);
    row.footprintBytes = passBytes;
    layerBytes += row.bytes * perLayer;
    layerProducts += row.multiplyAdds * perLayer;
    emit(std::move(row), machine, kind.callSeconds);
  }
  KernelRow all;
  all.kernel = "matmul";
  all.format = weightFormatName(model.weightFormat());
  all.size = "a layer";
  all.tokens = nTokens;
  all.bytes = layerBytes;
  all.multiplyAdds = layerProducts;
  all.footprintBytes = passBytes;
  emit(std::move(all), machine, layerSeconds);
}

void KernelBench::measureHead(const Model& model, std::int64_t nTokens) {
  const WeightView& head = model.lmHead();
  const RandomFloats input(*backend_, ledger_, nTokens, head.cols);
  const RandomFloats output(*backend_, ledger_, nTokens, head.rows);
  KernelRow row;
  row.kernel = "matmul";
  row.format = weightFormatName(formatOf(targetOf(head)));
  row.size = sizeText(head.rows, head.cols);
  row.tokens = nTokens;
  row.bytes = static_cast<double>(weightBytesRead(head).total());
  row.multiplyAdds = static_cast<double>(head.rows * head.cols * nTokens);
  row.footprintBytes = row.bytes;
  emit(std::move(row), measure(1, [&] {
         backend_->matmul(input.view(head.cols), head, output.view(head.rows), false);
       }));
}

void KernelBench::measureCache(const NamedCache& cache) {
  for (const std::int64_t depth : options_.depths) {
    if (depth > 0) measureAttention(cache, depth, 1);
    if (options_.prefillTokens > 1) measureAttention(cache, depth, options_.prefillTokens);
  }
  if (cache.config.keyNbits < 16 || cache.config.valueNbits < 16) measurePacking(cache);
}

/// `nTokens` queries behind `depth` cached tokens, in as many layers as no cache holds (for one
/// query) or in one.
void KernelBench::measureAttention(const NamedCache& cache, std::int64_t depth,
                                   std::int64_t nTokens) {
  KvCacheConfig config = cache.config;
  config.firstLayers = 0;  // the later layers are the many
  const auto layerBytes = static_cast<double>(kvCacheUse(config, shape_, 1, depth).total());
  const std::int64_t nLayers = nTokens > 1 ? 1 : nPassesOver(layerBytes, 1024);
  KvCache filled(*backend_, ledger_, shape_, nLayers, config);
  fillRandomly(filled, *backend_, shape_, nLayers, depth, 1, scope_.stop());

  const std::int64_t cols = shape_.nHeads * shape_.headDim;
  const RandomFloats queries(*backend_, ledger_, nTokens, cols);
  const RandomFloats output(*backend_, ledger_, nTokens, cols);
  const BackendBuffer memory(*backend_, ledger_, MemoryCategory::kWorkspace,
                             exactBytes(shape_, config.exactType, nTokens));
  const ExactSpan chunk = randomSpan(*backend_, ledger_, shape_, config.exactType, memory, nTokens);
  const float scale = 1.0F / std::sqrt(static_cast<float>(shape_.headDim));

  KernelRow row;
  row.kernel = nTokens > 1 ? "prefill attention" : "decode attention";
  row.format = cache.name;
  row.size = "depth " + std::to_string(depth);
  row.tokens = nTokens;
  row.bytes = static_cast<double>(cacheBytesRead(filled, shape_, nLayers).total()) /
                  static_cast<double>(nLayers) +
              static_cast<double>(memory.sizeBytes());
  const auto n = static_cast<double>(nTokens);
  row.multiplyAdds =
      2.0 * static_cast<double>(cols) * n * (static_cast<double>(depth) + (n + 1.0) / 2.0);
  row.footprintBytes = row.bytes * static_cast<double>(nLayers);
  emit(std::move(row), measure(nLayers, [&] {
         for (std::int64_t layer = 0; layer < nLayers; ++layer) {
           backend_->attend(shape_, scale, queries.view(cols), filled.view(layer), chunk, 0,
                            output.view(cols));
         }
       }));
}

void KernelBench::measurePacking(const NamedCache& cache) {
  const kernels::PageFormat format = cache.config.pageFormat(cache.config.firstLayers);
  const std::size_t pageBytes =
      kernels::pageLayout(format, shape_.nKvHeads, shape_.headDim).totalBytes;
  const double sourceBytes =
      static_cast<double>(exactBytes(shape_, format.exactType, format.groupSize));
  const std::int64_t nPages = nPassesOver(sourceBytes, 1024);
  const std::int64_t nTokens = nPages * format.groupSize;
  const BackendBuffer memory(*backend_, ledger_, MemoryCategory::kWorkspace,
                             exactBytes(shape_, format.exactType, nTokens));
  const ExactSpan source =
      randomSpan(*backend_, ledger_, shape_, format.exactType, memory, nTokens);
  const BackendBuffer pages(*backend_, ledger_, MemoryCategory::kWorkspace,
                            static_cast<std::size_t>(nPages) * pageBytes);
  KernelRow row;
  row.kernel = "packing";
  row.format = cache.name;
  row.size = "a page";
  row.tokens = format.groupSize;
  row.bytes = sourceBytes + static_cast<double>(pageBytes);
  row.footprintBytes = row.bytes * static_cast<double>(nPages);
  emit(std::move(row), measure(nPages, [&] {
         for (std::int64_t page = 0; page < nPages; ++page) {
           const ExactSpan tokens =
               source.slice(page * format.groupSize, format.groupSize, shape_.headDim);
           backend_->packPage(shape_, {&tokens, 1}, format, cache.config.solver,
                              pages.data() + static_cast<std::size_t>(page) * pageBytes);
         }
       }));
}

nlohmann::json rowJson(const KernelRow& row) {
  return {{"kernel", row.kernel},
          {"format", row.format},
          {"size", row.size},
          {"tokens", row.tokens},
          {"seconds",
           {{"median", row.seconds.median},
            {"lowest", row.seconds.lowest},
            {"highest", row.seconds.highest}}},
          {"bytes", row.bytes},
          {"multiply_adds", row.multiplyAdds},
          {"bytes_per_second", row.bytes / row.seconds.median},
          {"multiply_adds_per_second", row.multiplyAdds / row.seconds.median},
          {"percent_of_floor",
           row.percentOfFloor > 0.0 ? nlohmann::json(row.percentOfFloor) : nlohmann::json()}};
}

void printRow(const KernelRow& row) {
  std::ostringstream line;
  line << std::fixed << std::left << std::setw(18) << row.kernel << std::setw(16) << row.format
       << std::setw(15) << row.size << std::right << std::setw(7) << row.tokens
       << std::setprecision(1) << std::setw(12) << row.seconds.median * 1e6 << std::setw(9)
       << row.seconds.spreadPercent() << std::setprecision(3) << std::setw(11) << row.bytes * 1e-6
       << std::setprecision(1) << std::setw(8) << row.bytes / row.seconds.median * 1e-9
       << std::setw(9) << row.multiplyAdds / row.seconds.median * 1e-9 << std::setw(8)
       << percentOfFloorText(row.percentOfFloor);
  std::cout << line.str() << std::endl;
}

}  // namespace

void benchKernels(const BenchOptions& options, Interrupt& interrupt) {
  KernelBench bench(options, interrupt);
  if (!options.isJson) {
    std::cout << bench.modelConfig().name << ", random weights, " << bench.backendDescription()
              << "\nkernel            format          size            tokens          us      +-%"
                 "         MB    GB/s   GMAC/s  %floor\n";
    bench.onRow = printRow;
  }
  const std::vector<KernelRow> rows = bench.run();
  const MachineSpeed machine = bench.machine();
  if (!options.isJson) {
    std::cout << machineLine(machine) << '\n';
    return;
  }
  nlohmann::json kernels = nlohmann::json::array();
  for (const KernelRow& row : rows) kernels.push_back(rowJson(row));
  printJson({{"model", bench.modelConfig().name},
             {"backend", bench.backendDescription()},
             {"rounds", options.rounds},
             {"machine", machineJson(machine)},
             {"kernels", kernels}});
}

}  // namespace longhand::engine::cli
