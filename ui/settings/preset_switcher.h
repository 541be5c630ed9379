#pragma once
// Switching the preset of the open chat: states the cost first, in a bar above the chat, and
// switches when the user agrees. A chat with nothing in the cache switches at once. After a switch
// to more bits the bar offers to read the chat again, since what was read keeps its bits.

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
  void offerReading();

  QString asked_;
  QString offered_;  // the preset whose bits reading again would give
  QString offer_;    // and what that means
};

}  // namespace longhand::ui
