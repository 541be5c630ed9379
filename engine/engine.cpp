#include "engine/engine.h"

#include <algorithm>
#include <string>
#include <utility>

#include "engine/generation.h"
#include "engine/graph/llama.h"
#include "engine/machine.h"
#include "engine/session/session.h"

namespace longhand::engine {

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
  SessionCounts counts;
  std::optional<Tokenizer> tokenizer;
  std::unique_ptr<Machine> machine;
  WeightFormat weightFormat = WeightFormat::kAuto;
  std::uint64_t weightBytes = 0;

  explicit Impl(const EngineOptions& optionsIn) : options(optionsIn) {}

  void start(const decltype(MachineSetup::makeModel)& makeModel, const LoadProgress& progress,
             std::stop_token stop) {
    const auto configOf = [this](const Model& model) { return configWanted(model); };
    machine = std::make_unique<Machine>(MachineSetup{options, ledger, counts, makeModel, configOf},
                                        progress, std::move(stop));
    weightFormat = machine->model().weightFormat();
    weightBytes = machine->model().weightBytes();
  }

  ModelConfig configWanted(const Model& model) const {
    ModelConfig config = model.config();
    if (options.rope) config.rope = *options.rope;
    if (config.eosTokens.empty() && tokenizer && tokenizer->eosToken() >= 0) {
      config.eosTokens.push_back(tokenizer->eosToken());
    }
    // One rule for all who put BOS before a text: the tokenizer's, where it has one.
    if (tokenizer && tokenizer->bosToken() >= 0) config.bosToken = tokenizer->bosToken();
    return config;
  }

  const ModelConfig& config() const { return machine->config(); }
  Session& session() const { return machine->session(); }
  SessionIdentity sessionIdentity() const {
    return {config(), machine->model().fingerprint(), tokenizer ? tokenizer->fingerprint() : 0};
  }
  std::int64_t lengthOf(std::int64_t contextLength) const {
    return contextLength == 0 ? config().trainedLength : contextLength;
  }

  /// A command that is not begun anew after a fault of the device, but leaves an engine that works.
  template <typename Work>
  auto orRestart(const std::stop_token& stop, const Work& work) const {
    machine->forgiveFault();
    try {
      return work(session());
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kDevice) throw;
      machine->restart(error, stop);
      throw Error(ErrorCode::kDevice, error.message(), "Try again.");
    }
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
  engine->impl_ = std::make_unique<Impl>(options);
  Impl& m = *engine->impl_;
  m.tokenizer.emplace(modelFolder / "tokenizer.model");
  requireVocabulary(*m.tokenizer, config);
  const auto makeModel = [modelFolder, weights = options.weights](
                             kernels::Backend& backend, MemoryLedger& ledger,
                             const LoadProgress& onProgress, std::stop_token stopToken) {
    return loadModel(modelFolder, weights, backend, ledger, onProgress, std::move(stopToken));
  };
  m.start(makeModel, progress, std::move(stop));
  return engine;
}

std::unique_ptr<Engine> Engine::loadRandom(const ModelConfig& config, const EngineOptions& options,
                                           std::uint64_t seed, std::stop_token stop) {
  validate(options);
  std::unique_ptr<Engine> engine(new Engine);
  engine->impl_ = std::make_unique<Impl>(options);
  const auto makeModel = [config, weights = options.weights, seed](
                             kernels::Backend& backend, MemoryLedger& ledger,
                             const LoadProgress& /*onProgress*/, std::stop_token stopToken) {
    return makeRandomModel(config, weights, seed, backend, ledger, std::move(stopToken));
  };
  engine->impl_->start(makeModel, {}, std::move(stop));
  return engine;
}

const ModelConfig& Engine::modelConfig() const { return impl_->config(); }

const Tokenizer& Engine::tokenizer() const {
  if (!impl_->tokenizer) {
    throw Error(ErrorCode::kInvalidArgument, "A model of random weights has no tokenizer.");
  }
  return *impl_->tokenizer;
}

std::string Engine::whyNotDevice() const { return impl_->machine->whyNotDevice(); }

WeightFormat Engine::weightFormat() const { return impl_->weightFormat; }

std::uint64_t Engine::weightBytes() const { return impl_->weightBytes; }

std::string Engine::backendDescription() const { return impl_->machine->description(); }

bool Engine::isReady() const { return impl_->machine->isThere(); }

void Engine::onDeviceRestart(std::function<void(const std::string& sentence)> observer) {
  impl_->machine->setObserver(std::move(observer));
}

MemoryReport Engine::memory() const {
  MemoryReport report;
  report.backend = impl_->machine->ownMemory();  // first: it brings the ledger up to date
  report.use = impl_->ledger.use();
  report.peak = impl_->ledger.peak();
  for (std::size_t i = 0; i < kMemoryCategoryCount; ++i) {
    // The counters are read one after the other, while another thread may change them.
    report.unused.bytes[i] = std::min(report.use.bytes[i], impl_->counts.unusedBytes[i].load());
  }
  report.device = impl_->machine->memoryInfo();
  report.cachedTokens = impl_->counts.cachedTokens;
  report.packedTokens = impl_->counts.packedTokens;
  report.exactTokens = impl_->counts.exactTokens;
  report.forgottenTokens = impl_->counts.forgottenTokens;
  return report;
}

const KvCacheConfig& Engine::cacheConfig() const { return impl_->session().cacheConfig(); }

std::int64_t Engine::contextLength() const { return impl_->session().contextLength(); }

void Engine::configureCache(const KvCacheConfig& config, std::int64_t contextLength) {
  impl_->machine->replaceSession(config, contextLength);
}

CacheConversion Engine::convertCache(const KvCacheConfig& config, std::int64_t contextLength,
                                     const ConvertProgress& progress, std::stop_token stop) {
  const std::int64_t length = impl_->lengthOf(contextLength);
  const auto kvBytes = [this] {
    const MemoryUse use = impl_->ledger.use();
    return use[MemoryCategory::kKvCodes] + use[MemoryCategory::kKvScales] +
           use[MemoryCategory::kKvExact];
  };
  CacheConversion result;
  result.bytesBefore = kvBytes();
  impl_->machine->forgiveFault();
  if (Session& session = impl_->session(); session.canConvert(config, length)) {
    try {
      return session.convert(config, length, progress, stop);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kDevice) throw;
      impl_->machine->restart(error, stop);  // nothing is left to convert
    }
  }
  result.isInPlace = false;
  configureCache(config, length);
  result.bytesAfter = kvBytes();
  return result;
}

ConvertCost Engine::convertCost(const KvCacheConfig& config, std::int64_t contextLength) const {
  return longhand::engine::convertCost(impl_->session().contents(), attentionShape(impl_->config()),
                                       impl_->config().nLayers, config,
                                       impl_->lengthOf(contextLength));
}

CacheContents Engine::cacheContents() const { return impl_->session().contents(); }

void Engine::setThreads(int threads) {
  if (threads < 0) {
    throw Error(ErrorCode::kInvalidArgument,
                "The number of threads cannot be " + std::to_string(threads) + ".",
                "Use 0 for all cores.");
  }
  impl_->machine->setThreads(threads);
}

std::int64_t Engine::reusableTokens(std::span<const std::int32_t> prompt) const {
  const Session& session = impl_->session();
  return session.reusablePrefix(session.commonPrefix(prompt));
}

std::span<const std::int32_t> Engine::cachedTokens() const { return impl_->session().tokens(); }

GenerateResult Engine::generate(std::span<const std::int32_t> prompt,
                                const GenerateOptions& options, const GenerateObserver& observer,
                                std::stop_token stop) {
  const Tokenizer* tokenizer = impl_->tokenizer ? &*impl_->tokenizer : nullptr;
  impl_->machine->forgiveFault();
  return generateText(*impl_->machine, tokenizer, prompt, options, observer, stop);
}

PrefillResult Engine::prefill(std::span<const std::int32_t> prompt,
                              const std::function<void(const PrefillProgress&)>& onProgress,
                              std::stop_token stop) {
  impl_->machine->forgiveFault();
  return impl_->machine->recovering(
      stop, [&](Session& session) { return session.prefill(prompt, false, 0, onProgress, stop); });
}

std::vector<float> Engine::nextLogits(std::span<const std::int32_t> prompt) {
  impl_->machine->forgiveFault();
  impl_->machine->recovering({}, [&](Session& session) {
    session.bringBestLogits(0);
    return session.prefill(prompt, true, 0, {}, {});
  });
  const std::span<const float> logits = impl_->session().logits();
  return {logits.begin(), logits.end()};
}

bool Engine::forEachLogits(std::span<const std::int32_t> tokens, bool stepwise,
                           const LogitRows& onRows, std::stop_token stop) {
  return impl_->orRestart(stop, [&](Session& session) {
    return session.evaluate({tokens, stepwise, LogitsWanted::kAll, onRows, {}, stop});
  });
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
  impl_->orRestart({}, [&](Session& session) { return session.evaluate(evaluation); });
  return result;
}

std::vector<float> Engine::hiddenStates(std::span<const std::int32_t> tokens) {
  std::vector<float> result;
  Evaluation evaluation;
  evaluation.tokens = tokens;
  evaluation.onHidden = [&result](std::int64_t /*index*/, std::span<const float> hidden) {
    result.insert(result.end(), hidden.begin(), hidden.end());
  };
  impl_->orRestart({}, [&](Session& session) { return session.evaluate(evaluation); });
  return result;
}

QualityReport Engine::measureQuality(const QualityRequest& request, const QualityProgress& progress,
                                     std::stop_token stop) {
  return impl_->orRestart(stop, [&](Session& session) {
    const QualitySetup setup{impl_->machine->backend(), impl_->ledger, impl_->machine->llama(),
                             impl_->config(), session.contextLength()};
    return engine::measureQuality(setup, request, progress, stop);
  });
}

void Engine::clear() { impl_->session().clear(); }

void Engine::fillCacheRandomly(std::int64_t nTokens, std::uint64_t seed, std::stop_token stop) {
  impl_->orRestart(stop, [&](Session& session) { session.fillRandomly(nTokens, seed, stop); });
}

DecodeBytes Engine::decodeBytes() const {
  return impl_->session().decodeBytes(impl_->machine->model());
}

kernels::MachineRates Engine::measureMachineRates() {
  return impl_->machine->backend().measureRates();
}
bool Engine::usesHostMemory() const { return impl_->machine->backend().usesHostMemory(); }

std::uint64_t Engine::sessionBytes() const {
  return impl_->session().savedBytes(impl_->sessionIdentity());
}

std::uint64_t Engine::saveSession(const std::filesystem::path& path,
                                  const SessionProgress& progress, std::stop_token stop) const {
  return impl_->orRestart(stop, [&](const Session& session) {
    return session.save(path, impl_->sessionIdentity(), progress, stop);
  });
}

std::int64_t Engine::restoreSession(const std::filesystem::path& path,
                                    const SessionProgress& progress, std::stop_token stop) {
  return impl_->orRestart(stop, [&](Session& session) {
    return session.restore(path, impl_->sessionIdentity(), progress, stop);
  });
}

}  // namespace longhand::engine
