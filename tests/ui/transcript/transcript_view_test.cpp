// The transcript as a person uses it: scrolling, streaming, selecting, searching, buttons, menu.
#include "ui/transcript/transcript_view.h"

#include <QAccessible>
#include <QClipboard>
#include <QMenu>
#include <QScrollBar>
#include <QSignalSpy>
#include <QToolButton>
#include <QtTest>

using namespace longhand::ui;

namespace {

TranscriptMessage message(qint64 id, TranscriptRole role, const QString& text) {
  TranscriptMessage result;
  result.id = id;
  result.role = role;
  result.text = text;
  return result;
}

QVector<TranscriptMessage> conversation(int count) {
  QVector<TranscriptMessage> messages;
  for (int i = 0; i < count; ++i) {
    const bool user = i % 2 == 0;
    messages.append(message(i + 1, user ? TranscriptRole::kUser : TranscriptRole::kAssistant,
                            user ? QStringLiteral("Question %1?").arg(i + 1)
                                 : QStringLiteral("Answer **%1**.\n\n- one\n- two\n\n%2")
                                       .arg(i + 1)
                                       .arg(QStringLiteral("More words here. ").repeated(i % 40))));
  }
  return messages;
}

}  // namespace

class TranscriptViewTest : public QObject {
  Q_OBJECT

  std::unique_ptr<TranscriptView> view_;

  QScrollBar* bar() const { return view_->verticalScrollBar(); }
  QPoint inMessage(int index, int dx, int dy) const {
    return view_->messageRect(index).topLeft() + QPoint(dx, dy);
  }
  /// The first point of a message's area where a click emits `spy`, searched on a grid.
  bool clickFinds(int index, QSignalSpy& spy) const {
    const QRect area = view_->messageRect(index);
    for (int y = area.bottom() - 2; y >= area.top(); y -= 6) {
      for (int x = area.left(); x < area.right(); x += 6) {
        const int before = spy.count();
        QTest::mouseClick(view_->viewport(), Qt::LeftButton, {}, {x, y});
        if (spy.count() > before) return true;
      }
    }
    return false;
  }

 private slots:
  void init() {
    view_ = std::make_unique<TranscriptView>(makeTheme(ThemeKind::kLight));
    view_->resize(700, 500);
    view_->show();
    QVERIFY(QTest::qWaitForWindowExposed(view_.get()));
  }
  void cleanup() { view_.reset(); }

  void opensAtTheEndAndBuildsOnlyWhatIsInSight() {
    view_->setMessages(conversation(2000));
    QCOMPARE(view_->messageCount(), 2000);
    QVERIFY(view_->isAtEnd());
    QVERIFY(view_->liveDocuments() < 20);
    QVERIFY(view_->messageRect(1999).bottom() <= view_->viewport()->height());
  }

  void atMost64DocumentsLive() {
    view_->setMessages(conversation(400));
    for (int i = 0; i < 400; i += 2) {
      view_->scrollToMessage(i + 1);
      view_->grab();
      QVERIFY(view_->liveDocuments() <= 64);
    }
    QCOMPARE(view_->liveDocuments(), 64);
  }

  void messagesDoNotOverlapAndLeaveNoHoles() {
    view_->setMessages(conversation(50));
    bar()->setValue(bar()->maximum() / 2);
    for (int i = 1; i < 50; ++i) {
      QCOMPARE(view_->messageRect(i).top(),
               view_->messageRect(i - 1).top() + view_->messageRect(i - 1).height());
    }
  }

  void followsTheEndWhileTextStreams() {
    view_->setMessages(conversation(10));
    QString text;
    for (int i = 0; i < 60; ++i) {
      text += QStringLiteral("A line of text.\n\n");
      view_->setMessageText(10, text);
      QVERIFY(view_->isAtEnd());
      QCOMPARE(bar()->value(), bar()->maximum());
    }
  }

  void staysWhereTheUserScrolledWhileTextStreams() {
    view_->setMessages(conversation(40));
    QSignalSpy atEnd(view_.get(), &TranscriptView::atEndChanged);
    bar()->setValue(bar()->maximum() / 2);
    QCOMPARE(atEnd.count(), 1);
    const int first = 20;
    const int before = view_->messageRect(first).top();
    for (int i = 0; i < 30; ++i) {
      view_->setMessageText(40, QStringLiteral("More text.\n\n").repeated(i));
    }
    QCOMPARE(view_->messageRect(first).top(), before);
    auto* button = view_->findChild<QToolButton*>(QStringLiteral("scrollToEndButton"));
    QVERIFY(button->isVisible());
    QTest::mouseClick(button, Qt::LeftButton);
    QVERIFY(view_->isAtEnd());
    QVERIFY(!button->isVisible());
  }

  void scrollingUpDoesNotJumpWhenEstimatesBecomeExact() {
    view_->setMessages(conversation(300));
    for (int step = 0; step < 100; ++step) {
      int visible = 0;
      while (view_->messageRect(visible).bottom() < 100) ++visible;
      const int before = view_->messageRect(visible).top();
      bar()->setValue(bar()->value() - 40);
      QCOMPARE(view_->messageRect(visible).top(), before + 40);
    }
  }

  void resizeKeepsTheMessageInPlace() {
    view_->setMessages(conversation(100));
    view_->scrollToMessage(51);
    QCOMPARE(view_->messageRect(50).top(), 0);
    view_->resize(450, 500);
    QCOMPARE(view_->messageRect(50).top(), 0);
  }

  void keysScroll() {
    view_->setMessages(conversation(100));
    QTest::keyClick(view_.get(), Qt::Key_Home);
    QCOMPARE(bar()->value(), 0);
    QTest::keyClick(view_.get(), Qt::Key_PageDown);
    QVERIFY(bar()->value() > 300);
    QTest::keyClick(view_.get(), Qt::Key_Up);
    QTest::keyClick(view_.get(), Qt::Key_End);
    QVERIFY(view_->isAtEnd());
    QTest::keyClick(view_.get(), Qt::Key_Up, Qt::ControlModifier);
    QTest::keyClick(view_.get(), Qt::Key_Up, Qt::ControlModifier);
    QVERIFY(view_->currentMessage() > 0 && view_->currentMessage() < 100);
  }

  void mouseSelectsTextAndCtrlCCopiesIt() {
    view_->setMessages(
        {message(1, TranscriptRole::kAssistant, QStringLiteral("Hello brave world"))});
    QGuiApplication::clipboard()->setText(QStringLiteral("old"));
    const QPoint start = inMessage(0, 2, 24);
    QTest::mousePress(view_->viewport(), Qt::LeftButton, {}, start);
    QTest::mouseMove(view_->viewport(), start + QPoint(400, 2));
    QTest::mouseRelease(view_->viewport(), Qt::LeftButton, {}, start + QPoint(400, 2));
    QCOMPARE(view_->selectedText(), QStringLiteral("Hello brave world"));
    QTest::keyClick(view_.get(), Qt::Key_C, Qt::ControlModifier);
    QCOMPARE(QGuiApplication::clipboard()->text(), QStringLiteral("Hello brave world"));
  }

  void doubleClickSelectsAWord() {
    view_->setMessages(
        {message(1, TranscriptRole::kAssistant, QStringLiteral("Hello brave world"))});
    QTest::mouseDClick(view_->viewport(), Qt::LeftButton, {}, inMessage(0, 10, 24));
    QCOMPARE(view_->selectedText(), QStringLiteral("Hello"));
    QTest::keyClick(view_.get(), Qt::Key_Escape);
    QVERIFY(!view_->hasSelection());
  }

  void ctrlASelectsTheCurrentMessageAndSelectionSurvivesStreaming() {
    view_->setMessages(conversation(4));
    view_->setCurrentMessage(3);
    QTest::keyClick(view_.get(), Qt::Key_A, Qt::ControlModifier);
    QCOMPARE(view_->selectedText(), QStringLiteral("Question 3?"));
    view_->setMessageText(4, QStringLiteral("new"));
    QCOMPARE(view_->selectedText(), QStringLiteral("Question 3?"));
  }

  void copyOfAMessageIsItsTextAndAsMarkdownItsSource() {
    view_->setMessages({message(1, TranscriptRole::kAssistant, QStringLiteral("a **b**\n\n- c"))});
    QContextMenuEvent event(QContextMenuEvent::Mouse, inMessage(0, 5, 24),
                            view_->viewport()->mapToGlobal(inMessage(0, 5, 24)));
    QApplication::sendEvent(view_->viewport(), &event);
    auto* menu = view_->findChild<QMenu*>(QStringLiteral("messageMenu"));
    QVERIFY(menu != nullptr);
    const auto trigger = [menu](const QString& name) {
      for (QAction* action : menu->actions()) {
        if (action->objectName() == name) return action->trigger(), true;
      }
      return false;
    };
    QVERIFY(trigger(QStringLiteral("copyMessage")));
    QCOMPARE(QGuiApplication::clipboard()->text(), QString::fromUtf8("a b\n\n• c"));
    QVERIFY(trigger(QStringLiteral("copyMarkdown")));
    QCOMPARE(QGuiApplication::clipboard()->text(), QStringLiteral("a **b**\n\n- c"));
    QVERIFY(!trigger(QStringLiteral("editMessage")));
    QVERIFY(!trigger(QStringLiteral("regenerate")));
    menu->close();
  }

  void codeButtonCopiesTheCode() {
    view_->setMessages(
        {message(1, TranscriptRole::kAssistant, QStringLiteral("```c\nint a;\nint b;\n```"))});
    const QRect area = view_->messageRect(0);
    // The button stands in the box's upper right corner.
    QTest::mouseClick(view_->viewport(), Qt::LeftButton, {},
                      QPoint(area.right() - 15, area.top() + 14 + 15));
    QCOMPARE(QGuiApplication::clipboard()->text(), QStringLiteral("int a;\nint b;"));
  }

  void buttonsAskForRegenerateEditAndBranches() {
    QVector<TranscriptMessage> messages = conversation(2);
    messages[1].canRetry = true;
    messages[1].branchIndex = 1;
    messages[1].branchCount = 3;
    view_->setMessages(messages);
    QSignalSpy regenerate(view_.get(), &TranscriptView::regenerateRequested);
    QVERIFY(clickFinds(1, regenerate));
    QCOMPARE(regenerate[0][0].toLongLong(), 2);
    QSignalSpy branch(view_.get(), &TranscriptView::branchRequested);
    QVERIFY(clickFinds(1, branch));
    QCOMPARE(branch[0][1].toInt(), -1);
    QSignalSpy edit(view_.get(), &TranscriptView::editRequested);
    QVERIFY(clickFinds(0, edit));
    QCOMPARE(edit[0][0].toLongLong(), 1);
  }

  void linksAreReportedAndNothingIsOpened() {
    view_->setMessages(
        {message(1, TranscriptRole::kAssistant, QStringLiteral("[here](https://example.org)"))});
    QSignalSpy link(view_.get(), &TranscriptView::linkActivated);
    QTest::mouseClick(view_->viewport(), Qt::LeftButton, {}, inMessage(0, 10, 24));
    QCOMPARE(link.count(), 1);
    QCOMPARE(link[0][0].toString(), QStringLiteral("https://example.org"));
  }

  void findCountsEveryMessageAndGoesRound() {
    view_->setMessages(conversation(300));
    QSignalSpy found(view_.get(), &TranscriptView::findChanged);
    bar()->setValue(0);
    view_->setFindText(QStringLiteral("answer"));
    QCOMPARE(view_->findCount(), 150);
    QCOMPARE(view_->findCurrent(), 0);
    view_->findPrevious();
    QCOMPARE(view_->findCurrent(), 149);
    const QRect last = view_->messageRect(299);
    QVERIFY(last.top() < view_->viewport()->height() && last.bottom() > 0);
    view_->findNext();
    QCOMPARE(view_->findCurrent(), 0);
    QVERIFY(view_->messageRect(1).top() >= -20);
    QCOMPARE(found.count(), 3);
    view_->setFindText(QStringLiteral("no such thing"));
    QCOMPARE(view_->findCount(), 0);
    view_->findNext();
    QCOMPARE(view_->findCurrent(), -1);
  }

  void findFollowsStreamedText() {
    view_->setMessages(conversation(2));
    view_->setFindText(QStringLiteral("needle"));
    QCOMPARE(view_->findCount(), 0);
    view_->setMessageText(2,
                          QStringLiteral("a **needle** and `needle`\n\n| needle |\n|---|\n| x |"));
    QCOMPARE(view_->findCount(), 3);
    view_->removeMessage(2);
    QCOMPARE(view_->findCount(), 0);
  }

  void matchesAreHighlighted() {
    view_->setMessages({message(1, TranscriptRole::kAssistant, QStringLiteral("some words"))});
    const QImage before = view_->viewport()->grab().toImage();
    view_->setFindText(QStringLiteral("words"));
    QVERIFY(view_->viewport()->grab().toImage() != before);
    view_->setFindText({});
    QCOMPARE(view_->viewport()->grab().toImage(), before);
  }

  void unknownIdsAreHarmless() {
    view_->setMessageText(77, QStringLiteral("x"));
    view_->removeMessage(77);
    view_->scrollToMessage(77);
    view_->selectMessage(77);
    QCOMPARE(view_->messageCount(), 0);
    view_->updateMessage(message(5, TranscriptRole::kNotice, QStringLiteral("new")));
    QCOMPARE(view_->messageCount(), 1);
    view_->clear();
    view_->findNext();
    QTest::keyClick(view_.get(), Qt::Key_Down, Qt::ControlModifier);
    QTest::mouseClick(view_->viewport(), Qt::LeftButton, {}, {100, 100});
    QCOMPARE(view_->messageCount(), 0);
  }

  void screenReadersSeeAListOfMessages() {
    QVector<TranscriptMessage> messages = conversation(3);
    messages[1].state = TranscriptState::kStopped;
    view_->setMessages(messages);
    QAccessibleInterface* list = QAccessible::queryAccessibleInterface(view_.get());
    QVERIFY(list != nullptr);
    QCOMPARE(list->role(), QAccessible::List);
    QCOMPARE(list->childCount(), 3);
    QCOMPARE(list->child(0)->text(QAccessible::Name), QStringLiteral("You: Question 1?"));
    QVERIFY(list->child(1)->text(QAccessible::Name).startsWith(QStringLiteral("Answer, stopped")));
    QCOMPARE(list->child(1)->role(), QAccessible::ListItem);
    QCOMPARE(list->indexOfChild(list->child(2)), 2);
    QCOMPARE(list->child(2)->parent(), list);
    QVERIFY(view_->accessibleDescription().contains(QStringLiteral("Question 3?")));
    view_->removeMessage(3);
    QCOMPARE(list->childCount(), 2);
  }

  void everyStateAndRoleIsPaintedInBothThemes() {
    QVector<TranscriptMessage> messages = conversation(2);
    TranscriptMessage card = message(10, TranscriptRole::kDocument, QStringLiteral("3 pages"));
    card.title = QStringLiteral("a.pdf");
    card.progress = 0.5;
    TranscriptMessage failed = message(11, TranscriptRole::kAssistant, {});
    failed.state = TranscriptState::kFailed;
    failed.footer = QStringLiteral("The context is full. ").repeated(20);
    TranscriptMessage waiting = message(12, TranscriptRole::kAssistant, {});
    waiting.state = TranscriptState::kWaiting;
    waiting.progress = 0.1;
    messages << card << message(13, TranscriptRole::kNotice, QStringLiteral("note")) << failed
             << waiting;
    view_->setMessages(messages);
    const QImage light = view_->grab().toImage();
    view_->setTheme(makeTheme(ThemeKind::kDark));
    const QImage dark = view_->grab().toImage();
    QVERIFY(qGray(light.pixel(5, 5)) > 200);
    QVERIFY(qGray(dark.pixel(5, 5)) < 60);
    QVERIFY(view_->isAtEnd());
  }
};

QTEST_MAIN(TranscriptViewTest)
#include "transcript_view_test.moc"
