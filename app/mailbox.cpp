#include "app/mailbox.h"

#include <utility>

namespace longhand::app {

Mailbox::Mailbox() {
  connect(this, &Mailbox::posted, this, &Mailbox::deliver, Qt::QueuedConnection);
}

void Mailbox::post(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(work));
  }
  // One delivery for each piece, so that a nested event loop cannot change the order.
  emit posted();
}

void Mailbox::deliver() {
  std::function<void()> work;
  {
    const std::lock_guard lock(mutex_);
    work = std::move(waiting_.front());
    waiting_.pop_front();
  }
  work();
}

}  // namespace longhand::app
