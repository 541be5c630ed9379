#pragma once
// The text field of the composer: plain text, grows with its lines, turns keys into signals.

#include <QPlainTextEdit>

namespace longhand::ui {

class ComposerEdit final : public QPlainTextEdit {
  Q_OBJECT
  Q_DISABLE_COPY_MOVE(ComposerEdit)

 public:
  explicit ComposerEdit(QWidget* parent = nullptr);

  QSize sizeHint() const override;
  QSize minimumSizeHint() const override { return sizeHint(); }

 signals:
  void enterPressed();
  void escapePressed();

 protected:
  void keyPressEvent(QKeyEvent* event) override;
  void inputMethodEvent(QInputMethodEvent* event) override;
  void insertFromMimeData(const QMimeData* source) override;
  bool canInsertFromMimeData(const QMimeData* source) const override;
  void resizeEvent(QResizeEvent* event) override;

 private:
  void fitHeight();

  bool isComposing_ = false;  // an input method holds text that is not committed yet
};

}  // namespace longhand::ui
