// Part b: each stage of a token alone, as a share of what the device can do at best.

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/cli/options.h"
#include "engine/cli/random_inputs.h"
#include "engine/cli/selftest_parts.h"
#include "engine/error.h"
#include "engine/kv_cache.h"
#include "engine/llama.h"
#include "engine/model.h"
#include "engine/random_cache.h"
#include "engine/step_cost.h"
#include "engine/weight_format.h"
#include "engine/weight_specs.h"
#include "kernels/page_layout.h"

namespace longhand::engine::cli {
namespace {

using kernels::AttentionShape;
using kernels::ExactSpan;
using kernels::MatrixView;
using kernels::Projection;
using kernels::WeightView;

/// One measured stage: seconds of one call, and what the call does.
struct Stage {
  std::string stage;
  std::string format;
  std::string size;
  std::int64_t tokens = 0;
  double bytes = 0.0;       // read and written
  double operations = 0.0;  // a multiply-add is two
};

class StagePart {
 public:
  explicit StagePart(const SelftestRun& run)
      : run_(run),
        backend_(run.backend),
        config_(run.options.model),
        shape_(attentionShape(run.options.model)),
        workingSet_(std::min(run.options.workingSetBytes, backend_.memoryInfo().freeBytes / 8)) {}

  void measureAll() {
    run_.report.heading("B. Stages, against a measured copy and a measured matrix product\n" +
                        padded("stage", 22) + padded("format", 12) + padded("size", 16) +
                        " tokens          us     +-%     GB/s  %copy  TFLOP/s  %rate");
    measureCopy();
    measureHalfRate();
    for (const WeightFormat format :
         {WeightFormat::kNf4, WeightFormat::kF16, WeightFormat::kInt8}) {
      const std::string name = weightFormatName(format);
      if (!run_.hasTimeFor(name + " products", 10.0 * run_.options.secondsEach)) continue;
      run_.unlessTooLarge(name + " products", [&] { measureWeights(format); });
    }
    for (const std::int64_t depth : run_.options.depths) {
      if (depth > 0) measureDepth(depth);
    }
    for (const auto& [nbits, solver] : {std::pair{8, kernels::QuantSolver::kMinMax},
                                        {4, kernels::QuantSolver::kMinMax},
                                        {2, kernels::QuantSolver::kMinMax},
                                        {4, kernels::QuantSolver::kHqq}}) {
      measurePacking(nbits, solver);
    }
  }

 private:
  void measureCopy();
  void measureHalfRate();
  void measureWeights(WeightFormat format);
  void measureMatrices(const Model& model, const std::string& format, std::int64_t nTokens);
  void measureFused(const Model& model, const std::string& format);
  void measureDepth(std::int64_t depth);
  void measureAttention(int keyNbits, int valueNbits, std::int64_t depth, std::int64_t nTokens);
  void measurePacking(int nbits, kernels::QuantSolver solver);
  /// How many runs over `bytes` no cache holds.
  std::int64_t nOver(double bytes, std::int64_t most) const {
    const double passes = std::ceil(static_cast<double>(workingSet_) / std::max(bytes, 1.0));
    return std::clamp<std::int64_t>(static_cast<std::int64_t>(passes), 1, most);
  }
  double percentOfCopy(double bytesPerSecond) const {
    const double best = run_.findings.copyBytesPerSecond;
    return best > 0.0 ? 100.0 * bytesPerSecond / best : 0.0;
  }
  void emit(const Stage& stage, const Sample& seconds);

  const SelftestRun& run_;
  kernels::Backend& backend_;
  const ModelConfig& config_;
  AttentionShape shape_;
  std::uint64_t workingSet_;
  MemoryLedger ledger_;
};

void StagePart::emit(const Stage& stage, const Sample& seconds) {
  const double bytesPerSecond = stage.bytes / seconds.median;
  const double operationsPerSecond = stage.operations / seconds.median;
  const double rate = run_.findings.halfOperationsPerSecond;
  const double percentOfRate = rate > 0.0 ? 100.0 * operationsPerSecond / rate : 0.0;
  run_.report.row(
      "stages",
      {{"stage", stage.stage},
       {"format", stage.format},
       {"size", stage.size},
       {"tokens", stage.tokens},
       {"seconds",
        {{"median", seconds.median}, {"lowest", seconds.lowest}, {"highest", seconds.highest}}},
       {"bytes", stage.bytes},
       {"operations", stage.operations},
       {"bytes_per_second", bytesPerSecond},
       {"operations_per_second", operationsPerSecond},
       {"percent_of_copy", percentOfCopy(bytesPerSecond)},
       {"percent_of_matrix_rate", percentOfRate}},
      padded(stage.stage, 22) + padded(stage.format, 12) + padded(stage.size, 16) +
          decimalText(static_cast<double>(stage.tokens), 0, 7) +
          decimalText(seconds.median * 1e6, 1, 12) + decimalText(seconds.spreadPercent(), 1, 8) +
          decimalText(bytesPerSecond * 1e-9, 1, 9) +
          decimalText(percentOfCopy(bytesPerSecond), 1, 7) +
          decimalText(operationsPerSecond * 1e-12, 2, 9) + decimalText(percentOfRate, 1, 7));
}

void StagePart::measureCopy() {
  run_.report.say("copying");
  run_.unlessTooLarge("the copy", [&] {
    const auto bytes = static_cast<std::size_t>(workingSet_ / 2 / 256 * 256);
    const BackendBuffer from(backend_, ledger_, MemoryCategory::kWorkspace, bytes);
    const BackendBuffer to(backend_, ledger_, MemoryCategory::kWorkspace, bytes);
    const Sample seconds = run_.measure(1, [&] { backend_.copy(to.data(), from.data(), bytes); });
    const double both = 2.0 * static_cast<double>(bytes);
    run_.findings.copyBytesPerSecond = both / seconds.median;
    run_.report.note("copy_bytes_per_second", run_.findings.copyBytesPerSecond);
    emit({"copy", "-", "read and written", 0, both, 0.0}, seconds);
  });
}

void StagePart::measureHalfRate() {
  run_.report.say("multiplying at the best rate");
  const kernels::MachineRates rates = backend_.measureRates();
  const double best = std::max(rates.bf16MultiplyAddsPerSecond, rates.floatMultiplyAddsPerSecond);
  run_.wait();
  run_.findings.halfOperationsPerSecond = 2.0 * best;
  run_.report.note("half_operations_per_second", 2.0 * best);
  run_.report.note("read_bytes_per_second", rates.readBytesPerSecond);
  run_.report.heading("  reading " + decimalText(rates.readBytesPerSecond * 1e-9, 1) +
                      " GB/s, matrix products in 16 bits at best " + decimalText(2e-12 * best, 2) +
                      " TFLOP/s (0: it cannot tell)");
}

void StagePart::measureWeights(WeightFormat format) {
  ModelConfig config = config_;
  config.nLayers = 1;
  double layerBytes = 0.0;
  for (const WeightSpec& spec : weightSpecs(config)) {
    if (spec.role != WeightRole::kLinear) continue;
    const WeightTarget target = chooseTarget(format, spec, {kernels::DataType::kF32});
    layerBytes += static_cast<double>(weightLayout(target, spec.rows, spec.cols).dataBytes);
  }
  config.nLayers = nOver(layerBytes, config_.nLayers);
  const std::string name = weightFormatName(format);
  run_.report.say("products with " + name + " weights, " + std::to_string(config.nLayers) +
                  " layers");
  const auto model = makeRepeatedModel(config, format, 1, backend_, ledger_, run_.stop);
  const double seconds = 6.0 * run_.options.secondsEach;
  for (const std::int64_t nTokens : std::set<std::int64_t>{1, 4, 8, run_.options.prefillTokens}) {
    const std::string what = name + " products of " + std::to_string(nTokens) + " tokens";
    if (nTokens > 0 && run_.hasTimeFor(what, seconds)) measureMatrices(*model, name, nTokens);
  }
  if (run_.hasTimeFor(name + " products behind a norm", seconds)) measureFused(*model, name);
}

/// All matrices of a kind in turn, layer after layer, then the head.
void StagePart::measureMatrices(const Model& model, const std::string& format,
                                std::int64_t nTokens) {
  using Matrices = std::vector<const WeightView*>;
  Matrices square;
  Matrices gateAndUp;
  Matrices down;
  Matrices all;
  for (const LayerWeights& layer : model.layers()) {
    square.insert(square.end(), {&layer.query, &layer.key, &layer.value, &layer.attentionOutput});
    gateAndUp.insert(gateAndUp.end(), {&layer.gate, &layer.up});
    down.push_back(&layer.down);
    all.insert(all.end(), {&layer.query, &layer.key, &layer.value, &layer.attentionOutput,
                           &layer.gate, &layer.up, &layer.down});
  }
  const std::int64_t inputs = std::max(config_.intermediateSize, config_.hiddenSize);
  std::int64_t outputs = std::max(inputs, config_.nHeads * config_.headDim);
  if (nTokens == 1) outputs = std::max(outputs, config_.vocabSize);
  const RandomFloats input(backend_, ledger_, nTokens, inputs);
  const RandomFloats output(backend_, ledger_, nTokens, outputs);
  const auto measure = [&](const char* size, const Matrices& matrices, std::int64_t nCalls) {
    Stage stage{"matmul", format, size, nTokens};
    for (const WeightView* weight : matrices) {
      stage.bytes += static_cast<double>(weightBytesRead(*weight).total());
      stage.operations += 2.0 * static_cast<double>(weight->rows * weight->cols * nTokens);
    }
    stage.bytes /= static_cast<double>(nCalls);
    stage.operations /= static_cast<double>(nCalls);
    const Sample seconds = run_.measure(nCalls, [&] {
      for (const WeightView* weight : matrices) {
        backend_.matmul(input.view(weight->cols), *weight, output.view(weight->rows), false);
      }
    });
    emit(stage, seconds);
    return percentOfCopy(stage.bytes / seconds.median);
  };
  const auto nLayers = std::ssize(model.layers());
  if (nTokens <= 8) {
    measure("query to output", square, std::ssize(square));
    measure("gate, up", gateAndUp, std::ssize(gateAndUp));
    measure("down", down, std::ssize(down));
  }
  const double percent = measure("a layer", all, nLayers);
  if (nTokens == 1 && model.weightFormat() == WeightFormat::kNf4) {
    run_.findings.nf4PercentOfCopy = percent;
  }
  if (nTokens == 1) measure("head", {&model.lmHead()}, 1);
}

/// What the graph really calls for one token.
void StagePart::measureFused(const Model& model, const std::string& format) {
  const std::int64_t hidden = config_.hiddenSize;
  const RandomFloats input(backend_, ledger_, 1, hidden);
  const RandomFloats normed(backend_, ledger_, 1, hidden);
  const RandomFloats query(backend_, ledger_, 1, config_.nHeads * config_.headDim);
  const RandomFloats key(backend_, ledger_, 1, config_.nHeads * config_.headDim);
  const RandomFloats value(backend_, ledger_, 1, config_.nHeads * config_.headDim);
  const RandomFloats gate(backend_, ledger_, 1, config_.intermediateSize);
  const RandomFloats up(backend_, ledger_, 1, config_.intermediateSize);
  const auto bytesOf = [](std::initializer_list<const WeightView*> weights) {
    double bytes = 0.0;
    for (const WeightView* weight : weights) {
      bytes += static_cast<double>(weightBytesRead(*weight).total());
    }
    return bytes;
  };
  const LayerWeights& one = model.layers().front();
  const auto nLayers = std::ssize(model.layers());
  emit({"norm + matmul each", format, "query, key, value", 1,
        bytesOf({&one.query, &one.key, &one.value})},
       run_.measure(nLayers, [&] {
         for (const LayerWeights& layer : model.layers()) {
           const Projection projections[] = {{layer.query, query.view(layer.query.rows)},
                                             {layer.key, key.view(layer.key.rows)},
                                             {layer.value, value.view(layer.value.rows)}};
           backend_.normMatmulEach(input.view(hidden), layer.attentionNorm, 1e-5F,
                                   normed.view(hidden), projections);
         }
       }));
  emit({"norm + gate + up", format, "gate, up", 1, bytesOf({&one.gate, &one.up})},
       run_.measure(nLayers, [&] {
         for (const LayerWeights& layer : model.layers()) {
           backend_.normGateUp(input.view(hidden), layer.mlpNorm, 1e-5F, normed.view(hidden),
                               {layer.gate, gate.view(layer.gate.rows)},
                               {layer.up, up.view(layer.up.rows)});
         }
       }));
}

void StagePart::measureDepth(std::int64_t depth) {
  const std::string behind = " at depth " + std::to_string(depth);
  run_.report.say("attention" + behind);
  for (const auto& [keyNbits, valueNbits] : {std::pair{16, 16}, {8, 8}, {4, 4}, {4, 2}, {2, 2}}) {
    const std::string what =
        "attention " + std::to_string(keyNbits) + "/" + std::to_string(valueNbits) + behind;
    if (!run_.hasTimeFor(what, 6.0 * run_.options.secondsEach)) continue;
    run_.unlessTooLarge(what, [&] {
      measureAttention(keyNbits, valueNbits, depth, 1);
      const bool isUsual = keyNbits == valueNbits && keyNbits != 8;
      if (isUsual && run_.options.prefillTokens > 8) {
        measureAttention(keyNbits, valueNbits, depth,
                         std::min<std::int64_t>(1024, run_.options.prefillTokens));
      }
    });
  }
}

/// `nTokens` queries behind `depth` tokens: one in as many layers as no cache holds, several in
/// one.
void StagePart::measureAttention(int keyNbits, int valueNbits, std::int64_t depth,
                                 std::int64_t nTokens) {
  const KvCacheConfig config = selftestCache(keyNbits, valueNbits);
  const auto layerBytes = static_cast<double>(kvCacheUse(config, shape_, 1, depth).total());
  const std::int64_t nLayers = nTokens > 1 ? 1 : nOver(layerBytes, 1024);
  KvCache cache(backend_, ledger_, shape_, nLayers, config);
  fillRandomly(cache, backend_, shape_, nLayers, depth, 1, run_.stop);
  const std::int64_t cols = shape_.nHeads * shape_.headDim;
  const RandomFloats queries(backend_, ledger_, nTokens, cols);
  const RandomFloats output(backend_, ledger_, nTokens, cols);
  const BackendBuffer memory(backend_, ledger_, MemoryCategory::kWorkspace,
                             exactBytes(shape_, kernels::DataType::kF16, nTokens));
  const ExactSpan chunk =
      randomSpan(backend_, ledger_, shape_, kernels::DataType::kF16, memory, nTokens);
  const float scale = 1.0F / std::sqrt(static_cast<float>(shape_.headDim));

  Stage stage{nTokens > 1 ? "prefill attention" : "decode attention",
              std::to_string(keyNbits) + "/" + std::to_string(valueNbits),
              "depth " + std::to_string(depth), nTokens};
  stage.bytes = static_cast<double>(cacheBytesRead(cache, shape_, nLayers).total()) /
                    static_cast<double>(nLayers) +
                static_cast<double>(memory.sizeBytes());
  const auto n = static_cast<double>(nTokens);
  stage.operations =
      4.0 * static_cast<double>(cols) * n * (static_cast<double>(depth) + (n + 1.0) / 2.0);
  const Sample seconds = run_.measure(nLayers, [&] {
    for (std::int64_t layer = 0; layer < nLayers; ++layer) {
      backend_.attend(shape_, scale, queries.view(cols), cache.view(layer), chunk, 0,
                      output.view(cols));
    }
  });
  emit(stage, seconds);
  if (nTokens > 1 || keyNbits != valueNbits) return;
  run_.findings.attentionSeconds[{keyNbits, depth}] = seconds.median;
  if (keyNbits == 16 && depth == run_.options.depths.back()) {
    run_.findings.halfAttentionPercentOfCopy = percentOfCopy(stage.bytes / seconds.median);
  }
}

void StagePart::measurePacking(int nbits, kernels::QuantSolver solver) {
  const bool isHqq = solver == kernels::QuantSolver::kHqq;
  const std::string name = std::to_string(nbits) + (isHqq ? " hqq" : " minmax");
  if (!run_.hasTimeFor("packing " + name, 3.0 * run_.options.secondsEach)) return;
  const kernels::PageFormat format = selftestCache(nbits, nbits).pageFormat(0);
  const std::size_t pageBytes =
      kernels::pageLayout(format, shape_.nKvHeads, shape_.headDim).totalBytes;
  const auto sourceBytes =
      static_cast<double>(exactBytes(shape_, kernels::DataType::kF16, format.groupSize));
  run_.unlessTooLarge("packing " + name, [&] {
    const std::int64_t nPages = nOver(sourceBytes, 128);
    const std::int64_t nTokens = nPages * format.groupSize;
    const BackendBuffer memory(backend_, ledger_, MemoryCategory::kWorkspace,
                               exactBytes(shape_, kernels::DataType::kF16, nTokens));
    const ExactSpan source =
        randomSpan(backend_, ledger_, shape_, kernels::DataType::kF16, memory, nTokens);
    const BackendBuffer pages(backend_, ledger_, MemoryCategory::kWorkspace,
                              static_cast<std::size_t>(nPages) * pageBytes);
    emit(
        {"packing", name, "a page", format.groupSize, sourceBytes + static_cast<double>(pageBytes)},
        run_.measure(nPages, [&] {
          for (std::int64_t page = 0; page < nPages; ++page) {
            const ExactSpan tokens =
                source.slice(page * format.groupSize, format.groupSize, shape_.headDim);
            backend_.packPage(shape_, {&tokens, 1}, format, solver,
                              pages.data() + static_cast<std::size_t>(page) * pageBytes);
          }
        }));
  });
}

}  // namespace

void measureStages(const SelftestRun& run) { StagePart(run).measureAll(); }

}  // namespace longhand::engine::cli
