#include "ui/transcript/transcript_accessible.h"

#include <memory>
#include <unordered_map>

#include <QAccessible>
#include <QAccessibleWidget>
#include <QPointer>

#include "ui/transcript/transcript_view.h"

namespace longhand::ui {
namespace {

class MessageAccessible final : public QAccessibleInterface {
 public:
  MessageAccessible(TranscriptView& view, qint64 id) : view_(&view), id_(id) {}

  bool isValid() const override { return view_ != nullptr && index() >= 0; }
  QObject* object() const override { return nullptr; }
  QWindow* window() const override {
    return view_ == nullptr || view_->window() == nullptr ? nullptr
                                                          : view_->window()->windowHandle();
  }
  QAccessibleInterface* childAt(int, int) const override { return nullptr; }
  QAccessibleInterface* parent() const override {
    return QAccessible::queryAccessibleInterface(view_);
  }
  QAccessibleInterface* child(int) const override { return nullptr; }
  int childCount() const override { return 0; }
  int indexOfChild(const QAccessibleInterface*) const override { return -1; }

  QString text(QAccessible::Text kind) const override {
    if (!isValid()) return {};
    if (kind == QAccessible::Name) return view_->messageDescription(index());
    if (kind == QAccessible::Value) return view_->message(index()).text;
    return {};
  }
  void setText(QAccessible::Text, const QString&) override {}

  QRect rect() const override {
    if (!isValid()) return {};
    const QRect local = view_->messageRect(index());
    return {view_->viewport()->mapToGlobal(local.topLeft()), local.size()};
  }
  QAccessible::Role role() const override { return QAccessible::ListItem; }
  QAccessible::State state() const override {
    QAccessible::State state;
    if (!isValid()) {
      state.invalid = true;
      return state;
    }
    state.readOnly = true;
    state.focusable = true;
    state.focused = view_->hasFocus() && view_->currentMessage() == id_;
    const QRect local = view_->messageRect(index());
    state.offscreen = local.bottom() < 0 || local.top() > view_->viewport()->height();
    const TranscriptState now = view_->message(index()).state;
    state.busy = now == TranscriptState::kWaiting || now == TranscriptState::kStreaming;
    return state;
  }

 private:
  int index() const { return view_->indexOf(id_); }

  QPointer<TranscriptView> view_;
  qint64 id_;
};

class TranscriptAccessible final : public QAccessibleWidget {
 public:
  explicit TranscriptAccessible(TranscriptView* view)
      : QAccessibleWidget(view, QAccessible::List) {}
  ~TranscriptAccessible() override {
    for (const auto& [message, id] : ids_) QAccessible::deleteAccessibleInterface(id);
  }

  int childCount() const override { return view()->messageCount(); }

  QAccessibleInterface* child(int index) const override {
    if (index < 0 || index >= view()->messageCount()) return nullptr;
    const qint64 message = view()->message(index).id;
    if (const auto known = ids_.find(message); known != ids_.end()) {
      return QAccessible::accessibleInterface(known->second);
    }
    auto* created = new MessageAccessible(*view(), message);  // Qt's registry owns it
    ids_.emplace(message, QAccessible::registerAccessibleInterface(created));
    return created;
  }

  int indexOfChild(const QAccessibleInterface* child) const override {
    for (const auto& [message, id] : ids_) {
      if (QAccessible::accessibleInterface(id) == child) return view()->indexOf(message);
    }
    return -1;
  }

  QAccessibleInterface* childAt(int x, int y) const override {
    const QPoint point = view()->viewport()->mapFromGlobal(QPoint(x, y));
    for (int i = 0; i < view()->messageCount(); ++i) {
      if (view()->messageRect(i).contains(point)) return child(i);
    }
    return nullptr;
  }

  QAccessibleInterface* focusChild() const override {
    return view()->hasFocus() ? child(view()->indexOf(view()->currentMessage())) : nullptr;
  }

 private:
  TranscriptView* view() const { return static_cast<TranscriptView*>(widget()); }

  mutable std::unordered_map<qint64, QAccessible::Id> ids_;  // of the interfaces made so far
};

QAccessibleInterface* makeInterface(const QString&, QObject* object) {
  auto* view = qobject_cast<TranscriptView*>(object);
  return view == nullptr ? nullptr : new TranscriptAccessible(view);
}

}  // namespace

void installTranscriptAccessibility() { QAccessible::installFactory(makeInterface); }

}  // namespace longhand::ui
