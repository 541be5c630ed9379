#include "ui/quality/quality_presenter.h"

#include "app/chat_controller.h"
#include "ui/quality/quality_dialog.h"

namespace longhand::ui {

using app::ChatController;

QualityPresenter::QualityPresenter(ChatController& controller, QWidget& window)
    : QObject(&window), controller_(controller), window_(window) {}

QualityDialog& QualityPresenter::dialog() {
  if (dialog_ != nullptr) return *dialog_;
  dialog_ = new QualityDialog(&window_);
  connect(&controller_, &ChatController::qualityProgress, dialog_, &QualityDialog::setProgress);
  connect(&controller_, &ChatController::qualityChecked, dialog_,
          [this](const app::QualityCheckResult& result) {
            dialog_->showResult(result, controller_.currentPreset());
          });
  connect(&controller_, &ChatController::qualityFailed, dialog_, &QualityDialog::showFailure);
  connect(dialog_, &QualityDialog::cancelRequested, &controller_,
          &ChatController::cancelQualityCheck);
  connect(dialog_, &QualityDialog::checkRequested, this, &QualityPresenter::check);
  return *dialog_;
}

void QualityPresenter::check() {
  QualityDialog& shown = dialog();
  const bool isUnderWay = shown.isVisible() &&
                          controller_.activity() == app::Activity::kCheckingQuality &&
                          shown.isChecking();
  if (!isUnderWay) shown.begin();
  shown.show();
  shown.raise();
  shown.activateWindow();
  if (!isUnderWay) controller_.checkQuality();
}

}  // namespace longhand::ui
