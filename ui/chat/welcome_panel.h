#pragma once
// What an empty chat shows: what can be done here, the sample document and the sample questions of
// the demonstration model, or the way to open a document.

#include <QScrollArea>
#include <QStringList>

class QBoxLayout;
class QLabel;
class QPushButton;

namespace longhand::ui {

struct WelcomeContent {
  bool hasModel = false;
  bool isDemo = false;
  QStringList questions;     // of the demonstration model
  bool hasDocument = false;  // the chat has a document already
  QString openDocument;      // one that lies open and becomes part of the chat with a question
  bool isBusy = false;       // nothing can be asked right now
};

class WelcomePanel final : public QScrollArea {
  Q_OBJECT
  Q_DISABLE_COPY_MOVE(WelcomePanel)

 public:
  explicit WelcomePanel(QWidget* parent);

  void setContent(const WelcomeContent& content);

 signals:
  void questionChosen(const QString& question);
  void sampleDocumentRequested();
  void openDocumentRequested();
  void openModelRequested();
  void demoModelRequested();
  void modelHelpRequested();

 protected:
  void resizeEvent(QResizeEvent* event) override;

 private:
  void setQuestions(const QStringList& questions);
  /// In two columns where there is room, else in one; the buttons below each other in a narrow
  /// window. Nothing is cut.
  void arrangeQuestions();

  QLabel* title_;
  QLabel* text_;
  QLabel* demoText_;
  QPushButton* modelHelp_;
  QPushButton* sampleDocument_;
  QPushButton* openDocument_;
  QPushButton* openModel_;
  QPushButton* demoModel_;
  QLabel* questionsTitle_;
  QWidget* questionArea_;
  QBoxLayout* buttons_;
  QStringList questions_;
  int nColumns_ = 0;
};

}  // namespace longhand::ui
