#include "ui/sidebar/conversation_list.h"

#include <QContextMenuEvent>
#include <QKeyEvent>
#include <QMenu>
#include <QMouseEvent>
#include <QPainter>
#include <QScrollBar>

#include "ui/style/format.h"
#include "ui/style/icons.h"
#include "ui/style/named.h"

using namespace Qt::StringLiterals;

namespace longhand::ui {

namespace {

constexpr int kRowMargin = 8;
constexpr int kRowPadding = 10;
constexpr int kMenuButtonSize = 24;

/// Where a row's menu button is, at its right end.
QRect menuButtonRect(const QRect& row) {
  return {row.right() - kRowMargin - kMenuButtonSize, row.center().y() - kMenuButtonSize / 2,
          kMenuButtonSize, kMenuButtonSize};
}

QString shownTitle(const QString& title) {
  return title.isEmpty() ? ConversationList::tr("New chat") : title.simplified();
}

}  // namespace

std::vector<ConversationRow> conversationRows(const std::vector<app::Conversation>& conversations) {
  const QDateTime now = QDateTime::currentDateTime();
  std::vector<ConversationRow> rows;
  rows.reserve(conversations.size());
  for (const app::Conversation& conversation : conversations) {
    rows.push_back(
        {conversation.id, 0,
         shownTitle(conversation.title.isEmpty() ? conversation.documentName : conversation.title),
         formatWhen(conversation.updated, now), QString()});
  }
  return rows;
}

std::vector<ConversationRow> conversationRows(const std::vector<app::SearchHit>& hits) {
  std::vector<ConversationRow> rows;
  rows.reserve(hits.size());
  for (const app::SearchHit& hit : hits) {
    rows.push_back({hit.conversationId, hit.messageId, shownTitle(hit.title), QString(),
                    hit.snippet.simplified()});
  }
  return rows;
}

// --- Model --------------------------------------------------------------------------------------

void ConversationListModel::setRows(std::vector<ConversationRow> rows) {
  beginResetModel();
  rows_ = std::move(rows);
  endResetModel();
}

int ConversationListModel::rowOf(qint64 conversationId) const {
  for (std::size_t row = 0; row < rows_.size(); ++row) {
    if (rows_[row].conversationId == conversationId) return static_cast<int>(row);
  }
  return -1;
}

int ConversationListModel::rowCount(const QModelIndex& parent) const {
  return parent.isValid() ? 0 : static_cast<int>(rows_.size());
}

QVariant ConversationListModel::data(const QModelIndex& index, int role) const {
  if (!index.isValid() || index.row() >= rowCount()) return {};
  const ConversationRow& row = rows_[static_cast<std::size_t>(index.row())];
  switch (role) {
    case Qt::DisplayRole:
    case Qt::EditRole:
      return row.title;
    case Qt::ToolTipRole:
      return row.snippet.isEmpty() ? row.title : row.title + u'\n' + row.snippet;
    case Qt::AccessibleTextRole:
      return QStringList{row.title, row.snippet, row.when}.join(u", "_s);
    case kConversationIdRole:
      return row.conversationId;
    case kMessageIdRole:
      return row.messageId;
    case kWhenRole:
      return row.when;
    case kSnippetRole:
      return row.snippet;
    default:
      return {};
  }
}

bool ConversationListModel::setData(const QModelIndex& index, const QVariant& value, int role) {
  if (!index.isValid() || role != Qt::EditRole) return false;
  const QString title = value.toString().simplified();
  ConversationRow& row = rows_[static_cast<std::size_t>(index.row())];
  if (title.isEmpty() || title == row.title) return false;
  row.title = title;
  emit dataChanged(index, index);
  emit renamed(row.conversationId, title);
  return true;
}

Qt::ItemFlags ConversationListModel::flags(const QModelIndex& index) const {
  return QAbstractListModel::flags(index) | Qt::ItemIsEditable;
}

// --- Painting -----------------------------------------------------------------------------------

class ConversationList::Delegate final : public QStyledItemDelegate {
 public:
  Delegate(const Theme& theme, QObject* parent) : QStyledItemDelegate(parent), theme_(theme) {}

  void setTheme(const Theme& theme) { theme_ = theme; }

  QSize sizeHint(const QStyleOptionViewItem&, const QModelIndex& index) const override {
    const bool isHit = !index.data(ConversationListModel::kSnippetRole).toString().isEmpty();
    const int lines = QFontMetrics(theme_.controlFont).height() +
                      (isHit ? 2 + QFontMetrics(theme_.smallFont).height() : 0);
    return {120, lines + 2 * kRowPadding - 2};
  }

  void paint(QPainter* painter, const QStyleOptionViewItem& option,
             const QModelIndex& index) const override {
    const bool isSelected = option.state.testFlag(QStyle::State_Selected);
    const bool isHovered = option.state.testFlag(QStyle::State_MouseOver);
    painter->save();
    painter->setRenderHint(QPainter::Antialiasing);
    const QRect back = option.rect.adjusted(kRowMargin, 1, -kRowMargin, -1);
    if (isSelected || isHovered) {
      painter->setPen(Qt::NoPen);
      painter->setBrush(isSelected ? theme_.colors.selected : theme_.colors.hover);
      painter->drawRoundedRect(back, theme_.metrics.radius, theme_.metrics.radius);
    }
    if (option.state.testFlag(QStyle::State_HasFocus)) {
      painter->setPen(QPen(theme_.colors.accent, 1.5));
      painter->setBrush(Qt::NoBrush);
      painter->drawRoundedRect(QRectF(back).adjusted(0.75, 0.75, -0.75, -0.75),
                               theme_.metrics.radius, theme_.metrics.radius);
    }
    paintTexts(painter, back.adjusted(kRowPadding, 0, -kRowPadding, 0), index,
               isSelected || isHovered);
    if (isSelected || isHovered) {
      paintIcon(*painter, IconKind::kMore, menuButtonRect(option.rect).adjusted(4, 4, -4, -4),
                theme_.colors.textMuted);
    }
    painter->restore();
  }

  void updateEditorGeometry(QWidget* editor, const QStyleOptionViewItem& option,
                            const QModelIndex&) const override {
    editor->setGeometry(option.rect.adjusted(kRowMargin + 2, 2, -kRowMargin - 2, -2));
  }

 private:
  /// Title with the date at its right; below it the snippet of a hit.
  void paintTexts(QPainter* painter, const QRect& area, const QModelIndex& index,
                  bool hasMenuButton) const {
    const QFontMetrics titleMetrics(theme_.controlFont);
    const QFontMetrics smallMetrics(theme_.smallFont);
    const QString snippet = index.data(ConversationListModel::kSnippetRole).toString();
    const QString when = index.data(ConversationListModel::kWhenRole).toString();
    const int blockHeight =
        titleMetrics.height() + (snippet.isEmpty() ? 0 : 2 + smallMetrics.height());
    QRect titleRect(area.left(), area.center().y() - blockHeight / 2 + 1, area.width(),
                    titleMetrics.height());
    int rightWidth = hasMenuButton ? kMenuButtonSize - 2 : 0;
    if (!when.isEmpty() && !hasMenuButton) {
      rightWidth = smallMetrics.horizontalAdvance(when);
      painter->setFont(theme_.smallFont);
      painter->setPen(theme_.colors.textMuted);
      painter->drawText(titleRect, Qt::AlignRight | Qt::AlignVCenter, when);
    }
    painter->setFont(theme_.controlFont);
    painter->setPen(theme_.colors.text);
    const int titleWidth = titleRect.width() - (rightWidth > 0 ? rightWidth + 8 : 0);
    painter->drawText(titleRect, Qt::AlignLeft | Qt::AlignVCenter,
                      titleMetrics.elidedText(index.data().toString(), Qt::ElideRight, titleWidth));
    if (snippet.isEmpty()) return;
    const QRect snippetRect(area.left(), titleRect.bottom() + 3, area.width() - rightWidth,
                            smallMetrics.height());
    painter->setFont(theme_.smallFont);
    painter->setPen(theme_.colors.textMuted);
    painter->drawText(snippetRect, Qt::AlignLeft | Qt::AlignVCenter,
                      smallMetrics.elidedText(snippet, Qt::ElideRight, snippetRect.width()));
  }

  Theme theme_;
};

// --- View ---------------------------------------------------------------------------------------

ConversationList::ConversationList(const Theme& theme, QWidget* parent)
    : QListView(parent),
      model_(new ConversationListModel(this)),
      delegate_(new Delegate(theme, this)) {
  named(this, u"conversationList"_s, tr("Chats"));
  setModel(model_);
  setItemDelegate(delegate_);
  setEditTriggers(QAbstractItemView::EditKeyPressed);
  setSelectionMode(QAbstractItemView::SingleSelection);
  setHorizontalScrollBarPolicy(Qt::ScrollBarAlwaysOff);
  setVerticalScrollMode(QAbstractItemView::ScrollPerPixel);
  setFrameShape(QFrame::NoFrame);
  setMouseTracking(true);
  setUniformItemSizes(false);
  connect(model_, &ConversationListModel::renamed, this, &ConversationList::renameRequested);
}

void ConversationList::setTheme(const Theme& theme) {
  delegate_->setTheme(theme);
  scheduleDelayedItemsLayout();
}

void ConversationList::setRows(std::vector<ConversationRow> rows) {
  const qint64 current = currentConversation();
  const int scroll = verticalScrollBar() != nullptr ? verticalScrollBar()->value() : 0;
  model_->setRows(std::move(rows));
  setCurrentConversation(current);
  verticalScrollBar()->setValue(scroll);
}

void ConversationList::setCurrentConversation(qint64 conversationId) {
  const int row = conversationId == 0 ? -1 : model_->rowOf(conversationId);
  const QModelIndex index = row < 0 ? QModelIndex() : model_->index(row);
  selectionModel()->setCurrentIndex(index, QItemSelectionModel::ClearAndSelect);
  if (!index.isValid()) clearSelection();
}

qint64 ConversationList::currentConversation() const {
  return currentIndex().data(ConversationListModel::kConversationIdRole).toLongLong();
}

void ConversationList::choose(const QModelIndex& index) {
  if (!index.isValid()) return;
  emit conversationChosen(index.data(ConversationListModel::kConversationIdRole).toLongLong(),
                          index.data(ConversationListModel::kMessageIdRole).toLongLong());
}

void ConversationList::mouseReleaseEvent(QMouseEvent* event) {
  QListView::mouseReleaseEvent(event);
  if (event->button() != Qt::LeftButton) return;
  const QModelIndex index = indexAt(event->position().toPoint());
  if (!index.isValid()) return;
  if (menuButtonRect(visualRect(index)).contains(event->position().toPoint())) {
    showMenu(index, event->globalPosition().toPoint());
  } else {
    choose(index);
  }
}

void ConversationList::keyPressEvent(QKeyEvent* event) {
  const bool isEnter = event->key() == Qt::Key_Return || event->key() == Qt::Key_Enter;
  if (isEnter && state() != QAbstractItemView::EditingState) {
    choose(currentIndex());
    return;
  }
  QListView::keyPressEvent(event);
}

void ConversationList::contextMenuEvent(QContextMenuEvent* event) {
  const bool isByKey = event->reason() == QContextMenuEvent::Keyboard;
  const QModelIndex index = isByKey ? currentIndex() : indexAt(event->pos());
  if (!index.isValid()) return;
  showMenu(index,
           isByKey ? viewport()->mapToGlobal(visualRect(index).center()) : event->globalPos());
}

void ConversationList::showMenu(const QModelIndex& index, const QPoint& globalPosition) {
  const qint64 id = index.data(ConversationListModel::kConversationIdRole).toLongLong();
  auto* menu = named(new QMenu(this), u"conversationMenu"_s, tr("Chat"));
  menu->setAttribute(Qt::WA_DeleteOnClose);
  const QPersistentModelIndex row(index);
  QAction* open = menu->addAction(tr("Open"));
  open->setObjectName(u"openChatAction"_s);
  connect(open, &QAction::triggered, this, [this, row] { choose(row); });
  QAction* rename = menu->addAction(tr("Rename"));
  rename->setObjectName(u"renameChatAction"_s);
  connect(rename, &QAction::triggered, this, [this, row] {
    if (row.isValid()) edit(row);
  });
  menu->addSeparator();
  QAction* remove = menu->addAction(tr("Delete"));
  remove->setObjectName(u"deleteChatAction"_s);
  connect(remove, &QAction::triggered, this, [this, id] { emit deleteRequested(id); });
  menu->popup(globalPosition);
}

}  // namespace longhand::ui
