#pragma once
// The part of an Engine that a broken device takes along: the backend and what lies in its memory,
// which are weights, graph and session. It is made at the start, and again after a fault.

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <stop_token>
#include <string>

#include "engine/backend_factory.h"
#include "engine/base/error.h"
#include "engine/base/memory_ledger.h"
#include "engine/engine_options.h"
#include "engine/graph/llama.h"
#include "engine/model/model.h"
#include "engine/session/session.h"

namespace longhand::engine {

/// Everything a Machine is told when it begins. The references must outlive it.
struct MachineSetup {
  const EngineOptions& options;
  MemoryLedger& ledger;
  SessionCounts& counts;
  /// Brings the weights into a backend's memory.
  std::function<std::unique_ptr<Model>(kernels::Backend&, MemoryLedger&, const LoadProgress&,
                                       std::stop_token)>
      makeModel;
  /// The model's config as the user wants it.
  std::function<ModelConfig(const Model&)> configOf;
};

/// Owner: one Engine, one thread at a time, except where a function says "any thread".
class Machine {
 public:
  /// Where the options say `auto` and the device is too small or broken, everything is made again
  /// on the CPU. Throws as createBackend(), loadModel() and Session do.
  Machine(const MachineSetup& setup, const LoadProgress& progress, std::stop_token stop);
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;
  ~Machine();

  // These make the machine again where an earlier restart() could not, and throw as that does.
  kernels::Backend& backend() { return *parts().backend; }
  const Model& model() { return *parts().model; }
  Llama& llama() { return *parts().llama; }
  Session& session() { return *parts().session; }

  /// False where they would.
  bool isThere() const { return parts_.session != nullptr; }

  const ModelConfig& config() const { return config_; }  // any thread
  std::string description() const;                       // any thread
  std::string whyNotDevice() const;                      // any thread
  /// What the device says of its memory, and what the backend holds for itself, which is brought up
  /// to date in the ledger. Any thread; zeros while there is no machine.
  kernels::DeviceMemoryInfo memoryInfo() const;
  kernels::OwnMemory ownMemory() const;

  /// A new, empty session. Throws (kInvalidArgument, kOutOfMemory) and keeps the old one then.
  void replaceSession(const KvCacheConfig& cache, std::int64_t contextLength);
  void setThreads(int threads);

  /// After an Error kDevice: takes everything down, makes it anew on the same device, or on the CPU
  /// where that does not work or the device has failed too often, and tells the observer in one
  /// sentence. The session is then empty, with the settings of the old one. Throws `fault` when it
  /// was not a device's; kDevice when only the device is allowed and does not start; as the
  /// constructor when no machine can be made. The next use tries again.
  void restart(const Error& fault, const std::stop_token& stop);
  /// Calls compute(session()), after device faults again with the new session.
  template <typename Compute>
  auto recovering(const std::stop_token& stop, const Compute& compute) {
    for (;;) {
      try {
        return compute(session());
      } catch (const Error& error) {
        if (error.code() != ErrorCode::kDevice) throw;
        restart(error, stop);
      }
    }
  }
  /// A command has come to its end: what fails next is not the same fault again.
  void forgiveFault() { nFaultsInCommand_ = 0; }
  /// Called on the engine's thread, at the end of a restart(), also of one that failed, and when a
  /// later command finds another device than before.
  void setObserver(std::function<void(const std::string& sentence)> observer) {
    observer_ = std::move(observer);
  }

 private:
  /// Destroyed from the last to the first: each may use those above it.
  struct Parts {
    std::unique_ptr<kernels::Backend> backend;
    std::unique_ptr<Model> model;
    std::unique_ptr<Llama> llama;
    std::unique_ptr<Session> session;
  };

  Parts& parts();
  Parts makeParts(const std::string& backendName, const LoadProgress& progress,
                  const std::stop_token& stop);
  /// On the device where that is allowed, else on the CPU.
  void make(bool mayUseDevice, const LoadProgress& progress, const std::stop_token& stop);
  void drop();
  std::unique_ptr<Session> makeSession(const Parts& parts, const KvCacheConfig& cache,
                                       std::int64_t contextLength) const;
  void countOwnMemory(std::uint64_t deviceBytes) const;

  MachineSetup setup_;
  ModelConfig config_;
  KvCacheConfig cache_;             // of the session, or of the one to be made
  std::int64_t contextLength_ = 0;  // likewise; 0: the model's trained length
  int threads_ = 0;
  int nFaults_ = 0;
  int nFaultsInCommand_ = 0;
  std::function<void(const std::string&)> observer_;

  mutable std::mutex mutex_;  // of all that follows, for "any thread"
  Parts parts_;
  std::string description_;
  std::string whyNotDevice_;
  mutable std::uint64_t countedOwnBytes_ = 0;  // in the ledger
};

}  // namespace longhand::engine
