// The composer as a person uses it: keys, buttons, drops.
#include "ui/chat/composer.h"

#include <QClipboard>
#include <QDropEvent>
#include <QInputMethodEvent>
#include <QLabel>
#include <QMimeData>
#include <QPlainTextEdit>
#include <QScrollBar>
#include <QSignalSpy>
#include <QToolButton>
#include <QUrl>
#include <QtTest>

#include "ui/chat/context_meter.h"

using namespace longhand::ui;

class ComposerTest : public QObject {
  Q_OBJECT

  std::unique_ptr<Composer> composer_;
  QPlainTextEdit* edit_ = nullptr;
  QToolButton* button_ = nullptr;

  QString hint() const {
    const auto* label = composer_->findChild<QLabel*>(QStringLiteral("composerHint"));
    return label->isVisible() ? label->text() : QString();
  }

 private slots:
  void init() {
    composer_ = std::make_unique<Composer>(makeTheme(ThemeKind::kLight));
    composer_->resize(600, 120);
    composer_->show();
    QVERIFY(QTest::qWaitForWindowExposed(composer_.get()));
    edit_ = composer_->findChild<QPlainTextEdit*>(QStringLiteral("composerEdit"));
    button_ = composer_->findChild<QToolButton*>(QStringLiteral("sendButton"));
    edit_->setFocus();
  }
  void cleanup() { composer_.reset(); }

  void enterSendsTheTrimmedTextAndKeepsItUntilAccepted() {
    QSignalSpy sent(composer_.get(), &Composer::sendRequested);
    QTest::keyClicks(edit_, QStringLiteral("  hello "));
    QTest::keyClick(edit_, Qt::Key_Return);
    QCOMPARE(sent.count(), 1);
    QCOMPARE(sent[0][0].toString(), QStringLiteral("hello"));
    QCOMPARE(composer_->text(), QStringLiteral("  hello "));
    QTest::keyClick(edit_, Qt::Key_Return);
    QCOMPARE(sent.count(), 1);  // the first is still on its way
    composer_->accepted();
    QCOMPARE(composer_->text(), QString());
  }

  void whatWasNotSentStaysWhenAMessageIsStored() {
    QTest::keyClicks(edit_, QStringLiteral("hello"));
    composer_->accepted();  // of a sample question
    QCOMPARE(composer_->text(), QStringLiteral("hello"));
    QTest::keyClick(edit_, Qt::Key_Return);
    QTest::keyClicks(edit_, QStringLiteral(" again"));
    composer_->accepted();
    QCOMPARE(composer_->text(), QStringLiteral("again"));
  }

  void failedSendKeepsTheTextAndSaysWhy() {
    QSignalSpy sent(composer_.get(), &Composer::sendRequested);
    QTest::keyClicks(edit_, QStringLiteral("hello"));
    QTest::mouseClick(button_, Qt::LeftButton);
    composer_->rejected(QStringLiteral("The disk is full."));
    QCOMPARE(composer_->text(), QStringLiteral("hello"));
    QCOMPARE(hint(), QStringLiteral("The disk is full."));
    QTest::keyClick(edit_, Qt::Key_Return);
    QCOMPARE(sent.count(), 2);
    QTest::keyClicks(edit_, QStringLiteral("!"));
    QCOMPARE(hint(), QString());
  }

  void shiftEnterBreaksTheLineAndTheFieldGrowsToEightLines() {
    QSignalSpy sent(composer_.get(), &Composer::sendRequested);
    const int one = edit_->sizeHint().height();
    QTest::keyClicks(edit_, QStringLiteral("a"));
    QTest::keyClick(edit_, Qt::Key_Return, Qt::ShiftModifier);
    QTest::keyClicks(edit_, QStringLiteral("b"));
    QCOMPARE(composer_->text(), QStringLiteral("a\nb"));
    QCOMPARE(sent.count(), 0);
    QVERIFY(edit_->sizeHint().height() > one);
    composer_->setText(QString(7, u'\n'));
    const int eight = edit_->sizeHint().height();
    composer_->setText(QString(40, u'\n'));
    QCOMPARE(edit_->sizeHint().height(), eight);
  }

  void shortTextIsShownFromItsFirstLine() {
    composer_->setText(QStringLiteral("one\ntwo\nthree"));
    QCoreApplication::processEvents();
    QCOMPARE(edit_->verticalScrollBar()->value(), 0);
    QVERIFY(edit_->viewport()->height() >= 3 * edit_->fontMetrics().lineSpacing());
  }

  void blankTextIsNotSent() {
    QSignalSpy sent(composer_.get(), &Composer::sendRequested);
    QTest::keyClick(edit_, Qt::Key_Return);
    composer_->setText(QStringLiteral(" \n "));
    QTest::keyClick(edit_, Qt::Key_Return);
    QCOMPARE(sent.count(), 0);
    QVERIFY(!button_->isEnabled());
  }

  void whileGeneratingEscAndTheButtonStopAndEnterWaits() {
    QSignalSpy sent(composer_.get(), &Composer::sendRequested);
    QSignalSpy stopped(composer_.get(), &Composer::stopRequested);
    composer_->setGenerating(true);
    QCOMPARE(button_->accessibleName(), QStringLiteral("Stop"));
    QTest::keyClicks(edit_, QStringLiteral("next"));
    QTest::keyClick(edit_, Qt::Key_Return);
    QCOMPARE(sent.count(), 0);
    QCOMPARE(composer_->text(), QStringLiteral("next"));
    QTest::keyClick(edit_, Qt::Key_Escape);
    QTest::mouseClick(button_, Qt::LeftButton);
    QCOMPARE(stopped.count(), 2);
    composer_->setGenerating(false);
    QTest::keyClick(edit_, Qt::Key_Escape);
    QCOMPARE(stopped.count(), 2);
    QTest::keyClick(edit_, Qt::Key_Return);
    QCOMPARE(sent.count(), 1);
  }

  void enterDuringInputMethodCompositionDoesNotSend() {
    QSignalSpy sent(composer_.get(), &Composer::sendRequested);
    QTest::keyClicks(edit_, QStringLiteral("a"));
    QInputMethodEvent composing(QStringLiteral("ni"), {});
    QApplication::sendEvent(edit_, &composing);
    QTest::keyClick(edit_, Qt::Key_Return);
    QCOMPARE(sent.count(), 0);
    QInputMethodEvent commit;
    commit.setCommitString(QString::fromUtf8("你"));
    QApplication::sendEvent(edit_, &commit);
    composer_->setText(QString::fromUtf8("你"));
    QTest::keyClick(edit_, Qt::Key_Return);
    QCOMPARE(sent.count(), 1);
    QCOMPARE(sent[0][0].toString(), QString::fromUtf8("你"));
  }

  void disabledStateSaysWhyAndSendsNothing() {
    QSignalSpy sent(composer_.get(), &Composer::sendRequested);
    composer_->setDisabledReason(QStringLiteral("Load a model first."));
    QTest::keyClicks(edit_, QStringLiteral("draft"));
    QTest::keyClick(edit_, Qt::Key_Return);
    QCOMPARE(sent.count(), 0);
    QCOMPARE(hint(), QStringLiteral("Load a model first."));
    QCOMPARE(edit_->accessibleDescription(), hint());
    composer_->setDisabledReason({});
    QTest::keyClick(edit_, Qt::Key_Return);
    QCOMPARE(sent.count(), 1);
  }

  void richTextIsPastedPlain() {
    auto* rich = new QMimeData;
    rich->setHtml(QStringLiteral("<b>bold</b>"));
    rich->setText(QStringLiteral("bold"));
    QGuiApplication::clipboard()->setMimeData(rich);
    edit_->paste();
    QCOMPARE(composer_->text(), QStringLiteral("bold"));
  }

  void droppedFilesAreDocuments() {
    QSignalSpy dropped(composer_.get(), &Composer::documentDropped);
    QMimeData files;
    files.setUrls({QUrl::fromLocalFile(QStringLiteral("/tmp/a b.pdf")),
                   QUrl(QStringLiteral("https://example.org/x.pdf")),
                   QUrl::fromLocalFile(QStringLiteral("/tmp/c.md"))});
    QDragEnterEvent enter(QPoint(20, 20), Qt::CopyAction, &files, Qt::LeftButton, Qt::NoModifier);
    QApplication::sendEvent(composer_.get(), &enter);
    QVERIFY(enter.isAccepted());
    QDropEvent drop(QPointF(20, 20), Qt::CopyAction, &files, Qt::LeftButton, Qt::NoModifier);
    QApplication::sendEvent(composer_.get(), &drop);
    QCOMPARE(dropped.count(), 2);
    QCOMPARE(dropped[0][0].toString(), QStringLiteral("/tmp/a b.pdf"));
    QCOMPARE(dropped[1][0].toString(), QStringLiteral("/tmp/c.md"));
    QCOMPARE(composer_->text(), QString());
  }

  void escAndTheButtonCancelEditing() {
    QSignalSpy cancelled(composer_.get(), &Composer::editCancelled);
    composer_->setEditing(true);
    QTest::keyClick(edit_, Qt::Key_Escape);
    QTest::mouseClick(composer_->findChild<QToolButton*>(QStringLiteral("cancelEditButton")),
                      Qt::LeftButton);
    QCOMPARE(cancelled.count(), 2);
  }

  void meterWarnsBeyondTheTrainedLengthAndNearTheEnd() {
    const auto* meter = composer_->findChild<ContextMeter*>(QStringLiteral("contextMeter"));
    QVERIFY(!meter->isVisible());
    composer_->setContextUse(1000, 8192, 4096);
    QVERIFY(meter->isVisible());
    QCOMPARE(meter->text(), QStringLiteral("1,000 of 8,192 tokens"));
    QVERIFY(!meter->isWarning());
    composer_->setContextUse(5000, 8192, 4096);
    QVERIFY(meter->isWarning());
    QVERIFY(meter->text().contains(QStringLiteral("Beyond the 4,096 tokens")));
    composer_->setContextUse(7900, 8192, 0);
    QVERIFY(meter->text().contains(QStringLiteral("nearly full")));
    composer_->setContextUse(8192, 8192, 8192);
    QVERIFY(meter->text().contains(QStringLiteral("is full")));
    QCOMPARE(meter->accessibleName(), meter->text());
  }
};

QTEST_MAIN(ComposerTest)
#include "composer_test.moc"
