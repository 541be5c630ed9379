#pragma once
// The bar at the top: which model is loaded, whether it is the demonstration, the preset, and the
// buttons that show and hide the sides. Talks to the controller for what it shows.

#include <vector>

#include <QWidget>

#include "ui/style/theme.h"

class QAction;
class QComboBox;
class QLabel;
class QMenu;
class QPushButton;
class QToolButton;

namespace longhand::app {
class ChatController;
}

namespace longhand::ui {

class TopBar final : public QWidget {
  Q_OBJECT
  Q_DISABLE_COPY_MOVE(TopBar)

 public:
  /// The controller must outlive the bar.
  TopBar(app::ChatController& controller, const Theme& theme, QWidget* parent);

  void setTheme(const Theme& theme);
  /// Takes the actions of the buttons; they belong to the window.
  void setActions(QAction* sidebar, QAction* documentPane, QAction* settingsPane, QMenu* menu);
  /// Shows the preset in use again, after a choice that was not carried out.
  void resetPreset();

 signals:
  void presetChosen(const QString& presetId);
  /// The badge "Demonstration model" was pressed.
  void modelHelpRequested();

 private:
  void showModel();
  void showPresets();

  app::ChatController& controller_;
  QToolButton* sidebarButton_;
  QLabel* modelName_;
  QPushButton* demoBadge_;
  QComboBox* presets_;
  QToolButton* documentButton_;
  QToolButton* settingsButton_;
  QToolButton* menuButton_;
};

}  // namespace longhand::ui
