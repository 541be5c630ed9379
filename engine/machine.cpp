#include "engine/machine.h"

#include <algorithm>
#include <utility>

namespace longhand::engine {
namespace {

/// A device that fails oftener is not trusted any more.
constexpr int kMostFaults = 3;

bool isOfDevice(const Error& error) {
  return error.code() == ErrorCode::kOutOfMemory || error.code() == ErrorCode::kDevice;
}

/// "a fault." to "a fault": to go on with the sentence.
std::string withoutFullStop(std::string text) {
  if (text.ends_with('.')) text.pop_back();
  return text;
}

}  // namespace

Machine::Machine(const MachineSetup& setup, const LoadProgress& progress, std::stop_token stop)
    : setup_(setup),
      cache_(setup.options.cache),
      contextLength_(setup.options.contextLength),
      threads_(setup.options.threads) {
  make(/*mayUseDevice=*/true, progress, stop);
}

Machine::~Machine() { drop(); }

Machine::Parts Machine::makeParts(const std::string& backendName, const LoadProgress& progress,
                                  const std::stop_token& stop) {
  ChosenBackend chosen = createBackend({.threads = threads_,
                                        .cpuPath = setup_.options.cpuPath,
                                        .backend = backendName,
                                        .cudaPlugin = setup_.options.cudaPlugin,
                                        .longestFloatRow = setup_.options.longestFloatRow});
  Parts parts;
  parts.backend = std::move(chosen.backend);
  {
    const std::lock_guard lock(mutex_);
    description_ = parts.backend->description();
    whyNotDevice_ = chosen.whyNotDevice;
    countOwnMemory(parts.backend->ownMemory().deviceBytes);
  }
  try {
    parts.model = setup_.makeModel(*parts.backend, setup_.ledger, progress, stop);
    config_ = setup_.configOf(*parts.model);
    parts.llama = std::make_unique<Llama>(*parts.backend, setup_.ledger, *parts.model, config_);
    parts.session = makeSession(parts, cache_, contextLength_);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    countOwnMemory(0);
    throw;
  }
  return parts;
}

void Machine::make(bool mayUseDevice, const LoadProgress& progress, const std::stop_token& stop) {
  const std::string& wanted = setup_.options.backend;
  std::string whyNotDevice;
  if (mayUseDevice) {
    try {
      Parts parts = makeParts(wanted, progress, stop);
      const std::lock_guard lock(mutex_);
      parts_ = std::move(parts);
      return;
    } catch (const Error& error) {
      // On the CPU already: there is nothing to fall back on.
      const bool wasDevice = whyNotDevice_.empty();
      if (wanted != "auto" || !wasDevice || !isOfDevice(error)) throw;
      whyNotDevice = description_ + ": " + error.message();
    }
  }
  Parts parts = makeParts("cpu", progress, stop);
  const std::lock_guard lock(mutex_);
  parts_ = std::move(parts);
  whyNotDevice_ = whyNotDevice;
}

void Machine::drop() {
  Parts old;
  {
    const std::lock_guard lock(mutex_);
    std::swap(old, parts_);
    countOwnMemory(0);
  }
  // As members of Parts are destroyed, but not under the lock.
  old.session.reset();
  old.llama.reset();
  old.model.reset();
  old.backend.reset();
}

Machine::Parts& Machine::parts() {
  if (parts_.session == nullptr) {
    const std::string before = description();
    make(nFaults_ < kMostFaults || setup_.options.backend == "cuda", {}, {});
    if (const std::string now = description(); observer_ && now != before) {
      observer_(before + " is not used any more; " + now + " goes on.");
    }
  }
  return parts_;
}

std::unique_ptr<Session> Machine::makeSession(const Parts& parts, const KvCacheConfig& cache,
                                              std::int64_t contextLength) const {
  const std::int64_t length = contextLength == 0 ? config_.trainedLength : contextLength;
  const MemoryUse now = setup_.ledger.use();
  std::uint64_t oldCacheBytes = now[MemoryCategory::kKvCodes] + now[MemoryCategory::kKvScales] +
                                now[MemoryCategory::kKvExact];
  if (parts.session && parts.backend->usesHostMemory()) {
    // What was never written counts as free already.
    oldCacheBytes -= std::min(oldCacheBytes, parts.session->untouchedBytes());
  }
  return std::make_unique<Session>(SessionSetup{*parts.backend, setup_.ledger, *parts.llama,
                                                config_, setup_.counts, cache, length,
                                                setup_.options.chunkTokens, oldCacheBytes});
}

void Machine::replaceSession(const KvCacheConfig& cache, std::int64_t contextLength) {
  Parts& now = parts();
  now.session = makeSession(now, cache, contextLength);
  cache_ = cache;
  contextLength_ = contextLength;
}

void Machine::setThreads(int threads) {
  threads_ = threads;
  Parts& now = parts();
  const std::lock_guard lock(mutex_);
  now.backend->setThreads(threads);
  description_ = now.backend->description();
}

std::string Machine::description() const {
  const std::lock_guard lock(mutex_);
  return description_;
}

std::string Machine::whyNotDevice() const {
  const std::lock_guard lock(mutex_);
  return whyNotDevice_;
}

kernels::DeviceMemoryInfo Machine::memoryInfo() const {
  const std::lock_guard lock(mutex_);
  return parts_.backend == nullptr ? kernels::DeviceMemoryInfo() : parts_.backend->memoryInfo();
}

kernels::OwnMemory Machine::ownMemory() const {
  const std::lock_guard lock(mutex_);
  if (parts_.backend == nullptr) return {};
  const kernels::OwnMemory own = parts_.backend->ownMemory();
  countOwnMemory(own.deviceBytes);
  return own;
}

void Machine::countOwnMemory(std::uint64_t deviceBytes) const {
  setup_.ledger.add(MemoryCategory::kWorkspace, deviceBytes);
  setup_.ledger.subtract(MemoryCategory::kWorkspace, countedOwnBytes_);
  countedOwnBytes_ = deviceBytes;
}

void Machine::restart(const Error& fault, const std::stop_token& stop) {
  if (parts_.backend == nullptr || parts_.backend->usesHostMemory()) throw fault;
  ++nFaults_;
  ++nFaultsInCommand_;
  const std::string device = description_;
  if (parts_.session != nullptr) {
    cache_ = parts_.session->cacheConfig();
    contextLength_ = parts_.session->contextLength();
  }
  drop();

  const std::string what = device + " has failed (" + withoutFullStop(fault.message()) + ")";
  const bool isTrusted = nFaultsInCommand_ < 2 && nFaults_ < kMostFaults;
  const bool needsDevice = setup_.options.backend == "cuda";
  if (needsDevice && !isTrusted) {
    throw Error(ErrorCode::kDevice, what + ", again.", "Use the backend auto or cpu.");
  }
  try {
    make(isTrusted, {}, stop);
  } catch (const Error& error) {
    // What had been read is lost whether or not a model is there again.
    if (observer_) observer_(what + "; what had been read will be read again.");
    if (error.code() == ErrorCode::kCancelled) throw;
    throw Error(error.code(),
                what + ", and the model could not be loaded again: " + error.message(),
                error.hint().empty() ? "Restart Longhand." : error.hint());
  }
  std::string sentence = what;
  if (!parts_.backend->usesHostMemory()) {
    sentence += " and was started again; what had been read is read again.";
  } else {
    const std::string why =
        whyNotDevice_.empty() ? "" : " (" + withoutFullStop(whyNotDevice_) + ")";
    sentence += isTrusted ? " and does not start again" + why + ": the CPU goes on."
                          : " again: the CPU goes on.";
    const std::lock_guard lock(mutex_);
    whyNotDevice_ = sentence;
  }
  if (observer_) observer_(sentence);
}

}  // namespace longhand::engine
