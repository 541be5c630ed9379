#include "ui/chat/context_meter.h"

#include <algorithm>

#include <QLocale>
#include <QPainter>

namespace longhand::ui {
namespace {

constexpr double kNearlyFull = 0.9;
constexpr int kBarWidth = 120;
constexpr int kBarHeight = 4;

QString number(qint64 value) { return QLocale(QLocale::English).toString(value); }

}  // namespace

ContextMeter::ContextMeter(const Theme& theme, QWidget* parent) : QWidget(parent), theme_(theme) {
  setObjectName(QStringLiteral("contextMeter"));
  setSizePolicy(QSizePolicy::Expanding, QSizePolicy::Fixed);
  setTheme(theme);
}

void ContextMeter::setTheme(const Theme& theme) {
  theme_ = theme;
  updateGeometry();
  update();
}

void ContextMeter::setUse(qint64 usedTokens, qint64 contextLength, qint64 trainedLength,
                          qint64 forgottenTokens) {
  forgottenTokens_ = forgottenTokens;
  usedTokens_ = std::max<qint64>(0, usedTokens);
  contextLength_ = contextLength;
  trainedLength_ = trainedLength;
  setVisible(contextLength_ > 0);
  setAccessibleName(text());
  setToolTip(text());
  update();
}

bool ContextMeter::isWarning() const {
  const bool beyondTraining = trainedLength_ > 0 && usedTokens_ > trainedLength_;
  return beyondTraining || forgottenTokens_ > 0 ||
         static_cast<double>(usedTokens_) >= kNearlyFull * static_cast<double>(contextLength_);
}

QString ContextMeter::text() const {
  QString text = tr("%1 of %2 tokens").arg(number(usedTokens_), number(contextLength_));
  if (contextLength_ > 0 && usedTokens_ >= contextLength_) {
    text += tr(". The context is full.");
  } else if (trainedLength_ > 0 && usedTokens_ > trainedLength_) {
    text += tr(". Beyond the %1 tokens the model was trained for: expect worse answers.")
                .arg(number(trainedLength_));
  } else if (static_cast<double>(usedTokens_) >=
             kNearlyFull * static_cast<double>(contextLength_)) {
    text += tr(". The context is nearly full.");
  }
  if (forgottenTokens_ > 0) {
    text += tr(". %1 tokens are behind the sliding window and no longer read.")
                .arg(number(forgottenTokens_));
  }
  return text;
}

QString ContextMeter::shortText() const {
  QString text = tr("%1 of %2").arg(number(usedTokens_), number(contextLength_));
  if (contextLength_ > 0 && usedTokens_ >= contextLength_) {
    text += tr(": full");
  } else if (trainedLength_ > 0 && usedTokens_ > trainedLength_) {
    text += tr(": beyond training");
  } else if (isWarning()) {
    text += tr(": nearly full");
  }
  return text;
}

QSize ContextMeter::sizeHint() const {
  const QFontMetrics metrics(theme_.smallFont);
  return {kBarWidth + 200, metrics.height() + 2};
}

void ContextMeter::paintEvent(QPaintEvent*) {
  if (contextLength_ <= 0) return;
  QPainter painter(this);
  painter.setRenderHint(QPainter::Antialiasing);
  const ThemeColors& c = theme_.colors;
  const double length = static_cast<double>(contextLength_);
  const QRectF bar(0, (height() - kBarHeight) / 2.0, kBarWidth, kBarHeight);
  painter.setPen(Qt::NoPen);
  painter.setBrush(c.border);
  painter.drawRoundedRect(bar, kBarHeight / 2.0, kBarHeight / 2.0);
  if (usedTokens_ > 0) {
    QRectF used = bar;
    const double share = std::min(1.0, static_cast<double>(usedTokens_) / length);
    used.setWidth(std::max(double{kBarHeight}, bar.width() * share));
    painter.setBrush(isWarning() ? c.warning : c.accent);
    painter.drawRoundedRect(used, kBarHeight / 2.0, kBarHeight / 2.0);
  }
  if (trainedLength_ > 0 && trainedLength_ < contextLength_) {
    const double x = bar.left() + bar.width() * static_cast<double>(trainedLength_) / length;
    painter.setBrush(c.textMuted);
    painter.drawRect(QRectF(x - 0.5, bar.top() - 3, 1, kBarHeight + 6));
  }
  painter.setFont(theme_.smallFont);
  painter.setPen(isWarning() ? c.warning : c.textMuted);
  const QRectF area(kBarWidth + 10, 0, width() - kBarWidth - 10, height());
  const QFontMetricsF metrics(theme_.smallFont);
  const bool fits = metrics.horizontalAdvance(text()) <= area.width();
  painter.drawText(area, Qt::AlignLeft | Qt::AlignVCenter,
                   metrics.elidedText(fits ? text() : shortText(), Qt::ElideRight, area.width()));
}

}  // namespace longhand::ui
