#pragma once
// Everything the window's menu and shortcuts can do, as actions. Esc is no shortcut: the composer,
// fields and bars use it first, what they leave reaches the window as a key press.

#include <QObject>

class QAction;
class QActionGroup;
class QMenu;
class QMainWindow;

namespace longhand::ui {

class WindowActions final : public QObject {
  Q_OBJECT
  Q_DISABLE_COPY_MOVE(WindowActions)

 public:
  /// The actions are added to the window, so that their shortcuts work everywhere in it.
  explicit WindowActions(QMainWindow& window);

  QMenu* menu() const { return menu_; }

  QAction* newChat = nullptr;       // Ctrl+N
  QAction* search = nullptr;        // Ctrl+K
  QAction* find = nullptr;          // Ctrl+F
  QAction* openDocument = nullptr;  // Ctrl+O
  QAction* settings = nullptr;      // Ctrl+comma; checked while the settings page is shown
  QAction* openModel = nullptr;     // Ctrl+L
  QAction* sidebar = nullptr;       // Ctrl+B; checked while shown
  QAction* documentPane = nullptr;  // Ctrl+D; checked while the document page is shown
  QAction* dark = nullptr;          // checked: dark theme
  QAction* checkQuality = nullptr;
  QAction* modelHelp = nullptr;
  QAction* about = nullptr;
  QAction* quit = nullptr;  // Ctrl+Q
  QMenu* models = nullptr;  // filled by the window before it opens

 signals:
  void presetNumberChosen(int index);  // Alt+1 is 0

 private:
  QAction* add(const char* objectName, const QString& text, const QKeySequence& shortcut);

  QMainWindow& window_;
  QMenu* menu_ = nullptr;
};

}  // namespace longhand::ui
