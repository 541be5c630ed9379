#include "app/engine_worker.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <stop_token>
#include <thread>
#include <utility>
#include <variant>

#include <QFile>
#include <QLocale>

#include "app/mailbox.h"
#include "app/model_catalog.h"
#include "engine/base/throttle.h"
#include "engine/memory_plan.h"

namespace longhand::app {

namespace {

using engine::Throttle;

// One update a frame is all that a window can show.
constexpr std::chrono::milliseconds kStreamInterval{33};
constexpr std::chrono::milliseconds kMemoryInterval{250};

struct Ticket {
  std::uint64_t id = 0;  // never 0, never used twice
  std::stop_source stop;
  bool outlivesWorker = false;  // is carried out even when the worker is being destroyed

  std::stop_token token() const { return stop.get_token(); }
};

struct Command {
  Ticket ticket;
  std::function<void(const Ticket&)> work;  // throws nothing
};

std::filesystem::path toPath(const QString& name) {
  return std::filesystem::path(QFile::encodeName(name).toStdString());
}

ModelInfo modelInfo(const engine::Engine& engine, const QString& folder) {
  ModelInfo info;
  info.folder = folder;
  info.name = QString::fromStdString(engine.modelConfig().name);
  info.config = engine.modelConfig();
  info.weights = engine.weightFormat();
  info.weightBytes = engine.weightBytes();
  info.tokenizerFingerprint = engine.tokenizer().fingerprint();
  info.backendDescription = QString::fromStdString(engine.backendDescription());
  info.whyNotDevice = QString::fromStdString(engine.whyNotDevice());
  info.contextLength = engine.contextLength();
  info.isDemo = readDemoModel(folder).has_value();
  return info;
}

}  // namespace

struct EngineWorker::Impl {
  explicit Impl(EngineWorker& worker) : owner(worker) {}

  std::uint64_t enqueue(std::function<void(const Ticket&)> work, bool outlivesWorker);
  /// A command whose `work(ticket)` gives the Value of the reply, or throws.
  template <typename Value, typename Work>
  Job give(Work work, Reply<Value> reply, bool outlivesWorker = false);
  /// Those that do not outlive the worker.
  void cancelMortal();
  void loop(std::stop_token quit);
  void carryOut(const Command& command);
  /// Throws when there is no model.
  engine::Engine& loaded() const;
  void releaseIfBothDoNotFit(const std::filesystem::path& folder, engine::WeightFormat weights);
  /// Calls `listener` on the worker object's thread, unless nobody waits for the command any more.
  template <typename... Values, typename... Arguments>
  void tell(const Ticket& ticket, const Progress<Values...>& listener, Arguments... arguments);
  /// The same for progress in bytes, not more often than a window can show it.
  ByteProgress throttled(const Ticket& ticket, ByteProgress listener);
  /// The same for a prefill, and reports memory beside it.
  std::function<void(const engine::PrefillProgress&)> throttled(
      const Ticket& ticket, Progress<const engine::PrefillProgress&> listener);
  void reportMemory();
  void reportMemoryNowAndThen() {
    if (memoryThrottle.isDue()) reportMemory();
  }

  EngineWorker& owner;
  Mailbox mailbox;
  std::set<std::uint64_t> awaited;           // the owner's thread only: commands without a reply
  std::unique_ptr<engine::Engine> engine;    // worker thread only
  Throttle memoryThrottle{kMemoryInterval};  // worker thread only

  std::mutex mutex;
  std::condition_variable_any wake;
  std::deque<Command> queue;      // guarded by mutex
  std::optional<Ticket> running;  // guarded by mutex
  std::uint64_t nextId = 1;       // guarded by mutex
  std::jthread thread;            // last: it uses all of the above
};

std::uint64_t EngineWorker::Impl::enqueue(std::function<void(const Ticket&)> work,
                                          bool outlivesWorker) {
  const std::lock_guard lock(mutex);
  const std::uint64_t id = nextId++;
  queue.push_back({{id, std::stop_source(), outlivesWorker}, std::move(work)});
  wake.notify_one();
  return id;
}

template <typename Value, typename Work>
Job EngineWorker::Impl::give(Work work, Reply<Value> reply, bool outlivesWorker) {
  auto attempt = [work = std::move(work)](const Ticket& ticket) -> Outcome<Value> {
    try {
      if (ticket.token().stop_requested()) {
        throw engine::Error(engine::ErrorCode::kCancelled, "Cancelled before it began.");
      }
      return work(ticket);
    } catch (...) {
      return currentErrorText();
    }
  };
  const std::uint64_t id = enqueue(
      [this, attempt = std::move(attempt), reply = std::move(reply)](const Ticket& ticket) {
        mailbox.post([this, id = ticket.id, reply, outcome = attempt(ticket)] {
          if (awaited.erase(id) > 0 && reply) reply(outcome);
        });
      },
      outlivesWorker);
  awaited.insert(id);
  return Job(owner, id);
}

template <typename... Values, typename... Arguments>
void EngineWorker::Impl::tell(const Ticket& ticket, const Progress<Values...>& listener,
                              Arguments... arguments) {
  if (!listener) return;
  mailbox.post([this, id = ticket.id, listener, arguments...] {
    if (awaited.contains(id)) listener(arguments...);
  });
}

void EngineWorker::Impl::loop(std::stop_token quit) {
  for (;;) {
    Command command;
    {
      std::unique_lock lock(mutex);
      running.reset();
      wake.wait(lock, quit, [this] { return !queue.empty(); });
      if (quit.stop_requested()) {
        std::erase_if(queue, [](const Command& waiting) { return !waiting.ticket.outlivesWorker; });
      }
      if (queue.empty()) return;
      command = std::move(queue.front());
      queue.pop_front();
      running = command.ticket;
    }
    carryOut(command);
  }
}

void EngineWorker::Impl::carryOut(const Command& command) {
  command.work(command.ticket);
  if (!engine) return;
  MemoryNews news{engine->memory(), std::nullopt};
  if (engine->isReady()) news.contents = engine->cacheContents();
  mailbox.post([this, news] { emit owner.memoryReported(news); });
}

engine::Engine& EngineWorker::Impl::loaded() const {
  if (!engine) {
    throw engine::Error(engine::ErrorCode::kInvalidArgument, "No model is loaded.",
                        "Choose a model folder first.");
  }
  return *engine;
}

void EngineWorker::Impl::reportMemory() {
  mailbox.post([this, news = MemoryNews{engine->memory(), std::nullopt}] {
    emit owner.memoryReported(news);
  });
}

EngineWorker::ByteProgress EngineWorker::Impl::throttled(const Ticket& ticket,
                                                         ByteProgress listener) {
  return [this, ticket, listener = std::move(listener), throttle = Throttle(kStreamInterval)](
             std::uint64_t done, std::uint64_t total) mutable {
    if (done >= total || throttle.isDue()) tell(ticket, listener, done, total);
  };
}

std::function<void(const engine::PrefillProgress&)> EngineWorker::Impl::throttled(
    const Ticket& ticket, Progress<const engine::PrefillProgress&> listener) {
  return [this, ticket, listener = std::move(listener),
          throttle = Throttle(kStreamInterval)](const engine::PrefillProgress& state) mutable {
    if (state.tokensDone >= state.tokensTotal || throttle.isDue()) tell(ticket, listener, state);
    reportMemoryNowAndThen();
  };
}

void EngineWorker::Impl::releaseIfBothDoNotFit(const std::filesystem::path& folder,
                                               engine::WeightFormat weights) {
  if (!engine) return;
  engine::PlanRequest plan;
  plan.model = engine::readModelConfig(folder);  // a folder that is no model costs nothing yet
  plan.weights = weights;
  plan.contextLength = 1;
  plan.chunkTokens = 1;
  plan.backendBytes = engine->memory().backend.deviceBytes;
  if (engine::planMemory(plan).total() <= engine->memory().device.freeBytes) return;
  engine.reset();
  mailbox.post([this] { emit owner.modelReleased(); });
}

EngineWorker::EngineWorker(QObject* parent)
    : QObject(parent), impl_(std::make_unique<Impl>(*this)) {
  impl_->thread = std::jthread([impl = impl_.get()](std::stop_token quit) { impl->loop(quit); });
}

EngineWorker::~EngineWorker() {
  impl_->thread.request_stop();
  impl_->cancelMortal();
  impl_->thread.join();
}

// --- Commands -----------------------------------------------------------------------------------

Job EngineWorker::loadModel(const QString& folder, const engine::EngineOptions& options,
                            ByteProgress progress, Reply<ModelInfo> reply) {
  auto work = [impl = impl_.get(), folder, options,
               progress = std::move(progress)](const Ticket& ticket) {
    const std::filesystem::path path = toPath(folder);
    impl->releaseIfBothDoNotFit(path, options.weights);
    impl->engine =
        engine::Engine::load(path, options, impl->throttled(ticket, progress), ticket.token());
    impl->engine->onDeviceRestart([impl](const std::string& sentence) {
      const engine::Engine& restarted = *impl->engine;
      const DeviceRestart restart{
          QString::fromStdString(sentence), QString::fromStdString(restarted.backendDescription()),
          QString::fromStdString(restarted.whyNotDevice()), restarted.isReady()};
      impl->mailbox.post([impl, restart] { emit impl->owner.deviceRestarted(restart); });
    });
    return modelInfo(*impl->engine, folder);
  };
  return impl_->give<ModelInfo>(std::move(work), std::move(reply));
}

Job EngineWorker::configureCache(const engine::KvCacheConfig& config, std::int64_t contextLength,
                                 Reply<ConfiguredCache> reply) {
  auto work = [impl = impl_.get(), config, contextLength](const Ticket& /*ticket*/) {
    engine::Engine& engine = impl->loaded();
    engine.configureCache(config, contextLength);
    engine::CacheConversion conversion;
    conversion.isInPlace = false;
    return ConfiguredCache{engine.cacheConfig(), engine.contextLength(), conversion};
  };
  return impl_->give<ConfiguredCache>(std::move(work), std::move(reply));
}

Job EngineWorker::convertCache(const engine::KvCacheConfig& config, std::int64_t contextLength,
                               ByteProgress progress, Reply<ConfiguredCache> reply) {
  auto work = [impl = impl_.get(), config, contextLength,
               progress = std::move(progress)](const Ticket& ticket) {
    engine::Engine& engine = impl->loaded();
    const auto onProgress = [&](std::uint64_t doneBytes, std::uint64_t totalBytes) {
      impl->tell(ticket, progress, doneBytes, totalBytes);
      impl->reportMemoryNowAndThen();
    };
    const engine::CacheConversion done =
        engine.convertCache(config, contextLength, onProgress, ticket.token());
    if (done.isCancelled) {
      throw engine::Error(
          engine::ErrorCode::kCancelled, "Switching the preset was cancelled.",
          done.pagesConverted > 0
              ? "Nothing of the chat is lost. The pages that were converted by then "
                "keep their fewer bits."
              : "The chat is as it was.");
    }
    return ConfiguredCache{engine.cacheConfig(), engine.contextLength(), done};
  };
  return impl_->give<ConfiguredCache>(std::move(work), std::move(reply));
}

void EngineWorker::setThreads(int threads) {
  auto work = [impl = impl_.get(), threads](const Ticket& /*ticket*/) {
    impl->loaded().setThreads(threads);
    return std::monostate();
  };
  impl_->give<std::monostate>(std::move(work), {}).detach();
}

void EngineWorker::clearCache() {
  auto work = [impl = impl_.get()](const Ticket& /*ticket*/) {
    impl->loaded().clear();
    return std::monostate();
  };
  impl_->give<std::monostate>(std::move(work), {}).detach();
}

Job EngineWorker::countTokens(const QString& text, ByteProgress progress,
                              Reply<std::int64_t> reply) {
  auto work = [impl = impl_.get(), text, progress = std::move(progress)](const Ticket& ticket) {
    engine::EncodeOptions encoding;
    encoding.stop = ticket.token();
    encoding.progress = impl->throttled(ticket, progress);
    const auto tokens = impl->loaded().tokenizer().encode(text.toStdString(), encoding);
    return static_cast<std::int64_t>(tokens.size());
  };
  return impl_->give<std::int64_t>(std::move(work), std::move(reply));
}

Job EngineWorker::encodePrompt(ChatPrompt prompt, Reply<EncodedPrompt> reply) {
  auto work = [impl = impl_.get(), prompt = std::move(prompt)](const Ticket& ticket) {
    const engine::Engine& engine = impl->loaded();
    engine::EncodeOptions encoding;
    encoding.stop = ticket.token();
    EncodedPrompt encoded;
    encoded.tokens = engine::encodeChat(engine.tokenizer(), prompt.system, prompt.turns, encoding);
    encoded.reusableTokens = engine.reusableTokens(encoded.tokens);
    return encoded;
  };
  return impl_->give<EncodedPrompt>(std::move(work), std::move(reply));
}

Job EngineWorker::prefill(std::vector<std::int32_t> prompt,
                          Progress<const engine::PrefillProgress&> progress,
                          Reply<PrefillOutcome> reply) {
  auto work = [impl = impl_.get(), prompt = std::move(prompt),
               progress = std::move(progress)](const Ticket& ticket) {
    engine::Engine& engine = impl->loaded();
    PrefillOutcome outcome;
    const auto onProgress = [&, tell = impl->throttled(ticket, progress)](
                                const engine::PrefillProgress& state) mutable {
      outcome.progress = state;
      tell(state);
    };
    const engine::PrefillResult result = engine.prefill(prompt, onProgress, ticket.token());
    outcome.progress.tokensDone = result.computedTokens;
    outcome.progress.tokensReused = result.reusedTokens;
    if (result.seconds > 0.0) {
      outcome.progress.tokensPerSecond =
          static_cast<double>(result.computedTokens) / result.seconds;
    }
    outcome.isCancelled = result.isCancelled;
    return outcome;
  };
  return impl_->give<PrefillOutcome>(std::move(work), std::move(reply));
}

Job EngineWorker::generate(std::vector<std::int32_t> prompt, const engine::GenerateOptions& options,
                           Progress<const engine::PrefillProgress&> progress,
                           Progress<const AnswerPiece&> grew, Reply<engine::GenerateResult> reply) {
  auto work = [impl = impl_.get(), prompt = std::move(prompt), options,
               progress = std::move(progress), grew = std::move(grew)](const Ticket& ticket) {
    engine::Engine& engine = impl->loaded();
    Throttle streamThrottle(kStreamInterval);
    AnswerPiece pending;
    const auto flush = [&] {
      if (!pending.text.isEmpty()) impl->tell(ticket, grew, pending);
      pending = AnswerPiece();
    };
    engine::GenerateObserver observer;
    observer.prefill = impl->throttled(ticket, progress);
    observer.token = [&](std::string_view text, std::int32_t /*token*/) {
      pending.text += QString::fromUtf8(text.data(), static_cast<qsizetype>(text.size()));
      ++pending.newTokens;
      if (streamThrottle.isDue()) flush();
      impl->reportMemoryNowAndThen();
    };
    const engine::GenerateResult result =
        engine.generate(prompt, options, observer, ticket.token());
    flush();
    return result;
  };
  return impl_->give<engine::GenerateResult>(std::move(work), std::move(reply));
}

Job EngineWorker::saveSession(const QString& path, std::uint64_t mostBytes,
                              Reply<std::uint64_t> reply) {
  auto work = [impl = impl_.get(), path, mostBytes](const Ticket& ticket) {
    const engine::Engine& engine = impl->loaded();
    const std::uint64_t bytes = engine.sessionBytes();
    if (bytes > mostBytes) {
      throwError(engine::ErrorCode::kInvalidArgument,
                 QStringLiteral("The chat's cache has %1 and is not kept on disk.")
                     .arg(QLocale::c().formattedDataSize(static_cast<qint64>(bytes))),
                 QStringLiteral("The settings allow %1 for all of them.")
                     .arg(QLocale::c().formattedDataSize(static_cast<qint64>(mostBytes))));
    }
    engine.saveSession(toPath(path), {}, ticket.token());
    return bytes;
  };
  return impl_->give<std::uint64_t>(std::move(work), std::move(reply), /*outlivesWorker=*/true);
}

Job EngineWorker::restoreSession(const QString& path, ByteProgress progress,
                                 Reply<std::int64_t> reply) {
  auto work = [impl = impl_.get(), path, progress = std::move(progress)](const Ticket& ticket) {
    return impl->loaded().restoreSession(toPath(path), impl->throttled(ticket, progress),
                                         ticket.token());
  };
  return impl_->give<std::int64_t>(std::move(work), std::move(reply));
}

Job EngineWorker::checkQuality(QualityCheckRequest request,
                               Progress<const QualityCheckProgress&> progress,
                               Reply<QualityCheckResult> reply) {
  auto work = [impl = impl_.get(), request = std::move(request),
               progress = std::move(progress)](const Ticket& ticket) {
    const auto onProgress = [&](const QualityCheckProgress& state) {
      impl->tell(ticket, progress, state);
      impl->reportMemoryNowAndThen();
    };
    return app::checkQuality(impl->loaded(), request, onProgress, ticket.token());
  };
  return impl_->give<QualityCheckResult>(std::move(work), std::move(reply));
}

// --- Of jobs ------------------------------------------------------------------------------------

bool EngineWorker::isAwaited(std::uint64_t command) const {
  return impl_->awaited.contains(command);
}

void EngineWorker::cancel(std::uint64_t command) {
  const std::lock_guard lock(impl_->mutex);
  if (impl_->running && impl_->running->id == command) impl_->running->stop.request_stop();
  for (Command& waiting : impl_->queue) {
    if (waiting.ticket.id == command) waiting.ticket.stop.request_stop();
  }
}

void EngineWorker::forget(std::uint64_t command) { impl_->awaited.erase(command); }

void EngineWorker::Impl::cancelMortal() {
  const std::lock_guard lock(mutex);
  if (running && !running->outlivesWorker) running->stop.request_stop();
  for (Command& waiting : queue) {
    if (!waiting.ticket.outlivesWorker) waiting.ticket.stop.request_stop();
  }
}

}  // namespace longhand::app
