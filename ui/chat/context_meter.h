#pragma once
// How full the context is: a thin bar and a sentence. Turns to the warning colour near the end and
// beyond the length the model was trained for, and says why.

#include <QString>
#include <QWidget>

#include "ui/style/theme.h"

namespace longhand::ui {

class ContextMeter final : public QWidget {
  Q_OBJECT
  Q_DISABLE_COPY_MOVE(ContextMeter)

 public:
  explicit ContextMeter(const Theme& theme, QWidget* parent = nullptr);

  void setTheme(const Theme& theme);
  /// Tokens; trainedLength 0: unknown. Forgotten ones are behind the sliding window.
  void setUse(qint64 usedTokens, qint64 contextLength, qint64 trainedLength,
              qint64 forgottenTokens = 0);
  QString text() const;
  /// The same where there is little room.
  QString shortText() const;
  bool isWarning() const;

  QSize sizeHint() const override;

 protected:
  void paintEvent(QPaintEvent* event) override;

 private:
  Theme theme_;
  qint64 usedTokens_ = 0;
  qint64 contextLength_ = 0;
  qint64 trainedLength_ = 0;
  qint64 forgottenTokens_ = 0;
};

}  // namespace longhand::ui
