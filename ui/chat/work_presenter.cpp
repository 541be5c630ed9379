#include "ui/chat/work_presenter.h"

#include "ui/style/format.h"
#include "ui/style/progress_card.h"

namespace longhand::ui {

using app::Activity;
using app::ChatController;

namespace {
// A card that is gone before it was read only startles.
constexpr int kNoticeableMs = 300;
}  // namespace

WorkPresenter::WorkPresenter(ChatController& controller, ProgressCard& card, QObject* parent)
    : QObject(parent), controller_(controller), card_(card) {
  connect(&controller_, &ChatController::convertProgress, this,
          [this](quint64 doneBytes, quint64 totalBytes) {
            show(Work::kConverting, tr("Switching the preset: converting what was read"), doneBytes,
                 totalBytes);
          });
  connect(&controller_, &ChatController::restoreProgress, this,
          [this](quint64 doneBytes, quint64 totalBytes) {
            show(Work::kRestoring, tr("Opening the saved document"), doneBytes, totalBytes);
          });
  connect(&card_, &ProgressCard::cancelRequested, this, [this] {
    if (work_ == Work::kConverting) controller_.cancelSwitch();
    if (work_ == Work::kRestoring) controller_.cancelRestoring();
  });
  connect(&controller_, &ChatController::presetSwitched, this, &WorkPresenter::end);
  connect(&controller_, &ChatController::sessionRestored, this, &WorkPresenter::end);
  // Both may stand in front of an answer, which is the activity then.
  connect(&controller_, &ChatController::generationStarted, this, &WorkPresenter::end);
  connect(&controller_, &ChatController::prefillProgress, this, &WorkPresenter::end);
  connect(&controller_, &ChatController::activityChanged, this, [this](Activity activity) {
    const bool goesOn = activity == Activity::kAnswering || activity == Activity::kReading ||
                        (activity == Activity::kSwitchingPreset && work_ == Work::kConverting) ||
                        (activity == Activity::kRestoring && work_ == Work::kRestoring);
    if (!goesOn) end();
  });
}

void WorkPresenter::show(Work work, const QString& title, quint64 doneBytes, quint64 totalBytes) {
  if (work_ != work) {
    end();
    work_ = work;
    sinceBegin_.start();
  }
  if (card_.isHidden()) {
    if (sinceBegin_.elapsed() < kNoticeableMs) return;
    card_.begin(title, QString());
  }
  card_.setProgress(doneBytes, totalBytes,
                    tr("%1 of %2").arg(formatBytes(doneBytes), formatBytes(totalBytes)));
}

void WorkPresenter::end() {
  work_ = Work::kNone;
  card_.hide();
}

}  // namespace longhand::ui
