#include "ui/message_item.h"

#include <algorithm>
#include <cmath>

#include <QCoreApplication>
#include <QPainter>
#include <QTextCursor>
#include <QTextOption>

#include "ui/markdown_document.h"

namespace longhand::ui {
namespace {

constexpr double kSpaceAbove = 14;
constexpr double kBubblePaddingX = 15;
constexpr double kBubblePaddingY = 10;
constexpr double kBubbleShare = 0.84;  // of the column
constexpr double kCardWidth = 440;
constexpr double kCardIcon = 38;
constexpr double kButton = 26;
constexpr double kFooterHeight = 28;
constexpr double kWaitingHeight = 24;
constexpr double kProgressHeight = 4;

QString tr(const char* text) { return QCoreApplication::translate("Transcript", text); }

/// Notices and cards are set smaller and paler than what people and models say.
Theme quietTheme(Theme theme) {
  theme.textFont = theme.controlFont;
  theme.colors.text = theme.colors.textMuted;
  return theme;
}

bool isQuiet(MessageRole role) {
  return role == MessageRole::kNotice || role == MessageRole::kDocument;
}

}  // namespace

MessageItem::MessageItem(const TranscriptMessage& message) : message_(message) {}

MessageItem::~MessageItem() = default;

void MessageItem::setMessage(const TranscriptMessage& message) {
  if (message == message_) return;
  const bool sameRole = message.role == message_.role;
  if (message.text != message_.text || !sameRole) filled_ = false;
  message_ = message;
  measured_ = false;
  if (!sameRole) dropDocument();
  if (document_ != nullptr) {
    measure();
  } else {
    estimate();
  }
}

void MessageItem::setLayout(const Theme& theme, double columnWidth, bool newTheme) {
  if (newTheme) dropDocument();
  theme_ = theme;
  width_ = columnWidth;
  measured_ = false;
  estimate();
}

void MessageItem::dropDocument() {
  document_.reset();
  filled_ = false;
}

void MessageItem::estimate() {
  const double characterWidth = theme_.textFont.pixelSize() * 0.52;
  const double perLine = std::max(10.0, width_ / std::max(1.0, characterWidth));
  const double lines = static_cast<double>(message_.text.count(QLatin1Char('\n'))) * 0.7 +
                       static_cast<double>(message_.text.size()) / perLine + 1;
  height_ = std::ceil(kSpaceAbove + lines * theme_.textFont.pixelSize() * 1.42 + kFooterHeight +
                      (message_.role == MessageRole::kDocument ? 40 : 0));
}

void MessageItem::fillDocument() {
  if (document_ == nullptr) {
    document_ =
        std::make_unique<MarkdownDocument>(isQuiet(message_.role) ? quietTheme(theme_) : theme_);
    filled_ = false;
    if (message_.role == MessageRole::kNotice) {
      QTextOption centered = document_->textDocument()->defaultTextOption();
      centered.setAlignment(Qt::AlignHCenter);
      document_->textDocument()->setDefaultTextOption(centered);
    }
  }
  if (filled_) return;
  if (message_.role == MessageRole::kAssistant) {
    document_->setMarkdown(message_.text);
  } else {
    document_->setPlainText(message_.text);
  }
  filled_ = true;
}

void MessageItem::measure() {
  if (measured_ && document_ != nullptr) return;
  fillDocument();
  arrange();
  measured_ = true;
}

// --- Geometry -----------------------------------------------------------------------------------

void MessageItem::arrange() {
  buttons_.clear();
  box_ = footerRect_ = errorRect_ = branchRect_ = progressRect_ = waitingRect_ = QRectF();
  switch (message_.role) {
    case MessageRole::kUser:
      arrangeUser();
      break;
    case MessageRole::kAssistant:
      arrangeAssistant();
      break;
    case MessageRole::kNotice:
      arrangeNotice();
      break;
    case MessageRole::kDocument:
      arrangeCard();
      break;
  }
  height_ = std::ceil(height_);
}

void MessageItem::arrangeUser() {
  const double widest = std::floor(width_ * kBubbleShare - 2 * kBubblePaddingX);
  document_->setWidth(widest);
  const double textWidth = std::min(widest, std::ceil(document_->idealWidth()) + 1);
  document_->setWidth(textWidth);
  const double boxWidth = textWidth + 2 * kBubblePaddingX;
  box_ =
      QRectF(width_ - boxWidth, kSpaceAbove, boxWidth, document_->height() + 2 * kBubblePaddingY);
  textOrigin_ = box_.topLeft() + QPointF(kBubblePaddingX, kBubblePaddingY);
  height_ = arrangeFooter(box_.bottom() + 2, true);
}

void MessageItem::arrangeAssistant() {
  document_->setWidth(width_);
  textOrigin_ = QPointF(0, kSpaceAbove);
  double bottom = kSpaceAbove;
  if (!message_.text.isEmpty()) bottom += document_->height();
  if (message_.state == MessageState::kWaiting) {
    waitingRect_ = QRectF(0, bottom + (message_.text.isEmpty() ? 0 : 8), width_, kWaitingHeight);
    bottom = waitingRect_.bottom();
    if (message_.progress >= 0) {
      progressRect_ = QRectF(0, bottom + 4, std::min(width_, 360.0), kProgressHeight);
      bottom = progressRect_.bottom() + 6;
    }
  }
  height_ = arrangeFooter(bottom + 4, false);
}

void MessageItem::arrangeNotice() {
  document_->setWidth(width_ * 0.9);
  const double textWidth = std::min(width_ * 0.9, std::ceil(document_->idealWidth()) + 1);
  document_->setWidth(textWidth);
  textOrigin_ = QPointF(std::floor((width_ - textWidth) / 2), kSpaceAbove + 4);
  height_ = textOrigin_.y() + document_->height() + 8;
}

void MessageItem::arrangeCard() {
  const double cardWidth = std::min(width_, kCardWidth);
  const double left = width_ - cardWidth;
  const double textLeft = left + 14 + kCardIcon + 12;
  document_->setWidth(width_ - textLeft - 14);
  const double titleHeight = QFontMetricsF(theme_.controlFont).height();
  textOrigin_ = QPointF(textLeft, kSpaceAbove + 12 + titleHeight + 2);
  double bottom = textOrigin_.y() + (message_.text.isEmpty() ? 0 : document_->height());
  bottom = std::max(bottom, kSpaceAbove + 12 + kCardIcon);
  if (message_.progress >= 0) {
    progressRect_ = QRectF(textLeft, bottom + 8, width_ - textLeft - 14, kProgressHeight);
    bottom = progressRect_.bottom();
  }
  if (!message_.footer.isEmpty()) {
    const QFontMetricsF metrics(theme_.smallFont);
    const QRectF wrapped = metrics.boundingRect(QRectF(0, 0, width_ - textLeft - 14, 1000),
                                                Qt::AlignLeft | Qt::TextWordWrap, message_.footer);
    errorRect_ = QRectF(textLeft, bottom + 6, width_ - textLeft - 14, wrapped.height());
    bottom = errorRect_.bottom();
  }
  box_ = QRectF(left, kSpaceAbove, cardWidth, bottom + 12 - kSpaceAbove);
  height_ = box_.bottom() + 4;
}

/// Buttons and the footer's line below `top`; returns the item's bottom.
double MessageItem::arrangeFooter(double top, bool rightAligned) {
  if (message_.state == MessageState::kFailed && !message_.footer.isEmpty()) {
    const QFontMetricsF metrics(theme_.controlFont);
    const QRectF wrapped = metrics.boundingRect(QRectF(0, 0, width_, 10000),
                                                Qt::AlignLeft | Qt::TextWordWrap, message_.footer);
    errorRect_ = QRectF(0, top + 4, width_, wrapped.height());
    top = errorRect_.bottom() + 4;
  }
  const bool busy =
      message_.state == MessageState::kWaiting || message_.state == MessageState::kStreaming;
  if (message_.state == MessageState::kWaiting && message_.branchCount <= 1) return top + 8;

  std::vector<std::pair<MessagePart, IconKind>> kinds;
  if (!busy && !message_.text.isEmpty()) kinds.emplace_back(MessagePart::kCopy, IconKind::kCopy);
  if (!busy && message_.role == MessageRole::kUser && message_.canEdit) {
    kinds.emplace_back(MessagePart::kEdit, IconKind::kEdit);
  }
  if (!busy && message_.role == MessageRole::kAssistant && message_.canRetry) {
    kinds.emplace_back(MessagePart::kRegenerate, IconKind::kRegenerate);
  }
  const double centerY = top + kFooterHeight / 2;
  const QFontMetricsF metrics(theme_.smallFont);
  const QString branches =
      QStringLiteral("%1/%2").arg(message_.branchIndex + 1).arg(message_.branchCount);
  const double branchWidth =
      message_.branchCount > 1 ? 2 * kButton + metrics.horizontalAdvance(branches) + 4 : 0;
  double x = rightAligned ? width_ - static_cast<double>(kinds.size()) * kButton - branchWidth
                          : -5;  // the icon, not its button, stands on the column's edge
  for (const auto& [part, icon] : kinds) {
    buttons_.push_back({part, icon, QRectF(x, centerY - kButton / 2, kButton, kButton), true});
    x += kButton;
  }
  if (message_.branchCount > 1) x = arrangeBranches(x, centerY);
  if (!rightAligned && message_.state != MessageState::kFailed) {
    const double left = buttons_.empty() ? 0 : x + 8;
    footerRect_ = QRectF(left, centerY - kButton / 2, std::max(0.0, width_ - left), kButton);
  }
  return top + kFooterHeight;
}

double MessageItem::arrangeBranches(double x, double centerY) {
  const QFontMetricsF metrics(theme_.smallFont);
  const QString text =
      QStringLiteral("%1/%2").arg(message_.branchIndex + 1).arg(message_.branchCount);
  const double textWidth = metrics.horizontalAdvance(text) + 4;
  const double top = centerY - kButton / 2;
  buttons_.push_back({MessagePart::kPrevious, IconKind::kPrevious, QRectF(x, top, kButton, kButton),
                      message_.branchIndex > 0});
  branchRect_ = QRectF(x + kButton, top, textWidth, kButton);
  buttons_.push_back({MessagePart::kNext, IconKind::kNext,
                      QRectF(branchRect_.right(), top, kButton, kButton),
                      message_.branchIndex + 1 < message_.branchCount});
  return branchRect_.right() + kButton;
}

// --- Hit test -----------------------------------------------------------------------------------

MessageHit MessageItem::hitTest(const QPointF& point) const {
  MessageHit hit;
  for (const Button& button : buttons_) {
    if (!button.rect.contains(point)) continue;
    if (button.enabled) hit.part = button.part;
    return hit;
  }
  if (document_ == nullptr || message_.text.isEmpty()) return hit;
  const QPointF inside = point - textOrigin_;
  for (const CodeBox& box : document_->codeBoxes(QRectF(inside, QSizeF(1, 1)))) {
    if (!box.buttonRect.contains(inside)) continue;
    hit.part = MessagePart::kCopyCode;
    hit.codePosition = box.first;
    return hit;
  }
  const QRectF text(0, 0, document_->width(), document_->height());
  if (!text.adjusted(-6, -2, 6, 2).contains(inside)) return hit;
  hit.part = MessagePart::kText;
  hit.position = document_->positionAt(inside, false);
  hit.link = document_->linkAt(inside);
  if (!hit.link.isEmpty()) hit.part = MessagePart::kLink;
  return hit;
}

int MessageItem::positionAt(const QPointF& point) const {
  if (document_ == nullptr) return 0;
  const QPointF inside = point - textOrigin_;
  if (inside.y() < 0) return 0;
  if (inside.y() > document_->height()) return document_->textDocument()->characterCount() - 1;
  return std::max(0, document_->positionAt(inside, false));
}

QString MessageItem::toolTip(const MessageHit& hit) const {
  switch (hit.part) {
    case MessagePart::kLink:
      return hit.link;
    case MessagePart::kCopy:
      return tr("Copy message");
    case MessagePart::kCopyCode:
      return tr("Copy code");
    case MessagePart::kEdit:
      return tr("Edit and ask again");
    case MessagePart::kRegenerate:
      return message_.state == MessageState::kFailed ? tr("Try again") : tr("Answer again");
    case MessagePart::kPrevious:
      return tr("Earlier version");
    case MessagePart::kNext:
      return tr("Later version");
    case MessagePart::kNone:
    case MessagePart::kText:
      break;
  }
  return {};
}

QString MessageItem::accessibleName() const {
  QString name;
  switch (message_.role) {
    case MessageRole::kUser:
      name = tr("You");
      break;
    case MessageRole::kAssistant:
      name = tr("Answer");
      break;
    case MessageRole::kNotice:
      name = tr("Notice");
      break;
    case MessageRole::kDocument:
      name = tr("Document %1").arg(message_.title);
      break;
  }
  if (message_.state == MessageState::kWaiting) name += tr(", waiting");
  if (message_.state == MessageState::kStreaming) name += tr(", being written");
  if (message_.state == MessageState::kStopped) name += tr(", stopped");
  if (message_.state == MessageState::kFailed) name += tr(", failed");
  if (message_.branchCount > 1) {
    name += tr(", version %1 of %2").arg(message_.branchIndex + 1).arg(message_.branchCount);
  }
  name += QStringLiteral(": ") + message_.text;
  if (!message_.footer.isEmpty()) name += QStringLiteral("\n") + message_.footer;
  return name;
}

// --- Painting -----------------------------------------------------------------------------------

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
  if (message_.role == MessageRole::kUser) {
    painter.setPen(Qt::NoPen);
    painter.setBrush(colors.bubble);
    painter.drawRoundedRect(box_, theme_.metrics.radiusLarge, theme_.metrics.radiusLarge);
  } else if (message_.role == MessageRole::kDocument) {
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
  return message_.role != MessageRole::kUser || state.hovered || state.focused;
}

void MessageItem::paintFooter(QPainter& painter, const MessagePaintState& state) const {
  const ThemeColors& colors = theme_.colors;
  if (!errorRect_.isEmpty()) {
    const bool failed = message_.state == MessageState::kFailed;
    painter.setFont(message_.role == MessageRole::kDocument ? theme_.smallFont
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
