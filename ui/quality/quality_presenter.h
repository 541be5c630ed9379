#pragma once
// Connects the controller with the dialog "Check quality".

#include <QObject>

class QWidget;

namespace longhand::app {
class ChatController;
}

namespace longhand::ui {

class QualityDialog;

class QualityPresenter final : public QObject {
  Q_OBJECT
  Q_DISABLE_COPY_MOVE(QualityPresenter)

 public:
  /// Both must outlive the presenter; the dialog is made with its first check and belongs to
  /// `window`.
  QualityPresenter(app::ChatController& controller, QWidget& window);

  /// Begins a check and shows it; while one is under way, only brings it to the front.
  void check();

 private:
  QualityDialog& dialog();

  app::ChatController& controller_;
  QWidget& window_;
  QualityDialog* dialog_ = nullptr;
};

}  // namespace longhand::ui
