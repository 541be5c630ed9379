#pragma once
// Switching the preset of the open chat: states the cost first, in a bar above the chat, and
// switches when the user agrees. A chat with nothing in the cache switches at once.

#include <QObject>
#include <QString>

namespace longhand::app {
class ChatController;
}

namespace longhand::ui {

class NoticeBar;

class PresetSwitcher final : public QObject {
  Q_OBJECT
  Q_DISABLE_COPY_MOVE(PresetSwitcher)

 public:
  /// Both must outlive the switcher.
  PresetSwitcher(app::ChatController& controller, NoticeBar& bar, QObject* parent);

  /// The user wants this preset; "custom" opens the settings where it was never set, or is in use.
  void ask(const QString& presetId);
  /// The preset at this place of the list, from 0; others are ignored.
  void askNumber(int index);

 signals:
  /// The question was dismissed, or there is nothing to switch: show the preset in use again.
  void cancelled();
  void customWanted();

 private:
  app::ChatController& controller_;
  NoticeBar& bar_;
  QString asked_;
};

}  // namespace longhand::ui
