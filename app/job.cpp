#include "app/job.h"

#include "app/engine_worker.h"

namespace longhand::app {

Job::Job(EngineWorker& worker, std::uint64_t id) : worker_(&worker), id_(id) {}

Job::~Job() { drop(); }

Job::Job(Job&& other) noexcept
    : worker_(std::exchange(other.worker_, {})), id_(std::exchange(other.id_, 0)) {}

Job& Job::operator=(Job&& other) noexcept {
  if (this == &other) return *this;
  drop();
  worker_ = std::exchange(other.worker_, {});
  id_ = std::exchange(other.id_, 0);
  return *this;
}

bool Job::isUnderWay() const { return worker_ && worker_->isAwaited(id_); }

void Job::cancel() {
  if (worker_) worker_->cancel(id_);
}

void Job::detach() {
  if (worker_) worker_->forget(id_);
  worker_.clear();
}

void Job::drop() {
  if (!isUnderWay()) return;
  worker_->cancel(id_);
  worker_->forget(id_);
}

}  // namespace longhand::app
