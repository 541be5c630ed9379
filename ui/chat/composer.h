#pragma once
// Where the user writes: a text field that grows from 1 to 8 lines, a button that sends or stops,
// and the context meter below.
//
//   connect(composer, &Composer::sendRequested, [&](const QString& text) {
//     if (store(text)) composer->accepted(); else composer->rejected(tr("The disk is full."));
//   });
//
// Enter sends, Shift+Enter breaks the line, Esc stops. The text stays until accepted(): a send that
// fails loses nothing.

#include <QString>
#include <QWidget>

#include "ui/style/theme.h"

class QLabel;
class QToolButton;

namespace longhand::ui {

class ComposerEdit;
class ContextMeter;

class Composer final : public QWidget {
  Q_OBJECT
  Q_DISABLE_COPY_MOVE(Composer)

 public:
  explicit Composer(const Theme& theme, QWidget* parent = nullptr);
  ~Composer() override;

  void setTheme(const Theme& theme);

  QString text() const;
  /// Replaces the text and puts the cursor at its end (a draft, a message to edit).
  void setText(const QString& text);
  void setPlaceholderText(const QString& text);

  /// While true, the button and Esc stop, and Enter does nothing; writing goes on.
  void setGenerating(bool generating);

  /// A sentence why nothing can be sent now ("Load a model first."); empty: sending is possible.
  void setDisabledReason(const QString& reason);

  /// The meter: tokens in the context, the user's context length, and the length the model was
  /// trained for (0: unknown). contextLength 0 hides the meter.
  void setContextUse(qint64 usedTokens, qint64 contextLength, qint64 trainedLength,
                     qint64 forgottenTokens = 0);

  /// The message of sendRequested() is stored: clears it. What was written since, or without
  /// having been sent, stays.
  void accepted();
  /// It is not: the text stays, `reason` is shown until the text changes.
  void rejected(const QString& reason);

  /// "Edit message" mode: shows a line with a cancel button; cancelled by Esc or the button.
  void setEditing(bool editing);
  bool isEditing() const { return isEditing_; }

 signals:
  void sendRequested(const QString& text);  // never blank; outer white space removed
  void stopRequested();
  void editCancelled();
  void escapePressed();                       // Esc with nothing to stop and no edit to cancel
  void attachRequested();                     // the paper clip
  void documentDropped(const QString& path);  // once for each local file
  void textChanged();

 protected:
  void dragEnterEvent(QDragEnterEvent* event) override;
  void dragLeaveEvent(QDragLeaveEvent* event) override;
  void dropEvent(QDropEvent* event) override;
  void paintEvent(QPaintEvent* event) override;

 private:
  void makeLayout();
  void connectParts();
  void send();
  void updateState();

  Theme theme_;
  ComposerEdit* edit_ = nullptr;
  QToolButton* attachButton_ = nullptr;
  QToolButton* sendButton_ = nullptr;
  QWidget* editBar_ = nullptr;
  QLabel* editLabel_ = nullptr;
  QToolButton* editCancel_ = nullptr;
  QLabel* hint_ = nullptr;
  ContextMeter* meter_ = nullptr;
  QString disabledReason_;
  QString failure_;
  QString sentText_;  // from sendRequested() to accepted() or rejected()
  bool isGenerating_ = false;
  bool isSending_ = false;
  bool isEditing_ = false;
  bool isDropping_ = false;
};

}  // namespace longhand::ui
