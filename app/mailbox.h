#pragma once
// Carries work from other threads to the thread it was made on, one piece an event, in order.
//
// Qt's queued calls with arguments would do, but thread sanitizers do not see what Debian's Qt
// synchronizes; the mutex here they see.

#include <deque>
#include <functional>
#include <mutex>

#include <QObject>

namespace longhand::app {

class Mailbox final : public QObject {
  Q_OBJECT
  Q_DISABLE_COPY_MOVE(Mailbox)

 public:
  Mailbox();

  /// Any thread. What has not been delivered when the mailbox dies is dropped.
  void post(std::function<void()> work);

 signals:
  void posted();

 private:
  void deliver();

  std::mutex mutex_;
  std::deque<std::function<void()>> waiting_;  // guarded by mutex_
};

}  // namespace longhand::app
