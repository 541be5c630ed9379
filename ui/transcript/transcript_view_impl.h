#pragma once
// The inside of TranscriptView: where each message stands, which documents live, what is selected.
// Used by transcript_view*.cpp only.

#include <QElapsedTimer>
#include <QHash>
#include <QPoint>
#include <QTimer>
#include <QToolButton>

#include "ui/transcript/message_item.h"
#include "ui/transcript/transcript_find.h"
#include "ui/transcript/transcript_view.h"

namespace longhand::ui {

struct TranscriptView::Impl {
  explicit Impl(TranscriptView& owner) : view(owner) {}

  struct Selection {
    qint64 id = 0;  // message; 0: none
    int anchor = 0;
    int position = 0;
    bool empty() const { return id == 0 || anchor == position; }
    int first() const { return std::min(anchor, position); }
    int last() const { return std::max(anchor, position); }
  };

  struct Target {  // a part of a message
    qint64 id = 0;
    MessageHit hit;
  };

  // --- Geometry (transcript_view.cpp) ---
  MessageItem* item(qint64 id) const;
  MessageItem& at(int index) const { return *items[static_cast<std::size_t>(index)]; }
  int count() const { return static_cast<int>(items.size()); }
  double columnWidth() const;
  double columnLeft() const;
  int contentHeight() const { return tops.empty() ? 0 : tops.back(); }
  int top(int index) const { return tops[static_cast<std::size_t>(index)]; }
  /// The message at a height of the content; the nearest where there is none; -1: no messages.
  int indexAt(int contentY) const;
  void touchFrom(int index);  // heights from here on are not in `tops` yet
  void computeTops();
  void relayout();  // measures what is in sight, keeps the anchor or the end
  void rememberAnchor();
  void setScrollValue(int value);
  void dropOldDocuments();
  void rebuildIndex(int from);
  void layoutAll(bool newTheme);
  void messageChanged(int index);
  void updateDownButton();
  void updateAnimation();
  void announce();

  // --- Mouse and keyboard (transcript_view_input.cpp) ---
  QPointF toItem(int index, const QPoint& viewportPoint) const;
  Target targetAt(const QPoint& viewportPoint) const;
  void setHover(const QPoint& viewportPoint);
  void startSelection(const Target& target, bool extend);
  void selectWord(const Target& target);
  void selectBlock(const Target& target);
  void extendSelection(const QPoint& viewportPoint);
  void activate(const Target& target);
  void copySelection();
  void copyMessage(qint64 id, bool markdown);
  void confirm(const Target& target, const QString& what);
  QMenu* showMenu(qint64 id, const MessageHit& hit, const QPoint& globalPoint);
  void moveCurrent(int delta);
  void clipboard(const QString& text);

  // --- Search (transcript_view_find.cpp) ---
  void startFind(const QString& text);
  void goToMatch(int match);

  TranscriptView& view;
  Theme theme;
  std::vector<std::unique_ptr<MessageItem>> items;
  QHash<qint64, int> indexes;
  std::vector<int> tops;  // [count + 1]: content y of each message, then the content's height
  int dirtyFrom = 0;
  bool followsEnd = true;
  bool wasAtEnd = true;
  qint64 anchorId = 0;   // the message that stays where it is
  int anchorOffset = 0;  // its top in the viewport
  bool isInLayout = false;
  qint64 clock = 0;

  Selection selection;
  bool isSelecting = false;
  Target hover;
  Target pressed;
  QPoint pressPoint;
  QElapsedTimer sinceDoubleClick;
  QTimer autoScroll;
  int autoScrollStep = 0;
  QPoint lastDragPoint;
  Target confirmed;
  QTimer confirmTimer;
  bool keyboardFocus = false;

  TranscriptFind find;

  QTimer animation;
  int phase = 0;
  QToolButton* downButton = nullptr;
};

}  // namespace longhand::ui
