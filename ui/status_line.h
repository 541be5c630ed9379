#pragma once
// One line at the bottom of the window: what Longhand is doing, and how fast the last answer was.

#include <QWidget>

class QLabel;

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

 private:
  void showActivity();
  void showStatistics(const app::MessageStatistics& statistics);

  app::ChatController& controller_;
  QLabel* activity_;
  QLabel* speed_;
  QLabel* device_;
};

}  // namespace longhand::ui
