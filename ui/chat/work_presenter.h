#pragma once
// What the engine does for the open chat besides reading and answering, as a card with Cancel above
// the composer: converting the cache to another preset, and opening a saved one. What takes no
// noticeable time shows no card.

#include <QElapsedTimer>
#include <QObject>

#include "app/chat_controller.h"

namespace longhand::ui {

class ProgressCard;

class WorkPresenter final : public QObject {
  Q_OBJECT
  Q_DISABLE_COPY_MOVE(WorkPresenter)

 public:
  /// Both must outlive the presenter.
  WorkPresenter(app::ChatController& controller, ProgressCard& card, QObject* parent);

 private:
  enum class Work { kNone, kConverting, kRestoring };

  void show(Work work, const QString& title, quint64 doneBytes, quint64 totalBytes);
  void end();

  app::ChatController& controller_;
  ProgressCard& card_;
  Work work_ = Work::kNone;
  QElapsedTimer sinceBegin_;
};

}  // namespace longhand::ui
