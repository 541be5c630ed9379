#pragma once
// The right side of the window: two pages, the document and the settings.

#include <QWidget>

class QStackedWidget;
class QTabBar;

namespace longhand::ui {

class DocumentPanel;
class SettingsPanel;

class RightPane final : public QWidget {
  Q_OBJECT
  Q_DISABLE_COPY_MOVE(RightPane)

 public:
  enum class Page { kDocument, kSettings };

  explicit RightPane(QWidget* parent);

  DocumentPanel& documentPanel() { return *documentPanel_; }
  SettingsPanel& settingsPanel() { return *settingsPanel_; }

  void showPage(Page page);
  Page page() const;

 signals:
  void pageChanged();

 private:
  QTabBar* tabs_;
  QStackedWidget* pages_;
  DocumentPanel* documentPanel_;
  SettingsPanel* settingsPanel_;
};

}  // namespace longhand::ui
