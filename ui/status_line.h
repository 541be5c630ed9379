#pragma once
// One line at the bottom of the window: what Longhand is doing, and how fast the last answer was.

#include <QWidget>

class QLabel;
class QPushButton;

namespace longhand::app {
class ChatController;
struct MessageStatistics;
}  // namespace longhand::app

namespace longhand::ui {

class StatusLine final : public QWidget {
  Q_OBJECT
  Q_DISABLE_COPY_MOVE(StatusLine)

 public:
  /// The controller must outlive the line.
  StatusLine(app::ChatController& controller, QWidget* parent);

  /// A short notice that replaces the activity for some seconds ("Message copied").
  void showBriefly(const QString& text);

 signals:
  /// The user asks why no graphics card is used.
  void deviceReasonWanted();

 private:
  void showActivity();
  void showStatistics(const app::MessageStatistics& statistics);

  app::ChatController& controller_;
  QLabel* activity_;
  QLabel* speed_;
  QLabel* device_;
  QPushButton* whyNotDevice_;  // shown while there is a reason
};

}  // namespace longhand::ui
