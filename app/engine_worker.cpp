#include "app/engine_worker.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>

#include <QFile>
#include <QLocale>

#include "app/mailbox.h"
#include "app/model_catalog.h"
#include "engine/memory_plan.h"

namespace longhand::app {

namespace {

using Clock = std::chrono::steady_clock;

/// Lets something through at most once per interval; the first time always.
class Throttle {
 public:
  explicit Throttle(std::chrono::milliseconds interval) : interval_(interval) {}

  bool isDue() {
    const Clock::time_point now = Clock::now();
    if (last_ && now - *last_ < interval_) return false;
    last_ = now;
    return true;
  }

 private:
  std::chrono::milliseconds interval_;
  std::optional<Clock::time_point> last_;
};

// One update a frame is all that a window can show.
constexpr std::chrono::milliseconds kStreamInterval{33};
constexpr std::chrono::milliseconds kMemoryInterval{250};

struct Ticket {
  CommandId id = 0;
  std::stop_source stop;
  bool outlivesWorker = false;  // is carried out even when the worker is being destroyed
};

struct Command {
  Ticket ticket;
  std::function<void(CommandId, std::stop_token)> work;
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

  CommandId enqueue(std::function<void(CommandId, std::stop_token)> work,
                    bool outlivesWorker = false);
  /// Also of those that outlive the worker, if `all`.
  void cancel(bool all);
  void loop(std::stop_token quit);
  void carryOut(const Command& command);
  /// Throws when there is no model.
  engine::Engine& loaded() const;
  void releaseIfBothDoNotFit(CommandId id, const std::filesystem::path& folder,
                             engine::WeightFormat weights);
  /// Emits a signal of the worker on its own thread.
  template <typename Event>
  void post(void (EngineWorker::*signal)(const Event&), const Event& event) {
    mailbox.post([worker = &owner, signal, event] { emit(worker->*signal)(event); });
  }
  engine::SessionProgress sessionProgress(CommandId id);
  void reportMemory();
  void reportMemoryNowAndThen() {
    if (memoryThrottle.isDue()) reportMemory();
  }

  EngineWorker& owner;
  Mailbox mailbox;
  std::unique_ptr<engine::Engine> engine;    // worker thread only
  Throttle memoryThrottle{kMemoryInterval};  // worker thread only

  std::mutex mutex;
  std::condition_variable_any wake;
  std::deque<Command> queue;      // guarded by mutex
  std::optional<Ticket> running;  // guarded by mutex
  CommandId nextId = 1;           // guarded by mutex
  std::jthread thread;            // last: it uses all of the above
};

CommandId EngineWorker::Impl::enqueue(std::function<void(CommandId, std::stop_token)> work,
                                      bool outlivesWorker) {
  const std::lock_guard lock(mutex);
  const CommandId id = nextId++;
  queue.push_back({{id, std::stop_source(), outlivesWorker}, std::move(work)});
  wake.notify_one();
  return id;
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
  try {
    const std::stop_token stop = command.ticket.stop.get_token();
    if (stop.stop_requested()) {
      throw engine::Error(engine::ErrorCode::kCancelled, "Cancelled before it began.");
    }
    command.work(command.ticket.id, stop);
  } catch (...) {
    post(&EngineWorker::commandFailed, CommandFailedEvent{command.ticket.id, currentErrorText()});
  }
  if (!engine) return;
  MemoryEvent event{engine->memory(), std::nullopt};
  if (engine->isReady()) event.contents = engine->cacheContents();
  post(&EngineWorker::memoryReported, event);
}

engine::Engine& EngineWorker::Impl::loaded() const {
  if (!engine) {
    throw engine::Error(engine::ErrorCode::kInvalidArgument, "No model is loaded.",
                        "Choose a model folder first.");
  }
  return *engine;
}

void EngineWorker::Impl::reportMemory() {
  post(&EngineWorker::memoryReported, MemoryEvent{engine->memory(), std::nullopt});
}

void EngineWorker::Impl::releaseIfBothDoNotFit(CommandId id, const std::filesystem::path& folder,
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
  post(&EngineWorker::modelReleased, ModelReleasedEvent{id});
}

EngineWorker::EngineWorker(QObject* parent)
    : QObject(parent), impl_(std::make_unique<Impl>(*this)) {
  impl_->thread = std::jthread([impl = impl_.get()](std::stop_token quit) { impl->loop(quit); });
}

EngineWorker::~EngineWorker() {
  impl_->thread.request_stop();
  impl_->cancel(false);
  impl_->thread.join();
}

CommandId EngineWorker::loadModel(const QString& folder, const engine::EngineOptions& options) {
  return impl_->enqueue([impl = impl_.get(), folder, options](CommandId id, std::stop_token stop) {
    const std::filesystem::path path = toPath(folder);
    impl->releaseIfBothDoNotFit(id, path, options.weights);
    Throttle throttle(kStreamInterval);
    const auto progress = [&](std::uint64_t done, std::uint64_t total) {
      if (done >= total || throttle.isDue()) {
        impl->post(&EngineWorker::modelLoadProgressed, LoadProgressEvent{id, done, total});
      }
    };
    impl->engine = engine::Engine::load(path, options, progress, stop);
    impl->engine->onDeviceRestart([impl](const std::string& sentence) {
      const engine::Engine& restarted = *impl->engine;
      impl->post(&EngineWorker::deviceRestarted,
                 DeviceRestartedEvent{QString::fromStdString(sentence),
                                      QString::fromStdString(restarted.backendDescription()),
                                      QString::fromStdString(restarted.whyNotDevice()),
                                      restarted.isReady()});
    });
    impl->post(&EngineWorker::modelLoaded, ModelLoadedEvent{id, modelInfo(*impl->engine, folder)});
  });
}

CommandId EngineWorker::configureCache(const engine::KvCacheConfig& config,
                                       std::int64_t contextLength) {
  return impl_->enqueue([impl = impl_.get(), config, contextLength](CommandId id,
                                                                    std::stop_token /*stop*/) {
    engine::Engine& engine = impl->loaded();
    engine.configureCache(config, contextLength);
    engine::CacheConversion conversion;
    conversion.isInPlace = false;
    impl->post(&EngineWorker::cacheConfigured,
               CacheConfiguredEvent{id, engine.cacheConfig(), engine.contextLength(), conversion});
  });
}

CommandId EngineWorker::convertCache(const engine::KvCacheConfig& config,
                                     std::int64_t contextLength) {
  return impl_->enqueue([impl = impl_.get(), config, contextLength](CommandId id,
                                                                    std::stop_token stop) {
    engine::Engine& engine = impl->loaded();
    const auto progress = [&](std::uint64_t doneBytes, std::uint64_t totalBytes) {
      impl->post(&EngineWorker::convertProgressed, ConvertProgressEvent{id, doneBytes, totalBytes});
      impl->reportMemoryNowAndThen();
    };
    const engine::CacheConversion done = engine.convertCache(config, contextLength, progress, stop);
    if (done.isCancelled) {
      throw engine::Error(
          engine::ErrorCode::kCancelled, "Switching the preset was cancelled.",
          done.pagesConverted > 0
              ? "Nothing of the chat is lost. The pages that were converted by then "
                "keep their fewer bits."
              : "The chat is as it was.");
    }
    impl->post(&EngineWorker::cacheConfigured,
               CacheConfiguredEvent{id, engine.cacheConfig(), engine.contextLength(), done});
  });
}

CommandId EngineWorker::setThreads(int threads) {
  return impl_->enqueue([impl = impl_.get(), threads](CommandId /*id*/, std::stop_token /*stop*/) {
    impl->loaded().setThreads(threads);
  });
}

CommandId EngineWorker::clearCache() {
  return impl_->enqueue(
      [impl = impl_.get()](CommandId /*id*/, std::stop_token /*stop*/) { impl->loaded().clear(); });
}

CommandId EngineWorker::countTokens(const QString& text) {
  return impl_->enqueue([impl = impl_.get(), text](CommandId id, std::stop_token stop) {
    Throttle throttle(kStreamInterval);
    engine::EncodeOptions encoding;
    encoding.stop = stop;
    encoding.progress = [&](std::uint64_t done, std::uint64_t total) {
      if (done >= total || throttle.isDue()) {
        impl->post(&EngineWorker::tokenCountProgressed, TokenCountProgressEvent{id, done, total});
      }
    };
    const auto tokens = impl->loaded().tokenizer().encode(text.toStdString(), encoding);
    impl->post(&EngineWorker::tokensCounted,
               TokensCountedEvent{id, static_cast<std::int64_t>(tokens.size())});
  });
}

CommandId EngineWorker::encodePrompt(ChatPrompt prompt) {
  return impl_->enqueue([impl = impl_.get(), prompt = std::move(prompt)](CommandId id,
                                                                         std::stop_token stop) {
    const engine::Engine& engine = impl->loaded();
    engine::EncodeOptions encoding;
    encoding.stop = std::move(stop);
    PromptEncodedEvent event;
    event.command = id;
    event.tokens = engine::encodeChat(engine.tokenizer(), prompt.system, prompt.turns, encoding);
    event.reusableTokens = engine.reusableTokens(event.tokens);
    impl->post(&EngineWorker::promptEncoded, event);
  });
}

CommandId EngineWorker::prefill(std::vector<std::int32_t> prompt) {
  return impl_->enqueue([impl = impl_.get(), prompt = std::move(prompt)](CommandId id,
                                                                         std::stop_token stop) {
    engine::Engine& engine = impl->loaded();
    PrefillFinishedEvent event;
    event.command = id;
    Throttle throttle(kStreamInterval);
    const auto onProgress = [&](const engine::PrefillProgress& progress) {
      event.progress = progress;
      if (progress.tokensDone >= progress.tokensTotal || throttle.isDue()) {
        impl->post(&EngineWorker::prefillProgressed, PrefillProgressEvent{id, progress});
      }
      impl->reportMemoryNowAndThen();
    };
    const engine::PrefillResult result = engine.prefill(prompt, onProgress, stop);
    event.progress.tokensDone = result.computedTokens;
    event.progress.tokensReused = result.reusedTokens;
    if (result.seconds > 0.0) {
      event.progress.tokensPerSecond = static_cast<double>(result.computedTokens) / result.seconds;
    }
    event.cancelled = result.isCancelled;
    impl->post(&EngineWorker::prefillFinished, event);
  });
}

CommandId EngineWorker::generate(std::vector<std::int32_t> prompt,
                                 const engine::GenerateOptions& options) {
  return impl_->enqueue([impl = impl_.get(), prompt = std::move(prompt), options](
                            CommandId id, std::stop_token stop) {
    engine::Engine& engine = impl->loaded();
    Throttle prefillThrottle(kStreamInterval);
    Throttle streamThrottle(kStreamInterval);
    AnswerGrewEvent pending;
    pending.command = id;
    const auto flush = [&] {
      if (!pending.text.isEmpty()) impl->post(&EngineWorker::answerGrew, pending);
      pending.text.clear();
      pending.newTokens = 0;
    };

    engine::GenerateObserver observer;
    observer.prefill = [&](const engine::PrefillProgress& progress) {
      if (progress.tokensDone >= progress.tokensTotal || prefillThrottle.isDue()) {
        impl->post(&EngineWorker::prefillProgressed, PrefillProgressEvent{id, progress});
      }
      impl->reportMemoryNowAndThen();
    };
    observer.token = [&](std::string_view text, std::int32_t /*token*/) {
      pending.text += QString::fromUtf8(text.data(), static_cast<qsizetype>(text.size()));
      ++pending.newTokens;
      if (streamThrottle.isDue()) flush();
      impl->reportMemoryNowAndThen();
    };
    const engine::GenerateResult result = engine.generate(prompt, options, observer, stop);
    flush();
    impl->post(&EngineWorker::answerFinished, AnswerFinishedEvent{id, result});
  });
}

CommandId EngineWorker::saveSession(const QString& path, std::uint64_t mostBytes) {
  const auto work = [impl = impl_.get(), path, mostBytes](CommandId id, std::stop_token stop) {
    const engine::Engine& engine = impl->loaded();
    const std::uint64_t bytes = engine.sessionBytes();
    if (bytes > mostBytes) {
      throwError(engine::ErrorCode::kInvalidArgument,
                 QStringLiteral("The chat's cache has %1 and is not kept on disk.")
                     .arg(QLocale::c().formattedDataSize(static_cast<qint64>(bytes))),
                 QStringLiteral("The settings allow %1 for all of them.")
                     .arg(QLocale::c().formattedDataSize(static_cast<qint64>(mostBytes))));
    }
    engine.saveSession(toPath(path), impl->sessionProgress(id), stop);
    impl->post(&EngineWorker::sessionSaved, SessionSavedEvent{id, bytes});
  };
  return impl_->enqueue(work, /*outlivesWorker=*/true);
}

CommandId EngineWorker::restoreSession(const QString& path) {
  return impl_->enqueue([impl = impl_.get(), path](CommandId id, std::stop_token stop) {
    const std::int64_t tokens =
        impl->loaded().restoreSession(toPath(path), impl->sessionProgress(id), stop);
    impl->post(&EngineWorker::sessionRestored, SessionRestoredEvent{id, tokens});
  });
}

CommandId EngineWorker::checkQuality(QualityCheckRequest request) {
  return impl_->enqueue(
      [impl = impl_.get(), request = std::move(request)](CommandId id, std::stop_token stop) {
        const auto progress = [&](const QualityCheckProgress& state) {
          impl->post(&EngineWorker::qualityProgressed, QualityProgressEvent{id, state});
          impl->reportMemoryNowAndThen();
        };
        const QualityCheckResult result =
            app::checkQuality(impl->loaded(), request, progress, std::move(stop));
        impl->post(&EngineWorker::qualityChecked, QualityCheckedEvent{id, result});
      });
}

engine::SessionProgress EngineWorker::Impl::sessionProgress(CommandId id) {
  return [this, id, throttle = std::make_shared<Throttle>(kStreamInterval)](std::uint64_t done,
                                                                            std::uint64_t total) {
    if (done >= total || throttle->isDue()) {
      post(&EngineWorker::sessionProgressed, SessionProgressEvent{id, done, total});
    }
  };
}

void EngineWorker::cancel(CommandId command) {
  const std::lock_guard lock(impl_->mutex);
  if (impl_->running && impl_->running->id == command) impl_->running->stop.request_stop();
  for (Command& waiting : impl_->queue) {
    if (waiting.ticket.id == command) waiting.ticket.stop.request_stop();
  }
}

void EngineWorker::cancelAll() { impl_->cancel(true); }

void EngineWorker::Impl::cancel(bool all) {
  const std::lock_guard lock(mutex);
  if (running && (all || !running->outlivesWorker)) running->stop.request_stop();
  for (Command& waiting : queue) {
    if (all || !waiting.ticket.outlivesWorker) waiting.ticket.stop.request_stop();
  }
}

}  // namespace longhand::app
