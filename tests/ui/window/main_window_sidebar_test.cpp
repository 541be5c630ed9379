// Chats in the real window: list, search, rename, delete and undo; everything after a restart.
#include <QAction>
#include <QLabel>
#include <QLineEdit>
#include <QListView>
#include <QListWidget>
#include <QMenu>
#include <QSignalSpy>
#include <QSplitter>

#include "engine/base/error.h"
#include "ui/chat/composer.h"
#include "ui/transcript/transcript_view.h"
#include "window_harness.h"

using namespace Qt::StringLiterals;
using namespace longhand;
using namespace longhand::tests;

class MainWindowSidebarTest final : public WindowTest {
  Q_OBJECT

 private:
  QListView& list() { return harness_->find<QListView>(u"conversationList"_s); }
  QStringList titles() {
    QStringList result;
    for (int row = 0; row < list().model()->rowCount(); ++row) {
      result << list().model()->index(row, 0).data().toString();
    }
    return result;
  }
  /// Opens a chat's menu with the keyboard and triggers one of its actions.
  void chooseInMenu(int row, const QString& action) {
    list().setCurrentIndex(list().model()->index(row, 0));
    const QPoint centre = list().visualRect(list().currentIndex()).center();
    QContextMenuEvent event(QContextMenuEvent::Keyboard, centre,
                            list().viewport()->mapToGlobal(centre));
    QCoreApplication::sendEvent(list().viewport(), &event);
    auto& menu = harness_->find<QMenu>(u"conversationMenu"_s);
    menu.findChild<QAction*>(action)->trigger();
    menu.close();
    QCoreApplication::sendPostedEvents(nullptr, QEvent::DeferredDelete);
  }
  void makeTwoChats() {
    QVERIFY(harness_->useSampleDocument());
    QCOMPARE(harness_->answerTo(questions_[0].question), questions_[0].answer);
    QTest::keyClick(&harness_->window(), Qt::Key_N, Qt::ControlModifier);
    QVERIFY(!harness_->answerTo(u"Hello!"_s).isEmpty());
    QTRY_COMPARE(list().model()->rowCount(), 2);
  }

 private slots:
  void chatsAreListedByTheirFirstQuestionNewestFirst() {
    QVERIFY(harness_->isShown(u"conversationListState"_s));
    makeTwoChats();
    QVERIFY(!harness_->isShown(u"conversationListState"_s));
    QVERIFY2(titles()[0].contains(u"Hello"_s), qPrintable(titles().join(u'|')));
    QVERIFY2(titles()[1].contains(u"green ledger"_s), qPrintable(titles().join(u'|')));
    QVERIFY(list().currentIndex().row() == 0);
  }

  void aChatWithOnlyADocumentIsListedByItsName() {
    QVERIFY(harness_->useSampleDocument());
    QCOMPARE(titles(), QStringList(u"sample-document.txt"_s));
    QCOMPARE(harness_->answerTo(questions_[0].question), questions_[0].answer);
    QTRY_VERIFY2(titles()[0].contains(u"green ledger"_s), qPrintable(titles()[0]));
  }

  void aClickOpensAChatWithItsDocuments() {
    makeTwoChats();
    QCOMPARE(harness_->find<QListWidget>(u"documentList"_s).count(), 0);
    QTest::mouseClick(list().viewport(), Qt::LeftButton, {},
                      list().visualRect(list().model()->index(1, 0)).center());
    QCOMPARE(harness_->controller().messages().front().text, questions_[0].question);
    QCOMPARE(harness_->find<QListWidget>(u"documentList"_s).count(), 1);
    QCOMPARE(harness_->find<QLabel>(u"documentName"_s).text(), u"sample-document.txt"_s);
    QCOMPARE(harness_->answerTo(questions_[2].question), questions_[2].answer);
  }

  void aDeletedChatComesBackWithUndo() {
    makeTwoChats();
    const QStringList before = titles();
    chooseInMenu(1, u"deleteChatAction"_s);
    QTRY_COMPARE(list().model()->rowCount(), 1);
    QVERIFY(harness_->isShown(u"undoBar"_s));
    harness_->click(u"undoBarAction"_s);
    QTRY_COMPARE(list().model()->rowCount(), 2);
    QCOMPARE(QStringList(before).filter(u"ledger"_s), titles().filter(u"ledger"_s));
    QCOMPARE(harness_->controller().messages().size(), std::size_t{2});
    QVERIFY(!harness_->isShown(u"undoBar"_s));
  }

  void noSingleKeyDeletes() {
    makeTwoChats();
    list().setFocus();
    for (const Qt::Key key : {Qt::Key_Delete, Qt::Key_Backspace, Qt::Key_D, Qt::Key_X}) {
      QTest::keyClick(&list(), key);
    }
    QCOMPARE(list().model()->rowCount(), 2);
    QCOMPARE(harness_->controller().conversations().size(), std::size_t{2});
  }

  void aChatCanBeRenamedInPlace() {
    makeTwoChats();
    chooseInMenu(1, u"renameChatAction"_s);
    auto* editor = list().viewport()->findChild<QLineEdit*>();
    QVERIFY(editor != nullptr);
    editor->setText(u"The ledger"_s);
    QTest::keyClick(editor, Qt::Key_Return);
    QTRY_VERIFY(titles().contains(u"The ledger"_s));
    QCOMPARE(harness_->controller().conversations().back().title, u"The ledger"_s);
  }

  void searchFindsMessagesOfAllChatsAndOpensThem() {
    makeTwoChats();
    QTest::keyClick(&harness_->window(), Qt::Key_K, Qt::ControlModifier);
    auto& field = harness_->find<QLineEdit>(u"searchField"_s);
    QVERIFY(field.hasFocus());
    QTest::keyClicks(&field, u"moldak"_s);
    QTRY_VERIFY(titles().size() == 1 && titles()[0].contains(u"ledger"_s));
    list().setCurrentIndex(list().model()->index(0, 0));
    QTest::keyClick(&list(), Qt::Key_Return);
    QCOMPARE(harness_->controller().messages().front().text, questions_[0].question);
    field.clear();
    QTRY_COMPARE(titles().size(), 2);
  }

  void enterInTheSearchFieldLeadsIntoTheHits() {
    makeTwoChats();
    auto& field = harness_->find<QLineEdit>(u"searchField"_s);
    field.setFocus();
    QTest::keyClicks(&field, u"moldak"_s);
    QTest::keyClick(&field, Qt::Key_Return);  // sooner than the pause of the search
    QVERIFY(list().hasFocus());
    QCOMPARE(titles().size(), 1);
    QTest::keyClick(&list(), Qt::Key_Return);
    QCOMPARE(harness_->controller().messages().front().text, questions_[0].question);
  }

  void findMarksThePlacesInTheOpenChat() {
    makeTwoChats();
    QTest::keyClick(&harness_->window(), Qt::Key_F, Qt::ControlModifier);
    auto& field = harness_->find<QLineEdit>(u"findField"_s);
    QVERIFY(harness_->isShown(u"findBar"_s));
    QTest::keyClicks(&field, u"hello"_s);
    QTRY_VERIFY(harness_->find<QLabel>(u"findCount"_s).text().startsWith(u"1 of "_s));
    QTest::keyClick(&field, Qt::Key_Escape);
    QVERIFY(!harness_->isShown(u"findBar"_s));
  }

  void afterARestartEverythingIsThereAndTheNextQuestionWorks() {
    QVERIFY(harness_->useSampleDocument());
    QCOMPARE(harness_->answerTo(questions_[0].question), questions_[0].answer);
    const QString title = titles().first();
    harness_->controller().switchPreset(u"balanced"_s);
    QTRY_COMPARE_WITH_TIMEOUT(harness_->controller().currentPreset(), u"balanced"_s, kPatienceMs);
    QVERIFY(harness_->waitUntilIdle());
    harness_->find<ui::Composer>(u"composer"_s).setText(u"half a thought"_s);
    harness_->click(u"sidebarButton"_s);  // hidden from now on
    harness_->window().resize(1111, 777);
    harness_->quit();

    harness_ = std::make_unique<WindowHarness>(dataFolder());
    QVERIFY(harness_->start());
    QCOMPARE(titles(), QStringList{title});
    QCOMPARE(harness_->controller().currentPreset(), u"balanced"_s);
    QCOMPARE(harness_->find<ui::TranscriptView>(u"transcript"_s).messageCount(), 3);
    QCOMPARE(harness_->lastAnswer(), questions_[0].answer);
    QCOMPARE(harness_->controller().documents().size(), std::size_t{1});
    auto& composer = harness_->find<ui::Composer>(u"composer"_s);
    QCOMPARE(composer.text(), u"half a thought"_s);
    QVERIFY(!harness_->isShown(u"sidebar"_s));
    QCOMPARE(harness_->window().size(), QSize(1111, 777));
    composer.setText(QString());
    QCOMPARE(harness_->answerTo(questions_[3].question), questions_[3].answer);
  }

  void aNarrowWindowShowsTwoPanesWithoutCuttingThem() {
    ui::MainWindow& window = harness_->window();
    const auto panesAreWhole = [&] {
      int right = 0;
      for (const QString& name : {u"sidebar"_s, u"chatPane"_s, u"rightPane"_s}) {
        const auto& pane = harness_->find<QWidget>(name);
        if (!pane.isVisible()) continue;
        if (pane.x() < right) return false;  // overlaps the one before
        right = pane.x() + pane.width();
      }
      return right <= window.width();
    };
    window.resize(1280, 800);
    window.showRightPage(ui::RightPane::Page::kSettings);
    QVERIFY(harness_->isShown(u"sidebar"_s) && harness_->isShown(u"rightPane"_s));

    window.resize(window.minimumSize());
    QTRY_VERIFY(panesAreWhole());
    QVERIFY(!harness_->isShown(u"sidebar"_s) && harness_->isShown(u"rightPane"_s));
    harness_->click(u"sidebarButton"_s);  // whoever asks for it gets it
    QTRY_VERIFY(panesAreWhole());
    QVERIFY(harness_->isShown(u"sidebar"_s) && !harness_->isShown(u"rightPane"_s));
    window.showRightPage(ui::RightPane::Page::kDocument);
    QTRY_VERIFY(panesAreWhole());
    QVERIFY(!harness_->isShown(u"sidebar"_s) && harness_->isShown(u"rightPane"_s));

    window.resize(1280, 800);
    QTRY_VERIFY(panesAreWhole());
    QVERIFY(harness_->isShown(u"sidebar"_s) && harness_->isShown(u"rightPane"_s));
  }

  void aSecondInstanceOnTheSameDataIsRefused() {
    try {
      WindowHarness second(dataFolder());
      QFAIL("two programs write the same database");
    } catch (const engine::Error& error) {
      QVERIFY(error.code() == engine::ErrorCode::kDatabase);
      QVERIFY(!error.message().empty());
    }
    QVERIFY(!harness_->answerTo(u"Hello!"_s).isEmpty());
  }
};

QTEST_MAIN(MainWindowSidebarTest)
#include "main_window_sidebar_test.moc"
