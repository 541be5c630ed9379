// How a MessageItem looks. Where its parts stand is decided in message_item.cpp.
#include <algorithm>

#include <QPainter>
#include <QTextCursor>

#include "ui/markdown/markdown_document.h"
#include "ui/transcript/message_item.h"
#include "ui/transcript/message_item_distances.h"

namespace longhand::ui {

namespace {

QVector<QAbstractTextDocumentLayout::Selection> documentSelections(const MarkdownDocument& document,
                                                                   const MessagePaintState& state,
                                                                   const ThemeColors& colors) {
  QVector<QAbstractTextDocumentLayout::Selection> selections;
  const auto add = [&](std::pair<int, int> range, const QColor& background) {
    QAbstractTextDocumentLayout::Selection selection;
    selection.cursor = QTextCursor(document.textDocument());
    const int end = document.textDocument()->characterCount() - 1;
    selection.cursor.setPosition(std::clamp(range.first, 0, end));
    selection.cursor.setPosition(std::clamp(range.second, 0, end), QTextCursor::KeepAnchor);
    selection.format.setBackground(background);
    selections.append(selection);
  };
  for (std::size_t i = 0; i < state.matches.size(); ++i) {
    const bool current = static_cast<int>(i) == state.currentMatch;
    add(state.matches[i], current ? colors.findCurrent : colors.findMatch);
  }
  if (state.selection.first != state.selection.second) add(state.selection, colors.selection);
  return selections;
}

}  // namespace

void MessageItem::paint(QPainter& painter, const QRectF& clip,
                        const MessagePaintState& state) const {
  const ThemeColors& colors = theme_.colors;
  painter.setRenderHint(QPainter::Antialiasing);
  if (message_.role == TranscriptRole::kUser) {
    painter.setPen(Qt::NoPen);
    painter.setBrush(colors.bubble);
    painter.drawRoundedRect(box_, theme_.metrics.radiusLarge, theme_.metrics.radiusLarge);
  } else if (message_.role == TranscriptRole::kDocument) {
    paintCard(painter);
  }
  if (state.focused) {
    const QRectF area = box_.isEmpty()
                            ? QRectF(-10, kSpaceAbove - 8, width_ + 20, height_ - kSpaceAbove + 8)
                            : box_.adjusted(-3, -3, 3, 3);
    painter.setPen(QPen(colors.accent, 1.5));
    painter.setBrush(Qt::NoBrush);
    painter.drawRoundedRect(area, theme_.metrics.radius, theme_.metrics.radius);
  }
  if (document_ != nullptr && !message_.text.isEmpty()) {
    painter.translate(textOrigin_);
    document_->paint(painter, clip.translated(-textOrigin_),
                     documentSelections(*document_, state, colors));
    painter.translate(-textOrigin_);
    paintCodeButtons(painter, clip, state);
  }
  if (!waitingRect_.isEmpty()) paintWaiting(painter, state.phase);
  if (!progressRect_.isEmpty()) paintProgress(painter);
  paintFooter(painter, state);
}

void MessageItem::paintCard(QPainter& painter) const {
  const ThemeColors& colors = theme_.colors;
  painter.setPen(QPen(colors.border, 1));
  painter.setBrush(colors.raised);
  painter.drawRoundedRect(box_.adjusted(0.5, 0.5, -0.5, -0.5), theme_.metrics.radius,
                          theme_.metrics.radius);
  const QRectF icon(box_.left() + 14, box_.top() + 12, kCardIcon, kCardIcon);
  painter.setPen(Qt::NoPen);
  painter.setBrush(colors.selected);
  painter.drawRoundedRect(icon, theme_.metrics.radius, theme_.metrics.radius);
  paintIcon(painter, IconKind::kDocument, icon.adjusted(10, 10, -10, -10), colors.link);
  QFont font = theme_.controlFont;
  font.setWeight(QFont::DemiBold);
  const QFontMetricsF metrics(font);
  const QRectF title(icon.right() + 12, box_.top() + 12, box_.right() - icon.right() - 26,
                     metrics.height());
  painter.setFont(font);
  painter.setPen(colors.text);
  painter.drawText(title, Qt::AlignLeft | Qt::AlignVCenter,
                   metrics.elidedText(message_.title, Qt::ElideMiddle, title.width()));
}

bool MessageItem::buttonsVisible(const MessagePaintState& state) const {
  return message_.role != TranscriptRole::kUser || state.hovered || state.focused;
}

void MessageItem::paintFooter(QPainter& painter, const MessagePaintState& state) const {
  const ThemeColors& colors = theme_.colors;
  if (!errorRect_.isEmpty()) {
    const bool failed = message_.state == TranscriptState::kFailed;
    painter.setFont(message_.role == TranscriptRole::kDocument ? theme_.smallFont
                                                               : theme_.controlFont);
    painter.setPen(failed ? colors.error : colors.textMuted);
    painter.drawText(errorRect_.adjusted(0, 0, 0, 2), Qt::AlignLeft | Qt::TextWordWrap,
                     message_.footer);
  }
  const bool all = buttonsVisible(state);
  for (const Button& button : buttons_) {
    const bool branch = button.part == MessagePart::kPrevious || button.part == MessagePart::kNext;
    if (all || branch) paintButton(painter, button, state);
  }
  painter.setFont(theme_.smallFont);
  painter.setPen(colors.textMuted);
  if (!branchRect_.isEmpty()) {
    painter.drawText(
        branchRect_, Qt::AlignCenter,
        QStringLiteral("%1/%2").arg(message_.branchIndex + 1).arg(message_.branchCount));
  }
  if (!footerRect_.isEmpty() && waitingRect_.isEmpty()) {
    const QFontMetricsF metrics(theme_.smallFont);
    painter.drawText(footerRect_, Qt::AlignLeft | Qt::AlignVCenter,
                     metrics.elidedText(message_.footer, Qt::ElideRight, footerRect_.width()));
  }
}

void MessageItem::paintButton(QPainter& painter, const Button& button,
                              const MessagePaintState& state) const {
  const ThemeColors& colors = theme_.colors;
  MessageHit self;
  self.part = button.part;
  const bool hot = button.enabled && state.hot.sameButton(self);
  if (hot) {
    painter.setPen(Qt::NoPen);
    painter.setBrush(colors.hover);
    painter.drawRoundedRect(button.rect, 6, 6);
  }
  const bool done = button.part == MessagePart::kCopy && state.confirmed.sameButton(self);
  const QColor color = !button.enabled ? colors.textDisabled
                       : done          ? colors.success
                       : hot           ? colors.text
                                       : colors.textMuted;
  paintIcon(painter, done ? IconKind::kCheck : button.icon, button.rect.adjusted(5, 5, -5, -5),
            color);
}

void MessageItem::paintCodeButtons(QPainter& painter, const QRectF& clip,
                                   const MessagePaintState& state) const {
  for (const CodeBox& box : document_->codeBoxes(clip.translated(-textOrigin_))) {
    MessageHit self;
    self.part = MessagePart::kCopyCode;
    self.codePosition = box.first;
    const QRectF rect = box.buttonRect.translated(textOrigin_);
    const bool hot = state.hot.sameButton(self);
    const bool done = state.confirmed.sameButton(self);
    if (hot) {
      painter.setPen(Qt::NoPen);
      painter.setBrush(theme_.colors.hover);
      painter.drawRoundedRect(rect, 6, 6);
    }
    paintIcon(painter, done ? IconKind::kCheck : IconKind::kCopy, rect.adjusted(5, 5, -5, -5),
              done  ? theme_.colors.success
              : hot ? theme_.colors.text
                    : theme_.colors.textMuted);
  }
}

void MessageItem::paintProgress(QPainter& painter) const {
  const double radius = kProgressHeight / 2;
  painter.setPen(Qt::NoPen);
  painter.setBrush(theme_.colors.separator);
  painter.drawRoundedRect(progressRect_, radius, radius);
  QRectF done = progressRect_;
  done.setWidth(std::max(kProgressHeight, done.width() * std::clamp(message_.progress, 0.0, 1.0)));
  painter.setBrush(theme_.colors.accent);
  painter.drawRoundedRect(done, radius, radius);
}

void MessageItem::paintWaiting(QPainter& painter, int phase) const {
  painter.setPen(Qt::NoPen);
  for (int i = 0; i < 3; ++i) {
    QColor color = theme_.colors.textMuted;
    color.setAlphaF(phase % 3 == i ? 1.0F : 0.4F);
    painter.setBrush(color);
    painter.drawEllipse(QPointF(4 + i * 10, waitingRect_.center().y()), 3, 3);
  }
  painter.setFont(theme_.smallFont);
  painter.setPen(theme_.colors.textMuted);
  const QRectF text = waitingRect_.adjusted(38, 0, 0, 0);
  painter.drawText(
      text, Qt::AlignLeft | Qt::AlignVCenter,
      QFontMetricsF(theme_.smallFont).elidedText(message_.footer, Qt::ElideRight, text.width()));
}

}  // namespace longhand::ui
