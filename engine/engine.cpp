#include "engine/engine.h"

#include <algorithm>
#include <functional>
#include <mutex>
#include <string>
#include <utility>

#include "engine/backend_factory.h"
#include "engine/generation.h"
#include "engine/llama.h"
#include "engine/session.h"

namespace longhand::engine {

std::string_view stopReasonName(StopReason reason) {
  switch (reason) {
    case StopReason::kEndOfText:
      return "end_of_text";
    case StopReason::kStopText:
      return "stop_text";
    case StopReason::kTokenLimit:
      return "token_limit";
    case StopReason::kCancelled:
      return "cancelled";
    case StopReason::kContextFull:
      break;
  }
  return "context_full";
}

namespace {

/// What can be refused before minutes of loading.
void validate(const EngineOptions& options) {
  options.cache.validate();
  requireContextLength(options.contextLength == 0 ? 1 : options.contextLength);
  if (options.chunkTokens < 0) {
    throw Error(ErrorCode::kInvalidArgument,
                "The prefill chunk cannot be " + std::to_string(options.chunkTokens) + " tokens.",
                "Use 0 for the largest that fits.");
  }
}

void requireVocabulary(const Tokenizer& tokenizer, const ModelConfig& config) {
  // A table may be padded, or hold some tokens that were added; a tokenizer that knows far fewer
  // belongs to another model.
  const std::int64_t mostUnknown = std::max<std::int64_t>(256, config.vocabSize / 16);
  const std::int64_t unknown = config.vocabSize - tokenizer.vocabSize();
  if (unknown >= 0 && unknown <= mostUnknown) return;
  throw Error(ErrorCode::kFileDamaged,
              "tokenizer.model has " + std::to_string(tokenizer.vocabSize()) +
                  " tokens and the model " + std::to_string(config.vocabSize) + ".",
              "The files of " + config.name + " do not belong together: download them again.");
}

}  // namespace

// Members are destroyed from the last to the first: each may use those above it.
struct Engine::Impl {
  EngineOptions options;
  MemoryLedger ledger;
  ChosenBackend chosen;
  kernels::Backend* backend;  // the chosen one
  mutable std::mutex descriptionMutex;
  std::string description;  // setThreads changes it
  std::unique_ptr<Model> model;
  ModelConfig config;  // the model's, with the user's rope setting
  std::optional<Tokenizer> tokenizer;
  std::unique_ptr<Llama> llama;
  SessionCounts counts;
  std::unique_ptr<Session> session;

  explicit Impl(const EngineOptions& optionsIn)
      : options(optionsIn),
        chosen(createBackend(
            {optionsIn.threads, optionsIn.cpuPath, optionsIn.backend, optionsIn.cudaPlugin})),
        backend(chosen.backend.get()),
        description(backend->description()) {}

  /// fill() makes the model, start() the rest. Where `auto` chose a device that is too small or
  /// broken, both are done again on the CPU.
  static std::unique_ptr<Impl> fallingBack(const EngineOptions& options,
                                           const std::function<void(Impl&)>& fill) {
    auto impl = std::make_unique<Impl>(options);
    std::string whyNotDevice;
    try {
      fill(*impl);
      impl->start();
      return impl;
    } catch (const Error& error) {
      const bool isOfDevice =
          error.code() == ErrorCode::kOutOfMemory || error.code() == ErrorCode::kDevice;
      if (options.backend != "auto" || impl->backend->usesHostMemory() || !isOfDevice) throw;
      whyNotDevice = impl->description + ": " + error.message();
    }
    impl.reset();  // gives the device's memory back first
    EngineOptions onCpu = options;
    onCpu.backend = "cpu";
    impl = std::make_unique<Impl>(onCpu);
    impl->chosen.whyNotDevice = whyNotDevice;
    fill(*impl);
    impl->start();
    return impl;
  }

  void start() {
    config = model->config();
    if (options.rope) config.rope = *options.rope;
    if (config.eosTokens.empty() && tokenizer && tokenizer->eosToken() >= 0) {
      config.eosTokens.push_back(tokenizer->eosToken());
    }
    // One rule for all who put BOS before a text: the tokenizer's, where it has one.
    if (tokenizer && tokenizer->bosToken() >= 0) config.bosToken = tokenizer->bosToken();
    llama = std::make_unique<Llama>(*backend, ledger, *model, config);
    session = makeSession(options.cache, options.contextLength);
  }

  std::unique_ptr<Session> makeSession(const KvCacheConfig& cache, std::int64_t contextLength) {
    const std::int64_t length = contextLength == 0 ? config.trainedLength : contextLength;
    const MemoryUse now = ledger.use();
    std::uint64_t oldCacheBytes = now[MemoryCategory::kKvCodes] + now[MemoryCategory::kKvScales] +
                                  now[MemoryCategory::kKvExact];
    if (session && backend->usesHostMemory()) {  // what was never written counts as free already
      oldCacheBytes -= std::min(oldCacheBytes, session->untouchedBytes());
    }
    return std::make_unique<Session>(SessionSetup{*backend, ledger, *llama, config, counts, cache,
                                                  length, options.chunkTokens, oldCacheBytes});
  }

  SessionIdentity sessionIdentity() const {
    return {config, model->fingerprint(), tokenizer ? tokenizer->fingerprint() : 0};
  }
};

Engine::Engine() = default;
Engine::~Engine() = default;

std::unique_ptr<Engine> Engine::load(const std::filesystem::path& modelFolder,
                                     const EngineOptions& options, const LoadProgress& progress,
                                     std::stop_token stop) {
  validate(options);
  const ModelConfig config = readModelConfig(modelFolder);
  std::unique_ptr<Engine> engine(new Engine);
  engine->impl_ = Impl::fallingBack(options, [&](Impl& m) {
    m.tokenizer.emplace(modelFolder / "tokenizer.model");
    requireVocabulary(*m.tokenizer, config);
    m.model = loadModel(modelFolder, options.weights, *m.backend, m.ledger, progress, stop);
  });
  return engine;
}

std::unique_ptr<Engine> Engine::loadRandom(const ModelConfig& config, const EngineOptions& options,
                                           std::uint64_t seed, std::stop_token stop) {
  validate(options);
  std::unique_ptr<Engine> engine(new Engine);
  engine->impl_ = Impl::fallingBack(options, [&](Impl& m) {
    m.model = makeRandomModel(config, options.weights, seed, *m.backend, m.ledger, stop);
  });
  return engine;
}

const ModelConfig& Engine::modelConfig() const { return impl_->config; }

const Tokenizer& Engine::tokenizer() const {
  if (!impl_->tokenizer) {
    throw Error(ErrorCode::kInvalidArgument, "A model of random weights has no tokenizer.");
  }
  return *impl_->tokenizer;
}

const std::string& Engine::whyNotDevice() const { return impl_->chosen.whyNotDevice; }

WeightFormat Engine::weightFormat() const { return impl_->model->weightFormat(); }

std::uint64_t Engine::weightBytes() const { return impl_->model->weightBytes(); }

std::string Engine::backendDescription() const {
  const std::lock_guard lock(impl_->descriptionMutex);
  return impl_->description;
}

MemoryReport Engine::memory() const {
  MemoryReport report;
  report.use = impl_->ledger.use();
  report.peak = impl_->ledger.peak();
  for (std::size_t i = 0; i < kMemoryCategoryCount; ++i) {
    // The counters are read one after the other, while another thread may change them.
    report.unused.bytes[i] = std::min(report.use.bytes[i], impl_->counts.unusedBytes[i].load());
  }
  report.device = impl_->backend->memoryInfo();
  report.cachedTokens = impl_->counts.cachedTokens;
  report.packedTokens = impl_->counts.packedTokens;
  report.exactTokens = impl_->counts.exactTokens;
  report.forgottenTokens = impl_->counts.forgottenTokens;
  return report;
}

const KvCacheConfig& Engine::cacheConfig() const { return impl_->session->cacheConfig(); }

std::int64_t Engine::contextLength() const { return impl_->session->contextLength(); }

void Engine::configureCache(const KvCacheConfig& config, std::int64_t contextLength) {
  impl_->session = impl_->makeSession(config, contextLength);
}

CacheConversion Engine::convertCache(const KvCacheConfig& config, std::int64_t contextLength,
                                     const ConvertProgress& progress, std::stop_token stop) {
  Session& session = *impl_->session;
  const std::int64_t length = contextLength == 0 ? impl_->config.trainedLength : contextLength;
  if (session.canConvert(config, length)) return session.convert(config, length, progress, stop);
  CacheConversion result;
  result.isInPlace = false;
  const auto kvBytes = [this] {
    const MemoryUse use = impl_->ledger.use();
    return use[MemoryCategory::kKvCodes] + use[MemoryCategory::kKvScales] +
           use[MemoryCategory::kKvExact];
  };
  result.bytesBefore = kvBytes();
  configureCache(config, length);
  result.bytesAfter = kvBytes();
  return result;
}

ConvertCost Engine::convertCost(const KvCacheConfig& config, std::int64_t contextLength) const {
  return longhand::engine::convertCost(
      impl_->session->contents(), attentionShape(impl_->config), impl_->config.nLayers, config,
      contextLength == 0 ? impl_->config.trainedLength : contextLength);
}

CacheContents Engine::cacheContents() const { return impl_->session->contents(); }

void Engine::setThreads(int threads) {
  if (threads < 0) {
    throw Error(ErrorCode::kInvalidArgument,
                "The number of threads cannot be " + std::to_string(threads) + ".",
                "Use 0 for all cores.");
  }
  impl_->backend->setThreads(threads);
  const std::lock_guard lock(impl_->descriptionMutex);
  impl_->description = impl_->backend->description();
}

std::int64_t Engine::reusableTokens(std::span<const std::int32_t> prompt) const {
  return impl_->session->reusablePrefix(impl_->session->commonPrefix(prompt));
}

std::span<const std::int32_t> Engine::cachedTokens() const { return impl_->session->tokens(); }

GenerateResult Engine::generate(std::span<const std::int32_t> prompt,
                                const GenerateOptions& options, const GenerateObserver& observer,
                                std::stop_token stop) {
  const Tokenizer* tokenizer = impl_->tokenizer ? &*impl_->tokenizer : nullptr;
  return generateText(*impl_->session, tokenizer, impl_->config.eosTokens, prompt, options,
                      observer, stop);
}

PrefillResult Engine::prefill(std::span<const std::int32_t> prompt,
                              const std::function<void(const PrefillProgress&)>& onProgress,
                              std::stop_token stop) {
  return impl_->session->prefill(prompt, false, 0, onProgress, stop);
}

std::vector<float> Engine::nextLogits(std::span<const std::int32_t> prompt) {
  impl_->session->prefill(prompt, true, 0, {}, {});
  const std::span<const float> logits = impl_->session->logits();
  return {logits.begin(), logits.end()};
}

bool Engine::forEachLogits(std::span<const std::int32_t> tokens, bool stepwise,
                           const LogitRows& onRows, std::stop_token stop) {
  return impl_->session->evaluate({tokens, stepwise, LogitsWanted::kAll, onRows, {}, stop});
}

std::vector<float> Engine::logits(std::span<const std::int32_t> tokens, bool allPositions,
                                  bool stepwise) {
  std::vector<float> result;
  Evaluation evaluation;
  evaluation.tokens = tokens;
  evaluation.stepwise = stepwise;
  evaluation.logits = allPositions ? LogitsWanted::kAll : LogitsWanted::kLast;
  evaluation.onLogits = [&result](std::int64_t /*first*/, std::int64_t /*nRows*/,
                                  std::span<const float> rows) {
    result.insert(result.end(), rows.begin(), rows.end());
  };
  impl_->session->evaluate(evaluation);
  return result;
}

std::vector<float> Engine::hiddenStates(std::span<const std::int32_t> tokens) {
  std::vector<float> result;
  Evaluation evaluation;
  evaluation.tokens = tokens;
  evaluation.onHidden = [&result](std::int64_t /*index*/, std::span<const float> hidden) {
    result.insert(result.end(), hidden.begin(), hidden.end());
  };
  impl_->session->evaluate(evaluation);
  return result;
}

QualityReport Engine::measureQuality(const QualityRequest& request, const QualityProgress& progress,
                                     std::stop_token stop) {
  const QualitySetup setup{*impl_->backend, impl_->ledger, *impl_->llama, impl_->config,
                           contextLength()};
  return engine::measureQuality(setup, request, progress, stop);
}

void Engine::clear() { impl_->session->clear(); }

void Engine::fillCacheRandomly(std::int64_t nTokens, std::uint64_t seed, std::stop_token stop) {
  impl_->session->fillRandomly(nTokens, seed, stop);
}

DecodeBytes Engine::decodeBytes() const { return impl_->session->decodeBytes(*impl_->model); }

kernels::MachineRates Engine::measureMachineRates() { return impl_->backend->measureRates(); }

std::uint64_t Engine::sessionBytes() const {
  return impl_->session->savedBytes(impl_->sessionIdentity());
}

std::uint64_t Engine::saveSession(const std::filesystem::path& path,
                                  const SessionProgress& progress, std::stop_token stop) const {
  return impl_->session->save(path, impl_->sessionIdentity(), progress, stop);
}

std::int64_t Engine::restoreSession(const std::filesystem::path& path,
                                    const SessionProgress& progress, std::stop_token stop) {
  return impl_->session->restore(path, impl_->sessionIdentity(), progress, stop);
}

}  // namespace longhand::engine
