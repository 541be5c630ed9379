// Part b: each stage of a token alone, as a share of what the device can do at best.

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/cache/kv_cache.h"
#include "engine/cache/random_cache.h"
#include "engine/cli/bench/random_inputs.h"
#include "engine/cli/options.h"
#include "engine/cli/selftest/selftest_parts.h"
#include "engine/graph/llama.h"
#include "engine/model/model.h"
#include "engine/model/weight_format.h"
#include "engine/model/weight_specs.h"
#include "kernels/page_layout.h"

namespace longhand::engine::cli {
namespace {

using kernels::AttentionShape;
using kernels::ExactSpan;
using kernels::MatrixView;
using kernels::Projection;
using kernels::WeightView;

std::uint64_t workingSetOf(const SelftestRun& run) {
  return std::min(run.options.workingSetBytes, run.backend.memoryInfo().freeBytes / 8);
}

class StagePart {
 public:
  explicit StagePart(const SelftestRun& run)
      : run_(run),
        backend_(run.backend),
        config_(run.options.model),
        shape_(attentionShape(run.options.model)),
        workingSet_(workingSetOf(run)) {}

  void measureAll(const MeasuredCopy& copy) {
    run_.tables.beginStages();
    if (copy.seconds.median > 0.0) run_.tables.add(run_.rows().copy(copy.bytes), &copy.seconds);
    for (const WeightFormat format : kSelftestFormats) {
      const std::string name = weightFormatName(format);
      if (!run_.hasTimeFor(name + " products", 10.0 * run_.options.secondsEach)) continue;
      run_.unlessTooLarge(name + " products", [&] { measureWeights(format); });
    }
    for (const std::int64_t depth : run_.options.depths) {
      if (depth > 0) measureDepth(depth);
    }
    for (const auto& [nbits, solver] : kSelftestPackings) {
      measurePacking(nbits, solver);
    }
  }

 private:
  void measureWeights(WeightFormat format);
  void measureMatrices(const Model& model, std::int64_t nTokens);
  void measureFused(const Model& model);
  void measureDepth(std::int64_t depth);
  void measureAttention(int keyNbits, int valueNbits, std::int64_t depth, std::int64_t nTokens);
  void measurePacking(int nbits, kernels::QuantSolver solver);
  /// How many runs over `bytes` no cache holds.
  std::int64_t nOver(double bytes, std::int64_t most) const {
    const double passes = std::ceil(static_cast<double>(workingSet_) / std::max(bytes, 1.0));
    return std::clamp<std::int64_t>(static_cast<std::int64_t>(passes), 1, most);
  }

  const SelftestRun& run_;
  kernels::Backend& backend_;
  const ModelConfig& config_;
  AttentionShape shape_;
  std::uint64_t workingSet_;
  MemoryLedger ledger_;
};

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
  for (const std::int64_t nTokens : run_.rows().productTokens()) {
    const std::string what = name + " products of " + std::to_string(nTokens) + " tokens";
    if (run_.hasTimeFor(what, seconds)) measureMatrices(*model, nTokens);
  }
  if (run_.hasTimeFor(name + " products behind a norm", seconds)) measureFused(*model);
}

/// All matrices of a kind in turn, layer after layer, then the head.
void StagePart::measureMatrices(const Model& model, std::int64_t nTokens) {
  const std::int64_t inputs = std::max(config_.intermediateSize, config_.hiddenSize);
  std::int64_t outputs = std::max(inputs, config_.nHeads * config_.headDim);
  if (nTokens == 1) outputs = std::max(outputs, config_.vocabSize);
  const RandomFloats input(backend_, ledger_, nTokens, inputs);
  const RandomFloats output(backend_, ledger_, nTokens, outputs);
  for (const ProductRow& product : run_.rows().products(model.weightFormat(), nTokens)) {
    std::vector<const WeightView*> weights;
    for (const LayerWeights& layer : model.layers()) {
      const std::array<const WeightView*, kHeadMatrix + 1> all = {
          &layer.query, &layer.key, &layer.value, &layer.attentionOutput,
          &layer.gate,  &layer.up,  &layer.down,  &model.lmHead()};
      for (const std::size_t place : product.matrices) weights.push_back(all.at(place));
    }
    const std::int64_t nCalls = product.isOfEach ? std::ssize(weights) : std::ssize(model.layers());
    const Sample seconds = run_.measure(nCalls, [&] {
      for (const WeightView* weight : weights) {
        backend_.matmul(input.view(weight->cols), *weight, output.view(weight->rows), false);
      }
    });
    run_.tables.add(product.row, &seconds);
  }
}

/// What the graph really calls for one token.
void StagePart::measureFused(const Model& model) {
  const std::int64_t hidden = config_.hiddenSize;
  const RandomFloats input(backend_, ledger_, 1, hidden);
  const RandomFloats normed(backend_, ledger_, 1, hidden);
  const RandomFloats query(backend_, ledger_, 1, config_.nHeads * config_.headDim);
  const RandomFloats key(backend_, ledger_, 1, config_.nHeads * config_.headDim);
  const RandomFloats value(backend_, ledger_, 1, config_.nHeads * config_.headDim);
  const RandomFloats gate(backend_, ledger_, 1, config_.intermediateSize);
  const RandomFloats up(backend_, ledger_, 1, config_.intermediateSize);
  const std::vector<StageRow> rows = run_.rows().fusedProducts(model.weightFormat());
  const auto nLayers = std::ssize(model.layers());
  const Sample queryKeyValue = run_.measure(nLayers, [&] {
    for (const LayerWeights& layer : model.layers()) {
      const Projection projections[] = {{layer.query, query.view(layer.query.rows)},
                                        {layer.key, key.view(layer.key.rows)},
                                        {layer.value, value.view(layer.value.rows)}};
      backend_.normMatmulEach(input.view(hidden), layer.attentionNorm, 1e-5F, normed.view(hidden),
                              projections);
    }
  });
  run_.tables.add(rows[0], &queryKeyValue);
  const Sample gateAndUp = run_.measure(nLayers, [&] {
    for (const LayerWeights& layer : model.layers()) {
      backend_.normGateUp(input.view(hidden), layer.mlpNorm, 1e-5F, normed.view(hidden),
                          {layer.gate, gate.view(layer.gate.rows)},
                          {layer.up, up.view(layer.up.rows)});
    }
  });
  run_.tables.add(rows[1], &gateAndUp);
}

void StagePart::measureDepth(std::int64_t depth) {
  const std::string behind = " at depth " + std::to_string(depth);
  run_.report.say("attention" + behind);
  for (const auto& nbits : kSelftestCaches) {
    const int keyNbits = nbits.first;
    const int valueNbits = nbits.second;
    const std::string what =
        "attention " + std::to_string(keyNbits) + "/" + std::to_string(valueNbits) + behind;
    if (!run_.hasTimeFor(what, 6.0 * run_.options.secondsEach)) continue;
    run_.unlessTooLarge(what, [&] {
      measureAttention(keyNbits, valueNbits, depth, 1);
      const std::int64_t nQueries = run_.rows().prefillQueries(keyNbits, valueNbits);
      if (nQueries > 0) measureAttention(keyNbits, valueNbits, depth, nQueries);
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

  const Sample seconds = run_.measure(nLayers, [&] {
    for (std::int64_t layer = 0; layer < nLayers; ++layer) {
      backend_.attend(shape_, scale, queries.view(cols), cache.view(layer), chunk, 0,
                      output.view(cols));
    }
  });
  run_.tables.add(run_.rows().attention(keyNbits, valueNbits, depth, nTokens), &seconds);
}

void StagePart::measurePacking(int nbits, kernels::QuantSolver solver) {
  const StageRow row = run_.rows().packing(nbits, solver);
  const std::string what = "packing " + row.format;
  if (!run_.hasTimeFor(what, 3.0 * run_.options.secondsEach)) return;
  const kernels::PageFormat format = selftestCache(nbits, nbits).pageFormat(0);
  const std::size_t pageBytes =
      kernels::pageLayout(format, shape_.nKvHeads, shape_.headDim).totalBytes;
  const auto sourceBytes =
      static_cast<double>(exactBytes(shape_, kernels::DataType::kF16, format.groupSize));
  run_.unlessTooLarge(what, [&] {
    const std::int64_t nPages = nOver(sourceBytes, 128);
    const std::int64_t nTokens = nPages * format.groupSize;
    const BackendBuffer memory(backend_, ledger_, MemoryCategory::kWorkspace,
                               exactBytes(shape_, kernels::DataType::kF16, nTokens));
    const ExactSpan source =
        randomSpan(backend_, ledger_, shape_, kernels::DataType::kF16, memory, nTokens);
    const BackendBuffer pages(backend_, ledger_, MemoryCategory::kWorkspace,
                              static_cast<std::size_t>(nPages) * pageBytes);
    const Sample seconds = run_.measure(nPages, [&] {
      for (std::int64_t page = 0; page < nPages; ++page) {
        const ExactSpan tokens =
            source.slice(page * format.groupSize, format.groupSize, shape_.headDim);
        backend_.packPage(shape_, {&tokens, 1}, format, solver,
                          pages.data() + static_cast<std::size_t>(page) * pageBytes);
      }
    });
    run_.tables.add(row, &seconds);
  });
}

Sample timesOfCopy(const SelftestRun& run, std::size_t bytes) {
  MemoryLedger ledger;
  const BackendBuffer from(run.backend, ledger, MemoryCategory::kWorkspace, bytes);
  const BackendBuffer to(run.backend, ledger, MemoryCategory::kWorkspace, bytes);
  return run.measure(1, [&] { run.backend.copy(to.data(), from.data(), bytes); });
}

}  // namespace

MeasuredCopy measureSpeed(const SelftestRun& run) {
  const std::uint64_t bytes = workingSetOf(run) / 2 / 256 * 256;
  MeasuredCopy copy;
  run.report.say("copying");
  const bool isCopied = run.unlessTooLarge(
      "the copy", [&] { copy.seconds = timesOfCopy(run, static_cast<std::size_t>(bytes)); });
  copy.bytes = 2.0 * static_cast<double>(bytes);
  run.report.say("multiplying at the best rate");
  const kernels::MachineRates rates = run.backend.measureRates();
  run.wait();
  DeviceSpeed speed;
  if (isCopied) speed.copyBytesPerSecond = copy.bytes / copy.seconds.median;
  speed.halfOperationsPerSecond =
      2.0 * std::max(rates.bf16MultiplyAddsPerSecond, rates.floatMultiplyAddsPerSecond);
  speed.computeMajor = rates.computeMajor;
  speed.nMultiprocessors = rates.nMultiprocessors;
  speed.clockHz = rates.clockHz;
  run.tables.setSpeed(speed);
  run.report.note("copy_bytes_per_second", speed.copyBytesPerSecond);
  run.report.note("half_operations_per_second", speed.halfOperationsPerSecond);
  run.report.note("read_bytes_per_second", rates.readBytesPerSecond);
  run.report.heading(
      "Copying " + decimalText(speed.copyBytesPerSecond * 1e-9, 1) + " GB/s, reading " +
      decimalText(rates.readBytesPerSecond * 1e-9, 1) + ", matrix products in 16 bits at best " +
      decimalText(1e-12 * speed.halfOperationsPerSecond, 2) + " TFLOP/s (0: it cannot tell)");
  return copy;
}

void measureStages(const SelftestRun& run, const MeasuredCopy& copy) {
  StagePart(run).measureAll(copy);
}

}  // namespace longhand::engine::cli
