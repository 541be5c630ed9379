#pragma once
// One message as the transcript draws it: its geometry, its text document while it is in sight, and
// what lies under a point. Coordinates are the item's own: x from the left of the text column, y
// from the item's top.

#include <memory>
#include <utility>
#include <vector>

#include <QRectF>
#include <QString>

#include "ui/style/icons.h"
#include "ui/style/theme.h"
#include "ui/transcript/transcript_message.h"

class QPainter;

namespace longhand::ui {

class MarkdownDocument;

/// What can be under the pointer.
enum class MessagePart {
  kNone,
  kText,
  kLink,
  kCopy,
  kCopyCode,
  kEdit,
  kRegenerate,
  kPrevious,
  kNext,
};

struct MessageHit {
  MessagePart part = MessagePart::kNone;
  int position = -1;      // kText, kLink: nearest position in the document
  QString link;           // kLink
  int codePosition = -1;  // kCopyCode: where the box's text begins

  /// Same button (position and link aside).
  bool sameButton(const MessageHit& other) const {
    return part == other.part && codePosition == other.codePosition;
  }
};

/// What the view knows about an item when it paints.
struct MessagePaintState {
  bool hovered = false;
  bool focused = false;                      // the current message of the keyboard
  MessageHit hot;                            // the part under the pointer
  MessageHit confirmed;                      // a copy button just used
  std::pair<int, int> selection{0, 0};       // positions
  std::vector<std::pair<int, int>> matches;  // of the search
  int currentMatch = -1;                     // index into matches
  int phase = 0;                             // of the waiting animation, counts up
};

class MessageItem {
 public:
  explicit MessageItem(const TranscriptMessage& message);
  ~MessageItem();
  Q_DISABLE_COPY_MOVE(MessageItem)

  const TranscriptMessage& message() const { return message_; }
  /// Height becomes an estimate again, unless a document is there to measure with.
  void setMessage(const TranscriptMessage& message);

  /// Forgets all measures (new theme or width); the document is kept only if `theme` is the same.
  void setLayout(const Theme& theme, double columnWidth, bool newTheme);
  /// Makes sure that the document exists and the height is exact.
  void measure();
  bool isMeasured() const { return isMeasured_; }
  /// Exact once measured, and after the document is dropped.
  double height() const { return height_; }
  bool hasDocument() const { return document_ != nullptr; }
  void dropDocument();
  /// nullptr until measure().
  const MarkdownDocument* document() const { return document_.get(); }
  QPointF textOrigin() const { return textOrigin_; }

  void paint(QPainter& painter, const QRectF& clip, const MessagePaintState& state) const;

  MessageHit hitTest(const QPointF& point) const;
  /// Nearest text position, wherever the point is.
  int positionAt(const QPointF& point) const;
  QString toolTip(const MessageHit& hit) const;

  /// "You", "Answer", ... then the text: for screen readers.
  QString accessibleName() const;

  /// The value of the view's clock when the item was last in sight.
  qint64 lastUsed = 0;

 private:
  struct Button {
    MessagePart part = MessagePart::kNone;
    IconKind icon = IconKind::kCopy;
    QRectF rect;
    bool enabled = true;
  };

  void estimate();
  void fillDocument();
  void arrange();
  void arrangeUser();
  void arrangeAssistant();
  void arrangeNotice();
  void arrangeCard();
  double arrangeFooter(double top, bool rightAligned);
  double arrangeBranches(double x, double centerY);
  bool buttonsVisible(const MessagePaintState& state) const;
  void paintCard(QPainter& painter) const;
  void paintFooter(QPainter& painter, const MessagePaintState& state) const;
  void paintButton(QPainter& painter, const Button& button, const MessagePaintState& state) const;
  void paintProgress(QPainter& painter) const;
  void paintWaiting(QPainter& painter, int phase) const;
  void paintCodeButtons(QPainter& painter, const QRectF& clip,
                        const MessagePaintState& state) const;

  TranscriptMessage message_;
  Theme theme_;
  double width_ = 0;
  double height_ = 0;
  bool isMeasured_ = false;
  bool isFilled_ = false;  // the document shows message_.text

  std::unique_ptr<MarkdownDocument> document_;
  QRectF box_;  // bubble, card; empty for others
  QPointF textOrigin_;
  QRectF footerRect_;    // one line
  QRectF errorRect_;     // kFailed: wrapped reason
  QRectF branchRect_;    // "2/3"
  QRectF progressRect_;  // bar
  QRectF waitingRect_;
  std::vector<Button> buttons_;
};

}  // namespace longhand::ui
