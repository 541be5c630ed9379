#pragma once
// The main window: puts the parts together and carries out the menu's actions. What the parts show
// is the business of their presenters; what is computed and stored is the controller's.

#include <optional>

#include <QMainWindow>

#include "engine/base/memory_ledger.h"
#include "ui/right_pane.h"
#include "ui/style/theme.h"

class QSplitter;

namespace longhand::app {
class ChatController;
}

namespace longhand::ui {

class ChatPane;
class ChatPresenter;
class DocumentPresenter;
class MemoryStrip;
class PresetSwitcher;
class QualityPresenter;
class Sidebar;
class StatusLine;
class TopBar;
class WindowActions;
struct WindowLayout;

struct MainWindowOptions {
  QString dataFolder;
  QString modelsFolder;
  ThemeKind systemTheme = ThemeKind::kLight;  // while the user has not chosen one
  std::optional<ThemeKind> theme;             // wins over the stored one
};

class MainWindow final : public QMainWindow {
  Q_OBJECT
  Q_DISABLE_COPY_MOVE(MainWindow)

 public:
  /// The controller must outlive the window; the caller start()s it.
  MainWindow(app::ChatController& controller, const MainWindowOptions& options);
  ~MainWindow() override;

  void openDocument(const QString& path);
  void openModel(const QString& folder);  // empty: the bundled model
  /// Opens a new chat; what stands in the composer stays with the old one.
  void newChat();
  /// Puts a question into the composer, below what is written there already.
  void writeQuestion(const QString& text);
  /// Shows the right side with one of its pages.
  void showRightPage(RightPane::Page page);
  void hideRightPane();

 protected:
  void closeEvent(QCloseEvent* event) override;
  void keyPressEvent(QKeyEvent* event) override;
  void resizeEvent(QResizeEvent* event) override;

 private:
  void makeLayout();
  void connectActions();
  void connectParts();
  void connectMemory();
  void updateForecast();
  void showMemory();
  void chooseDocument();
  void chooseModel();
  void fillModelsMenu();
  void showModelHelp();
  void showAbout();
  void toggleRightPage(RightPane::Page page, bool isShown);
  void showSidebar(bool isShown);
  /// Of sidebar, chat and right side, a narrow window has room for two: the sidebar goes, and comes
  /// back with the room.
  void fitPanes();
  void setTheme(ThemeKind kind);
  void restoreLayout(const WindowLayout& layout);
  void saveLayout();

  app::ChatController& controller_;
  MainWindowOptions options_;
  Theme theme_;
  std::optional<engine::MemoryUse> memoryForecast_;  // of the whole context, for the strip
  QString memoryForecastLabel_;
  QString documentFolder_;       // of the last document chosen in the dialog
  bool sidebarGaveWay_ = false;  // hidden by fitPanes(), not by the user
  bool knowsMemory_ = false;     // the forecast was made with a memory report
  WindowActions* actions_;
  TopBar* topBar_;
  QSplitter* splitter_;
  Sidebar* sidebar_;
  ChatPane* chatPane_;
  RightPane* rightPane_;
  MemoryStrip* memoryStrip_;
  StatusLine* statusLine_;
  ChatPresenter* chatPresenter_;
  DocumentPresenter* documentPresenter_;
  PresetSwitcher* presetSwitcher_;
  QualityPresenter* qualityPresenter_;
};

}  // namespace longhand::ui
