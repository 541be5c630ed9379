#include "ui/chat/composer.h"

#include <algorithm>
#include <utility>

#include <QDragEnterEvent>
#include <QHBoxLayout>
#include <QLabel>
#include <QMimeData>
#include <QPainter>
#include <QToolButton>
#include <QUrl>
#include <QVBoxLayout>

#include "ui/chat/composer_edit.h"
#include "ui/chat/context_meter.h"
#include "ui/style/icons.h"

namespace longhand::ui {
namespace {

constexpr int kButton = 34;
constexpr int kMargin = 8;  // between the frame and what is in it

QStringList droppedFiles(const QMimeData* data) {
  QStringList files;
  for (const QUrl& url : data->urls()) {
    if (url.isLocalFile()) files.append(url.toLocalFile());
  }
  return files;
}

QString roundButtonStyle(const QColor& background, const QColor& hover, const QColor& disabled) {
  return QStringLiteral(
             "QToolButton { border: 1px solid transparent; border-radius: %1px; "
             "background: %2; } QToolButton:hover { background: %3; } "
             "QToolButton:disabled { background: %4; }")
      .arg(kButton / 2)
      .arg(background.name(QColor::HexArgb), hover.name(QColor::HexArgb),
           disabled.name(QColor::HexArgb));
}

}  // namespace

Composer::Composer(const Theme& theme, QWidget* parent)
    : QWidget(parent),
      theme_(theme),
      edit_(new ComposerEdit(this)),
      attachButton_(new QToolButton(this)),
      sendButton_(new QToolButton(this)),
      editBar_(new QWidget(this)),
      editLabel_(new QLabel(tr("Editing a message: the chat continues from here."), editBar_)),
      editCancel_(new QToolButton(editBar_)),
      hint_(new QLabel(this)),
      meter_(new ContextMeter(theme, this)) {
  setObjectName(QStringLiteral("composer"));
  setAcceptDrops(true);
  setSizePolicy(QSizePolicy::Expanding, QSizePolicy::Fixed);
  edit_->setAccessibleName(tr("Message"));
  edit_->setPlaceholderText(tr("Ask about your document"));
  setFocusProxy(edit_);

  attachButton_->setObjectName(QStringLiteral("attachButton"));
  attachButton_->setToolTip(tr("Open a document (Ctrl+O)"));
  attachButton_->setAccessibleName(tr("Open a document"));
  sendButton_->setObjectName(QStringLiteral("sendButton"));
  for (QToolButton* button : {attachButton_, sendButton_}) {
    button->setFixedSize(kButton, kButton);
    button->setIconSize(QSize(18, 18));
    button->setCursor(Qt::PointingHandCursor);
  }
  editCancel_->setObjectName(QStringLiteral("cancelEditButton"));
  editCancel_->setToolTip(tr("Cancel editing (Esc)"));
  editCancel_->setAccessibleName(tr("Cancel editing"));
  editCancel_->setAutoRaise(true);
  hint_->setObjectName(QStringLiteral("composerHint"));
  hint_->setTextFormat(Qt::PlainText);
  hint_->setWordWrap(true);

  makeLayout();
  connectParts();
  editBar_->hide();
  setContextUse(0, 0, 0);
  setTheme(theme);
}

Composer::~Composer() = default;

void Composer::makeLayout() {
  auto* editRow = new QHBoxLayout(editBar_);
  editRow->setContentsMargins(6, 0, 0, 0);
  editRow->addWidget(editLabel_, 1);
  editRow->addWidget(editCancel_);
  auto* row = new QHBoxLayout;
  row->setSpacing(6);
  row->addWidget(attachButton_, 0, Qt::AlignBottom);
  row->addWidget(edit_, 1, Qt::AlignVCenter);
  row->addWidget(sendButton_, 0, Qt::AlignBottom);
  auto* frame = new QVBoxLayout;
  frame->setContentsMargins(kMargin, kMargin, kMargin, kMargin);
  frame->setSpacing(4);
  frame->addWidget(editBar_);
  frame->addLayout(row);
  auto* all = new QVBoxLayout(this);
  all->setContentsMargins(0, 0, 0, 0);
  all->setSpacing(6);
  all->addLayout(frame);
  auto* below = new QVBoxLayout;
  below->setContentsMargins(12, 0, 12, 0);
  below->setSpacing(2);
  below->addWidget(hint_);
  below->addWidget(meter_);
  all->addLayout(below);
}

void Composer::connectParts() {
  connect(edit_, &ComposerEdit::enterPressed, this, &Composer::send);
  connect(edit_, &ComposerEdit::escapePressed, this, [this] {
    if (isGenerating_) {
      emit stopRequested();
    } else if (isEditing_) {
      emit editCancelled();
    } else {
      emit escapePressed();
    }
  });
  connect(edit_, &QPlainTextEdit::textChanged, this, [this] {
    failure_.clear();
    updateState();
    emit textChanged();
  });
  connect(sendButton_, &QToolButton::clicked, this, [this] {
    if (isGenerating_) {
      emit stopRequested();
    } else {
      send();
    }
  });
  connect(attachButton_, &QToolButton::clicked, this, &Composer::attachRequested);
  connect(editCancel_, &QToolButton::clicked, this, &Composer::editCancelled);
}

void Composer::setTheme(const Theme& theme) {
  theme_ = theme;
  const ThemeColors& c = theme.colors;
  edit_->setFont(theme.textFont);
  QPalette palette = edit_->palette();
  palette.setColor(QPalette::Base, Qt::transparent);
  palette.setColor(QPalette::Text, c.text);
  palette.setColor(QPalette::PlaceholderText, c.textMuted);
  palette.setColor(QPalette::Highlight, c.selection);
  palette.setColor(QPalette::HighlightedText, c.text);
  edit_->setPalette(palette);
  editLabel_->setFont(theme.smallFont);
  hint_->setFont(theme.smallFont);
  attachButton_->setIcon(makeIcon(IconKind::kAttach, c.textMuted));
  attachButton_->setStyleSheet(roundButtonStyle(Qt::transparent, c.hover, Qt::transparent));
  editCancel_->setIcon(makeIcon(IconKind::kClose, c.textMuted));
  meter_->setTheme(theme);
  updateState();
  update();
}

QString Composer::text() const { return edit_->toPlainText(); }

void Composer::setText(const QString& text) {
  edit_->setPlainText(text);
  edit_->moveCursor(QTextCursor::End);
}

void Composer::setPlaceholderText(const QString& text) { edit_->setPlaceholderText(text); }

void Composer::setGenerating(bool generating) {
  isGenerating_ = generating;
  updateState();
}

void Composer::setDisabledReason(const QString& reason) {
  disabledReason_ = reason;
  updateState();
}

void Composer::setContextUse(qint64 usedTokens, qint64 contextLength, qint64 trainedLength,
                             qint64 forgottenTokens) {
  meter_->setUse(usedTokens, contextLength, trainedLength, forgottenTokens);
}

void Composer::accepted() {
  isSending_ = false;
  const QString now = edit_->toPlainText().trimmed();
  const QString sent = std::exchange(sentText_, QString());
  if (!sent.isEmpty() && now.startsWith(sent)) setText(now.mid(sent.size()).trimmed());
  updateState();
}

void Composer::rejected(const QString& reason) {
  isSending_ = false;
  sentText_.clear();
  failure_ = reason;
  updateState();
}

void Composer::setEditing(bool editing) {
  isEditing_ = editing;
  editBar_->setVisible(editing);
  updateGeometry();
}

void Composer::send() {
  const QString text = edit_->toPlainText().trimmed();
  if (isGenerating_ || isSending_ || !disabledReason_.isEmpty() || text.isEmpty()) return;
  isSending_ = true;
  sentText_ = text;
  updateState();
  emit sendRequested(text);
}

void Composer::updateState() {
  const ThemeColors& c = theme_.colors;
  const bool ready =
      disabledReason_.isEmpty() && !isSending_ && !edit_->toPlainText().trimmed().isEmpty();
  sendButton_->setEnabled(isGenerating_ || ready);
  sendButton_->setIcon(isGenerating_ ? makeIcon(IconKind::kStop, c.surface)
                                     : makeIcon(IconKind::kSend, c.accentText, c.textDisabled));
  const QColor back = isGenerating_ ? c.text : c.accent;
  QColor hover = back;
  hover = hover.darker(112);
  sendButton_->setStyleSheet(roundButtonStyle(back, hover, c.hover));
  sendButton_->setToolTip(isGenerating_ ? tr("Stop (Esc)") : tr("Send (Enter)"));
  sendButton_->setAccessibleName(isGenerating_ ? tr("Stop") : tr("Send"));

  const QString& hint = failure_.isEmpty() ? disabledReason_ : failure_;
  hint_->setText(hint);
  hint_->setVisible(!hint.isEmpty());
  QPalette palette = hint_->palette();
  palette.setColor(QPalette::WindowText, failure_.isEmpty() ? c.textMuted : c.error);
  hint_->setPalette(palette);
  edit_->setAccessibleDescription(hint);
}

// --- Dropped files ------------------------------------------------------------------------------

void Composer::dragEnterEvent(QDragEnterEvent* event) {
  isDropping_ = !droppedFiles(event->mimeData()).isEmpty();
  if (isDropping_ || event->mimeData()->hasText()) event->acceptProposedAction();
  update();
}

void Composer::dragLeaveEvent(QDragLeaveEvent*) {
  isDropping_ = false;
  update();
}

void Composer::dropEvent(QDropEvent* event) {
  isDropping_ = false;
  update();
  const QStringList files = droppedFiles(event->mimeData());
  if (files.isEmpty() && event->mimeData()->hasText()) {
    edit_->insertPlainText(event->mimeData()->text());
  }
  event->acceptProposedAction();
  for (const QString& file : files) emit documentDropped(file);
}

void Composer::paintEvent(QPaintEvent*) {
  QPainter painter(this);
  painter.setRenderHint(QPainter::Antialiasing);
  const int bottom = std::max(sendButton_->geometry().bottom(), edit_->geometry().bottom());
  const QRectF frame(0.5, 0.5, width() - 1.0, bottom + kMargin);
  painter.setBrush(theme_.colors.raised);
  painter.setPen(
      QPen(isDropping_ ? theme_.colors.accent : theme_.colors.border, isDropping_ ? 2 : 1));
  painter.drawRoundedRect(frame, 20, 20);
}

}  // namespace longhand::ui
