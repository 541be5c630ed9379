#include "ui/chat/chat_pane.h"

#include <QDragEnterEvent>
#include <QHBoxLayout>
#include <QMimeData>
#include <QStackedWidget>
#include <QUrl>
#include <QVBoxLayout>

#include "ui/chat/composer.h"
#include "ui/chat/find_bar.h"
#include "ui/chat/welcome_panel.h"
#include "ui/style/named.h"
#include "ui/style/notice_bar.h"
#include "ui/style/progress_card.h"
#include "ui/transcript/transcript_view.h"

using namespace Qt::StringLiterals;

namespace longhand::ui {

namespace {

constexpr int kLoadingCardWidth = 420;

/// `column` in the middle of the pane; its parts have a greatest width.
QHBoxLayout* centred(QVBoxLayout* column) {
  auto* row = new QHBoxLayout;
  row->addStretch(1);
  row->addLayout(column, 1000);
  row->addStretch(1);
  return row;
}

}  // namespace

ChatPane::ChatPane(const Theme& theme, QWidget* parent)
    : QWidget(parent),
      errorBar_(new NoticeBar(u"errorBar"_s, this)),
      presetBar_(new NoticeBar(u"presetBar"_s, this)),
      noticeBar_(new NoticeBar(u"noticeBar"_s, this)),
      pages_(new QStackedWidget(this)),
      loadingPage_(new QWidget(this)),
      loadingCard_(new ProgressCard(u"loadingCard"_s, loadingPage_)),
      welcome_(new WelcomePanel(this)),
      transcript_(named(new TranscriptView(theme, this), u"transcript"_s, tr("Chat"))),
      findBar_(new FindBar(*transcript_, theme, this)),
      workCard_(new ProgressCard(u"workCard"_s, this)),
      readingCard_(new ProgressCard(u"readingCard"_s, this)),
      composer_(named(new Composer(theme, this), u"composer"_s, tr("Message"))) {
  setObjectName(u"chatPane"_s);
  setAttribute(Qt::WA_StyledBackground);
  setAcceptDrops(true);
  loadingCard_->setFixedWidth(kLoadingCardWidth);
  auto* loadingLayout = new QVBoxLayout(loadingPage_);
  loadingLayout->addStretch(2);
  loadingLayout->addWidget(loadingCard_, 0, Qt::AlignHCenter);
  loadingLayout->addStretch(3);
  pages_->addWidget(loadingPage_);
  pages_->addWidget(welcome_);
  pages_->addWidget(transcript_);

  auto* notices = new QVBoxLayout;
  notices->setContentsMargins(12, 0, 12, 0);
  notices->setSpacing(8);
  for (QWidget* notice :
       std::initializer_list<QWidget*>{errorBar_, presetBar_, noticeBar_, findBar_}) {
    notices->addWidget(notice);
  }
  auto* bottom = new QVBoxLayout;
  bottom->setContentsMargins(12, 0, 12, 10);
  bottom->setSpacing(8);
  bottom->addWidget(workCard_);
  bottom->addWidget(readingCard_);
  bottom->addWidget(composer_);
  auto* layout = new QVBoxLayout(this);
  layout->setContentsMargins(0, 8, 0, 0);
  layout->setSpacing(6);
  layout->addLayout(centred(notices));
  layout->addWidget(pages_, 1);
  layout->addLayout(centred(bottom));
  setTheme(theme);
}

void ChatPane::setTheme(const Theme& theme) {
  // In line with the column of the chat's text, not as wide as a wide window.
  const int width = theme.metrics.columnWidth + 2 * theme.metrics.spaceHuge;
  for (QWidget* part : std::initializer_list<QWidget*>{errorBar_, presetBar_, noticeBar_, findBar_,
                                                       workCard_, readingCard_, composer_}) {
    part->setMaximumWidth(width);
  }
  transcript_->setTheme(theme);
  composer_->setTheme(theme);
  findBar_->setTheme(theme);
}

void ChatPane::showPage(Page page) {
  switch (page) {
    case Page::kLoading:
      pages_->setCurrentWidget(loadingPage_);
      return;
    case Page::kWelcome:
      pages_->setCurrentWidget(welcome_);
      return;
    case Page::kTranscript:
      pages_->setCurrentWidget(transcript_);
      return;
  }
}

void ChatPane::dragEnterEvent(QDragEnterEvent* event) {
  for (const QUrl& url : event->mimeData()->urls()) {
    if (url.isLocalFile()) event->acceptProposedAction();
  }
}

void ChatPane::dropEvent(QDropEvent* event) {
  for (const QUrl& url : event->mimeData()->urls()) {
    if (!url.isLocalFile()) continue;
    event->acceptProposedAction();
    emit fileDropped(url.toLocalFile());
    return;  // one document is looked at at a time
  }
}

}  // namespace longhand::ui
