#pragma once
// The right pane's page for documents: what the chosen document is, what it would need under every
// preset, its text, and the progress while the model reads it.

#include <vector>

#include <QStringList>
#include <QWidget>

#include "engine/engine.h"
#include "ui/document/forecast_table.h"

class QHBoxLayout;
class QLabel;
class QPlainTextEdit;
class QPushButton;
class QStackedWidget;

namespace longhand::ui {

class ProgressCard;

/// What is known of a document once its text is extracted.
struct DocumentSummary {
  QString name;
  QString encoding;  // "UTF-8"; empty where the format has none of its own (PDF)
  qint64 characters = 0;
  qint64 tokens = -1;  // -1: not counted yet, no model is loaded
  QStringList losses;  // sentences: what extraction could not keep
  QString text;
};

/// Whether a candidate can be used, and what to say about it.
struct DocumentAdvice {
  bool canUse = true;         // false greys "Read now" and "Use in this chat" out
  QString text;               // why, or a warning; may be empty
  qint64 contextToOffer = 0;  // > 0: a button offers to raise the context to this many tokens
};

class DocumentPanel final : public QWidget {
  Q_OBJECT
  Q_DISABLE_COPY_MOVE(DocumentPanel)

 public:
  explicit DocumentPanel(QWidget* parent);

  /// No document: says how to open one.
  void showEmpty();
  /// A document that is not part of the chat yet, with its forecasts and the buttons to go on.
  void showCandidate(const DocumentSummary& summary, const DocumentAdvice& advice);
  /// A document the chat uses already. `canRead`: offer "Read now".
  void showInUse(const DocumentSummary& summary, const QString& state, bool canRead);
  /// The table; empty forecasts hide it.
  void setForecasts(const std::vector<app::PresetForecast>& forecasts, const ForecastNeeds& needs);

  /// Extraction and counting.
  void beginExamining(const QString& name);
  void setExaminingProgress(double share);  // of the extraction
  void setCountingProgress(double share);   // of the tokens, which follows
  void beginReading(const QString& name);
  void setReadingProgress(const engine::PrefillProgress& progress);
  void endWork();

 signals:
  void openRequested();
  /// Adds the document to the chat and computes its keys and values at once.
  void readRequested();
  /// Adds it to the chat; it is read with the first question.
  void useRequested();
  /// The context is too short for the candidate.
  void raiseContextRequested(qint64 contextLength);
  /// Puts the candidate away.
  void discardRequested();
  /// What every preset loses on this document is to be measured.
  void qualityCheckRequested();
  /// Takes the document out of the chat.
  void removeRequested();
  /// Stops examining or reading.
  void cancelWorkRequested();

 protected:
  void resizeEvent(QResizeEvent* event) override;

 private:
  QWidget* makeEmptyPage();
  /// The last button goes below the others where they do not fit beside each other.
  void arrangeActions();
  void setShare(double share, const QString& detail);
  QWidget* makeDocumentPage();
  void showSummary(const DocumentSummary& summary);

  QStackedWidget* pages_;
  QLabel* name_;
  QLabel* facts_;
  QLabel* losses_;
  QLabel* advice_;
  QLabel* forecastTitle_;
  QHBoxLayout* forecastHead_;  // title and the button beside it
  ForecastTable* forecasts_;
  QWidget* actions_;
  QHBoxLayout* firstActions_;
  QHBoxLayout* moreActions_;
  QPushButton* readNow_;
  QPushButton* useInChat_;
  QPushButton* discard_;
  QPushButton* remove_;
  QPushButton* raiseContext_;
  QPushButton* checkQuality_;
  qint64 contextToOffer_ = 0;
  ProgressCard* progress_;
  QPlainTextEdit* text_;
};

}  // namespace longhand::ui
