#include "ui/transcript/message_item.h"

#include <algorithm>
#include <cmath>

#include <QCoreApplication>
#include <QFontMetricsF>
#include <QTextOption>

#include "ui/markdown/markdown_document.h"
#include "ui/transcript/message_item_distances.h"

namespace longhand::ui {
namespace {

constexpr double kBubblePaddingX = 15;
constexpr double kBubblePaddingY = 10;
constexpr double kBubbleShare = 0.84;  // of the column
constexpr double kCardWidth = 440;
constexpr double kButton = 26;
constexpr double kFooterHeight = 28;
constexpr double kWaitingHeight = 24;

QString tr(const char* text) { return QCoreApplication::translate("Transcript", text); }

/// Notices and cards are set smaller and paler than what people and models say.
Theme quietTheme(Theme theme) {
  theme.textFont = theme.controlFont;
  theme.colors.text = theme.colors.textMuted;
  return theme;
}

bool isQuiet(TranscriptRole role) {
  return role == TranscriptRole::kNotice || role == TranscriptRole::kDocument;
}

}  // namespace

MessageItem::MessageItem(const TranscriptMessage& message) : message_(message) {}

MessageItem::~MessageItem() = default;

void MessageItem::setMessage(const TranscriptMessage& message) {
  if (message == message_) return;
  const bool sameRole = message.role == message_.role;
  if (message.text != message_.text || !sameRole) isFilled_ = false;
  message_ = message;
  isMeasured_ = false;
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
  isMeasured_ = false;
  estimate();
}

void MessageItem::dropDocument() {
  document_.reset();
  isFilled_ = false;
}

void MessageItem::estimate() {
  const double characterWidth = theme_.textFont.pixelSize() * 0.52;
  const double perLine = std::max(10.0, width_ / std::max(1.0, characterWidth));
  const double lines = static_cast<double>(message_.text.count(QLatin1Char('\n'))) * 0.7 +
                       static_cast<double>(message_.text.size()) / perLine + 1;
  height_ = std::ceil(kSpaceAbove + lines * theme_.textFont.pixelSize() * 1.42 + kFooterHeight +
                      (message_.role == TranscriptRole::kDocument ? 40 : 0));
}

void MessageItem::fillDocument() {
  if (document_ == nullptr) {
    document_ =
        std::make_unique<MarkdownDocument>(isQuiet(message_.role) ? quietTheme(theme_) : theme_);
    isFilled_ = false;
    if (message_.role == TranscriptRole::kNotice) {
      QTextOption centered = document_->textDocument()->defaultTextOption();
      centered.setAlignment(Qt::AlignHCenter);
      document_->textDocument()->setDefaultTextOption(centered);
    }
  }
  if (isFilled_) return;
  if (message_.role == TranscriptRole::kAssistant) {
    document_->setMarkdown(message_.text);
  } else {
    document_->setPlainText(message_.text);
  }
  isFilled_ = true;
}

void MessageItem::measure() {
  if (isMeasured_ && document_ != nullptr) return;
  fillDocument();
  arrange();
  isMeasured_ = true;
}

// --- Geometry -----------------------------------------------------------------------------------

void MessageItem::arrange() {
  buttons_.clear();
  box_ = footerRect_ = errorRect_ = branchRect_ = progressRect_ = waitingRect_ = QRectF();
  switch (message_.role) {
    case TranscriptRole::kUser:
      arrangeUser();
      break;
    case TranscriptRole::kAssistant:
      arrangeAssistant();
      break;
    case TranscriptRole::kNotice:
      arrangeNotice();
      break;
    case TranscriptRole::kDocument:
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
  if (message_.state == TranscriptState::kWaiting) {
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
  if (message_.state == TranscriptState::kFailed && !message_.footer.isEmpty()) {
    const QFontMetricsF metrics(theme_.controlFont);
    const QRectF wrapped = metrics.boundingRect(QRectF(0, 0, width_, 10000),
                                                Qt::AlignLeft | Qt::TextWordWrap, message_.footer);
    errorRect_ = QRectF(0, top + 4, width_, wrapped.height());
    top = errorRect_.bottom() + 4;
  }
  const bool busy =
      message_.state == TranscriptState::kWaiting || message_.state == TranscriptState::kStreaming;
  if (message_.state == TranscriptState::kWaiting && message_.branchCount <= 1) return top + 8;

  std::vector<std::pair<MessagePart, IconKind>> kinds;
  if (!busy && !message_.text.isEmpty()) kinds.emplace_back(MessagePart::kCopy, IconKind::kCopy);
  if (!busy && message_.role == TranscriptRole::kUser && message_.canEdit) {
    kinds.emplace_back(MessagePart::kEdit, IconKind::kEdit);
  }
  if (!busy && message_.role == TranscriptRole::kAssistant && message_.canRetry) {
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
  if (!rightAligned && message_.state != TranscriptState::kFailed) {
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
      return message_.state == TranscriptState::kFailed ? tr("Try again") : tr("Answer again");
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
    case TranscriptRole::kUser:
      name = tr("You");
      break;
    case TranscriptRole::kAssistant:
      name = tr("Answer");
      break;
    case TranscriptRole::kNotice:
      name = tr("Notice");
      break;
    case TranscriptRole::kDocument:
      name = tr("Document %1").arg(message_.title);
      break;
  }
  if (message_.state == TranscriptState::kWaiting) name += tr(", waiting");
  if (message_.state == TranscriptState::kStreaming) name += tr(", being written");
  if (message_.state == TranscriptState::kStopped) name += tr(", stopped");
  if (message_.state == TranscriptState::kFailed) name += tr(", failed");
  if (message_.branchCount > 1) {
    name += tr(", version %1 of %2").arg(message_.branchIndex + 1).arg(message_.branchCount);
  }
  name += QStringLiteral(": ") + message_.text;
  if (!message_.footer.isEmpty()) name += QStringLiteral("\n") + message_.footer;
  return name;
}

}  // namespace longhand::ui
