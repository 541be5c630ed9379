#pragma once
// Connects the controller with the settings panel: values in use, live forecast, Apply.

#include <QObject>

namespace longhand::app {
class ChatController;
}

namespace longhand::ui {

class SettingsPanel;
struct SettingsValues;

class SettingsPresenter final : public QObject {
  Q_OBJECT
  Q_DISABLE_COPY_MOVE(SettingsPresenter)

 public:
  /// Both must outlive the presenter.
  SettingsPresenter(app::ChatController& controller, SettingsPanel& panel, QObject* parent);

 signals:
  /// The user's values are on their way into use.
  void applied();

 private:
  SettingsValues inUse() const;
  void showModel();
  void showDevice();
  void showValues();
  void showForecast();
  void apply();

  app::ChatController& controller_;
  SettingsPanel& panel_;
};

}  // namespace longhand::ui
