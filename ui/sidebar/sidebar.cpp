#include "ui/sidebar/sidebar.h"

#include <algorithm>

#include <QHBoxLayout>
#include <QKeyEvent>
#include <QLabel>
#include <QLineEdit>
#include <QListWidget>
#include <QMenu>
#include <QPushButton>
#include <QTimer>
#include <QVBoxLayout>

#include "app/chat_controller.h"
#include "ui/sidebar/conversation_list.h"
#include "ui/style/format.h"
#include "ui/style/icons.h"
#include "ui/style/named.h"
#include "ui/style/notice_bar.h"

using namespace Qt::StringLiterals;

namespace longhand::ui {

namespace {
constexpr int kSearchPauseMs = 150;
constexpr int kDocumentRowsShown = 4;
constexpr int kDocumentIdRole = Qt::UserRole + 1;
}  // namespace

Sidebar::Sidebar(app::ChatController& controller, const Theme& theme, QWidget* parent)
    : QWidget(parent),
      controller_(controller),
      theme_(theme),
      newChat_(named(new QPushButton(tr("New chat"), this), u"newChatButton"_s, tr("New chat"))),
      search_(named(new QLineEdit(this), u"searchField"_s, tr("Search all chats"))),
      listState_(named(new QLabel(this), u"conversationListState"_s, tr("State of the list"))),
      list_(new ConversationList(theme, this)),
      undoBar_(new NoticeBar(u"undoBar"_s, this)),
      documentArea_(new QWidget(this)),
      addDocument_(named(new QPushButton(this), u"addDocumentButton"_s, tr("Open a document"))),
      documents_(named(new QListWidget(this), u"documentList"_s, tr("Documents of this chat"))),
      searchTimer_(new QTimer(this)) {
  setObjectName(u"sidebar"_s);
  setAccessibleName(tr("Chats and documents"));
  setAttribute(Qt::WA_StyledBackground);
  listState_->setProperty("textRole", u"secondary"_s);
  listState_->setAlignment(Qt::AlignCenter);
  listState_->setWordWrap(true);

  auto* layout = new QVBoxLayout(this);
  layout->setContentsMargins(0, 10, 0, 8);
  layout->setSpacing(6);
  layout->addWidget(makeHead());
  layout->addWidget(listState_);
  layout->addWidget(list_, 1);
  layout->addWidget(undoBar_);
  layout->addWidget(makeDocuments());

  searchTimer_->setSingleShot(true);
  searchTimer_->setInterval(kSearchPauseMs);
  connectController();
  setTheme(theme);
  showConversations();
  showDocuments();
}

QWidget* Sidebar::makeHead() {
  auto* head = new QWidget(this);
  search_->setPlaceholderText(tr("Search"));
  search_->setToolTip(tr("Search titles and messages (Ctrl+K)"));
  search_->setClearButtonEnabled(true);
  search_->installEventFilter(this);
  newChat_->setToolTip(tr("Ctrl+N"));
  auto* layout = new QVBoxLayout(head);
  layout->setContentsMargins(10, 0, 10, 4);
  layout->setSpacing(8);
  layout->addWidget(newChat_);
  layout->addWidget(search_);
  return head;
}

QWidget* Sidebar::makeDocuments() {
  auto* title = new QLabel(tr("Documents"), documentArea_);
  title->setProperty("textRole", u"section"_s);
  addDocument_->setFlat(true);
  addDocument_->setToolTip(tr("Open a document (Ctrl+O)"));
  documents_->setFrameShape(QFrame::NoFrame);
  documents_->setIconSize(QSize(theme_.metrics.iconSize, theme_.metrics.iconSize));
  documents_->setHorizontalScrollBarPolicy(Qt::ScrollBarAlwaysOff);
  documents_->setTextElideMode(Qt::ElideMiddle);
  documents_->setContextMenuPolicy(Qt::CustomContextMenu);

  auto* head = new QHBoxLayout;
  head->setContentsMargins(18, 0, 10, 0);
  head->addWidget(title, 1);
  head->addWidget(addDocument_);
  auto* layout = new QVBoxLayout(documentArea_);
  layout->setContentsMargins(0, 6, 0, 0);
  layout->setSpacing(2);
  layout->addLayout(head);
  layout->addWidget(documents_);

  connect(addDocument_, &QPushButton::clicked, this, &Sidebar::openDocumentRequested);
  const auto open = [this](const QListWidgetItem* item) {
    emit documentChosen(item->data(kDocumentIdRole).toLongLong());
  };
  connect(documents_, &QListWidget::itemClicked, this, open);
  connect(documents_, &QListWidget::itemActivated, this, open);
  connect(documents_, &QListWidget::customContextMenuRequested, this, &Sidebar::showDocumentMenu);
  return documentArea_;
}

void Sidebar::connectController() {
  using app::ChatController;
  connect(newChat_, &QPushButton::clicked, this, [this] {
    emit chatAboutToChange();
    controller_.newConversation();
    emit composerWanted();
  });
  connect(search_, &QLineEdit::textChanged, searchTimer_, qOverload<>(&QTimer::start));
  connect(searchTimer_, &QTimer::timeout, this, &Sidebar::runSearch);
  connect(list_, &ConversationList::conversationChosen, this, &Sidebar::choose);
  connect(list_, &ConversationList::renameRequested, &controller_,
          &ChatController::renameConversation);
  connect(list_, &ConversationList::deleteRequested, this, [this](qint64 id) {
    emit chatAboutToChange();  // the draft comes back with Undo
    controller_.deleteConversation(id);
    undoBar_->showNotice(tr("Chat deleted"), QString(), tr("Undo"));
  });
  connect(undoBar_, &NoticeBar::actionTriggered, this, [this] {
    emit chatAboutToChange();
    controller_.undoDelete();
  });
  connect(&controller_, &ChatController::conversationListChanged, this,
          &Sidebar::showConversations);
  connect(&controller_, &ChatController::conversationOpened, this, [this](qint64 id) {
    list_->setCurrentConversation(id);
    showDocuments();
  });
  connect(&controller_, &ChatController::documentsChanged, this, &Sidebar::showDocuments);
  connect(&controller_, &ChatController::searchFinished, this, &Sidebar::showHits);
}

void Sidebar::setTheme(const Theme& theme) {
  theme_ = theme;
  newChat_->setIcon(makeIcon(IconKind::kAdd, theme.colors.text));
  addDocument_->setIcon(makeIcon(IconKind::kAdd, theme.colors.textMuted));
  for (QAction* old : search_->actions()) search_->removeAction(old);
  search_->addAction(makeIcon(IconKind::kSearch, theme.colors.textMuted),
                     QLineEdit::LeadingPosition);
  list_->setTheme(theme);
  showDocuments();
}

void Sidebar::focusSearch() {
  search_->setFocus(Qt::ShortcutFocusReason);
  search_->selectAll();
}

void Sidebar::runSearch() {
  searchTimer_->stop();
  if (search_->text().trimmed().isEmpty()) {
    showConversations();
  } else {
    controller_.search(search_->text().trimmed());
  }
}

bool Sidebar::eventFilter(QObject* watched, QEvent* event) {
  if (watched != search_ || event->type() != QEvent::KeyPress) {
    return QWidget::eventFilter(watched, event);
  }
  const int key = static_cast<const QKeyEvent*>(event)->key();
  if (key != Qt::Key_Down && key != Qt::Key_Return && key != Qt::Key_Enter) return false;
  if (searchTimer_->isActive()) runSearch();
  if (list_->model()->rowCount() == 0) return true;
  if (!list_->currentIndex().isValid()) list_->setCurrentIndex(list_->model()->index(0, 0));
  list_->setFocus(Qt::TabFocusReason);
  return true;
}

void Sidebar::showConversations() {
  if (!search_->text().trimmed().isEmpty()) {
    searchTimer_->start();  // a hit may have been renamed or deleted
    return;
  }
  std::vector<ConversationRow> rows = conversationRows(controller_.conversations());
  listState_->setText(tr("No chats yet."));
  listState_->setVisible(rows.empty());
  list_->setRows(std::move(rows));
  list_->setCurrentConversation(controller_.currentConversation());
}

void Sidebar::showHits(const QString& text, const std::vector<app::SearchHit>& hits) {
  if (text != search_->text().trimmed()) return;  // an answer to an earlier search
  listState_->setText(hits.empty()
                          ? tr("Nothing found for \u201c%1\u201d.").arg(text)
                          : tr("%1 found").arg(formatCount(static_cast<qint64>(hits.size()))));
  listState_->show();
  list_->setRows(conversationRows(hits));
}

void Sidebar::choose(qint64 conversationId, qint64 messageId) {
  emit chatAboutToChange();
  controller_.selectConversation(conversationId);
  if (messageId != 0) {
    emit messageChosen(messageId);
  } else {
    emit composerWanted();
  }
}

void Sidebar::showDocuments() {
  documents_->clear();
  const std::vector<app::Document> documents = controller_.documents();
  for (const app::Document& document : documents) {
    auto* item = new QListWidgetItem(makeIcon(IconKind::kDocument, theme_.colors.textMuted),
                                     document.fileName, documents_);
    item->setData(kDocumentIdRole, qint64{document.id});
    const QString facts = formatTokens(document.tokenCount);
    item->setToolTip(document.fileName + u'\n' + facts);
    item->setData(Qt::AccessibleTextRole, document.fileName + u", "_s + facts);
  }
  const int rows = std::clamp(static_cast<int>(documents.size()), 0, kDocumentRowsShown);
  documents_->setVisible(rows > 0);
  documents_->setFixedHeight(rows * std::max(28, documents_->sizeHintForRow(0)) + 6);
}

void Sidebar::showDocumentMenu(const QPoint& position) {
  const QListWidgetItem* item = documents_->itemAt(position);
  // The menu key comes without a place that means anything.
  if (item == nullptr && documents_->hasFocus()) item = documents_->currentItem();
  if (item == nullptr && documents_->hasFocus()) item = documents_->item(0);
  if (item == nullptr) return;
  const qint64 id = item->data(kDocumentIdRole).toLongLong();
  auto* menu = named(new QMenu(this), u"documentMenu"_s, tr("Document"));
  menu->setAttribute(Qt::WA_DeleteOnClose);
  connect(menu->addAction(tr("Show")), &QAction::triggered, this,
          [this, id] { emit documentChosen(id); });
  connect(menu->addAction(tr("Remove from this chat")), &QAction::triggered, this,
          [this, id] { controller_.detachDocument(id); });
  menu->popup(documents_->viewport()->mapToGlobal(position));
}

}  // namespace longhand::ui
