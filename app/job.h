#pragma once
// A command given to the EngineWorker, and what comes back: one reply, its result or why there is
// none. The object's thread only, as the worker's functions.

#include <cstdint>
#include <functional>
#include <utility>
#include <variant>

#include <QPointer>

#include "app/error_text.h"

namespace longhand::app {

class EngineWorker;

/// The result of a command, or its failure. Cancelling a command that gives no partial result ends
/// it with the code kCancelled.
template <typename Value>
class Outcome {
 public:
  Outcome(Value value) : state_(std::move(value)) {}
  Outcome(ErrorText error) : state_(std::move(error)) {}

  explicit operator bool() const { return std::holds_alternative<Value>(state_); }
  const Value& operator*() const { return std::get<Value>(state_); }
  const Value* operator->() const { return &std::get<Value>(state_); }
  const ErrorText& error() const { return std::get<ErrorText>(state_); }
  bool isCancelled() const { return !*this && error().code == engine::ErrorCode::kCancelled; }

 private:
  std::variant<Value, ErrorText> state_;
};

/// Called once, later, on the thread that has given the command; replies come in the order of the
/// commands. It may be empty.
template <typename Value>
using Reply = std::function<void(const Outcome<Value>&)>;

/// Called now and then before the reply, on the same thread. It may be empty.
template <typename... Values>
using Progress = std::function<void(Values...)>;

/// Dropped or replaced, the command is cancelled and nothing more is heard of it. May outlive the
/// worker.
class Job {
 public:
  Job() = default;
  Job(EngineWorker& worker, std::uint64_t id);
  ~Job();
  Job(Job&& other) noexcept;
  Job& operator=(Job&& other) noexcept;
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  /// From its command to its reply; in the reply it is over already.
  bool isUnderWay() const;
  /// Takes effect at once on the running command; a waiting one will fail with kCancelled. The
  /// reply comes in any case.
  void cancel();
  /// The command is carried out all the same, and nothing more is heard of it.
  void detach();

 private:
  void drop();

  QPointer<EngineWorker> worker_;
  std::uint64_t id_ = 0;
};

}  // namespace longhand::app
