// The window without a mouse and without eyes: names, shortcuts, tab order, notices; and what it
// keeps of its looks.
#include <QAbstractButton>
#include <QAbstractItemView>
#include <QAction>
#include <QComboBox>
#include <QDialog>
#include <QLabel>
#include <QLineEdit>
#include <QSet>
#include <QSpinBox>
#include <QTemporaryDir>

#include "ui/memory/memory_strip.h"
#include "ui/style/notice_bar.h"
#include "window_harness.h"

using namespace Qt::StringLiterals;
using namespace longhand;
using namespace longhand::tests;

namespace {

/// Qt's own parts: the field in a spin box, the list of a combo box, buttons of scroll bars.
bool isPartOfAnotherControl(const QWidget* widget) {
  for (const QWidget* above = widget->parentWidget(); above != nullptr;
       above = above->parentWidget()) {
    if (qobject_cast<const QAbstractSpinBox*>(above) != nullptr ||
        qobject_cast<const QComboBox*>(above) != nullptr ||
        qobject_cast<const QLineEdit*>(above) != nullptr ||
        qobject_cast<const QAbstractItemView*>(above) != nullptr) {
      return true;
    }
  }
  return widget->objectName().startsWith(u"qt_"_s);
}

bool isControl(const QWidget* widget) {
  return qobject_cast<const QAbstractButton*>(widget) != nullptr ||
         qobject_cast<const QLineEdit*>(widget) != nullptr ||
         qobject_cast<const QComboBox*>(widget) != nullptr ||
         qobject_cast<const QAbstractSpinBox*>(widget) != nullptr ||
         qobject_cast<const QAbstractItemView*>(widget) != nullptr;
}

}  // namespace

class MainWindowAccessTest final : public QObject {
  Q_OBJECT

 private:
  std::unique_ptr<QTemporaryDir> folder_;
  std::unique_ptr<WindowHarness> harness_;

 private slots:
  void initTestCase() {
    folder_ = std::make_unique<QTemporaryDir>();
    harness_ = std::make_unique<WindowHarness>(folder_->path());
    QVERIFY(harness_->start());
  }

  void cleanupTestCase() { harness_.reset(); }

  void everyControlHasANameForTestsAndOneForScreenReaders() {
    int controls = 0;
    for (const QWidget* widget : harness_->window().findChildren<QWidget*>()) {
      if (!isControl(widget) || isPartOfAnotherControl(widget)) continue;
      ++controls;
      QVERIFY2(!widget->objectName().isEmpty(),
               qPrintable(QLatin1StringView(widget->metaObject()->className()) + u" in "_s +
                          widget->parentWidget()->objectName()));
      // A button that says nothing yet (an action without text) is hidden.
      const bool isHiddenButton = qobject_cast<const QAbstractButton*>(widget) != nullptr &&
                                  !widget->isVisibleTo(&harness_->window());
      QVERIFY2(!widget->accessibleName().isEmpty() || isHiddenButton,
               qPrintable(widget->objectName()));
    }
    QVERIFY2(controls > 50, qPrintable(QString::number(controls)));
  }

  void objectNamesAreUnique() {
    QSet<QString> names;
    for (const QWidget* widget : harness_->window().findChildren<QWidget*>()) {
      if (!isControl(widget) || isPartOfAnotherControl(widget)) continue;
      QVERIFY2(!names.contains(widget->objectName()), qPrintable(widget->objectName()));
      names.insert(widget->objectName());
    }
  }

  void tabReachesTheMainControlsAndComesBack() {
    QSet<QString> reached;
    QWidget* start = &harness_->window();
    int steps = 0;
    for (QWidget* next = start->nextInFocusChain(); next != start && steps < 1000; ++steps) {
      if (next->focusPolicy() & Qt::TabFocus && next->isVisibleTo(start)) {
        reached.insert(next->objectName());
      }
      next = next->nextInFocusChain();
    }
    QVERIFY(steps < 1000);
    for (const QString& name : {u"presetChooser"_s, u"newChatButton"_s, u"searchField"_s,
                                u"conversationList"_s, u"settingsButton"_s}) {
      QVERIFY2(reached.contains(name), qPrintable(name));
    }
    QVERIFY(reached.contains(harness_->composerField().objectName()));
  }

  void theWindowFitsASmallScreen() {
    const QSize smallest =
        harness_->window().minimumSizeHint().expandedTo(harness_->window().minimumSize());
    QVERIFY2(smallest.width() <= 800 && smallest.height() <= 560,  // of 600, without the title
             qPrintable(u"%1 x %2"_s.arg(smallest.width()).arg(smallest.height())));
  }

  void shortcutsOfTheDesignExist_data() {
    QTest::addColumn<QString>("action");
    QTest::addColumn<QKeySequence>("keys");
    QTest::newRow("new") << u"newChatAction"_s << QKeySequence(u"Ctrl+N"_s);
    QTest::newRow("search") << u"searchAction"_s << QKeySequence(u"Ctrl+K"_s);
    QTest::newRow("find") << u"findAction"_s << QKeySequence(u"Ctrl+F"_s);
    QTest::newRow("document") << u"openDocumentAction"_s << QKeySequence(u"Ctrl+O"_s);
    QTest::newRow("settings") << u"settingsAction"_s << QKeySequence(u"Ctrl+,"_s);
    QTest::newRow("model") << u"openModelAction"_s << QKeySequence(u"Ctrl+L"_s);
    for (int i = 1; i <= 5; ++i) {
      QTest::addRow("preset %d", i)
          << u"presetAction%1"_s.arg(i) << QKeySequence(u"Alt+%1"_s.arg(i));
    }
  }

  void shortcutsOfTheDesignExist() {
    QFETCH(const QString, action);
    QFETCH(const QKeySequence, keys);
    const auto* found = harness_->window().findChild<QAction*>(action);
    QVERIFY(found != nullptr);
    QCOMPARE(found->shortcut(), keys);
    QVERIFY(harness_->window().actions().contains(found));
  }

  void everyShortcutIsUsedOnce() {
    QSet<QKeySequence> used;
    for (const QAction* action : harness_->window().actions()) {
      if (action->shortcut().isEmpty()) continue;
      QVERIFY2(!used.contains(action->shortcut()), qPrintable(action->objectName()));
      used.insert(action->shortcut());
    }
  }

  void theMemoryStripIsReadAloudInSentences() {
    const auto& strip = harness_->find<ui::MemoryStrip>(u"memoryStrip"_s);
    QVERIFY(!strip.textEquivalent().isEmpty());
    QCOMPARE(strip.accessibleDescription(), strip.textEquivalent());
  }

  void theModelHelpOpensFromTheBadge() {
    harness_->click(u"demoBadge"_s);
    auto& dialog = harness_->find<QDialog>(u"modelHelpDialog"_s);
    QVERIFY(dialog.isVisible());
    QTest::keyClick(&dialog, Qt::Key_Escape);
    QTRY_VERIFY(harness_->window().findChild<QDialog*>(u"modelHelpDialog"_s) == nullptr);
  }

  void aModelThatCannotBeLoadedLeavesTheOldOneAndSaysWhy() {
    harness_->window().openModel(folder_->filePath(u"nothing here"_s));
    QTRY_VERIFY_WITH_TIMEOUT(harness_->isShown(u"errorBar"_s), kPatienceMs);
    QVERIFY2(harness_->find<QLabel>(u"errorBarText"_s).text().contains(u"nothing here"_s),
             qPrintable(harness_->find<QLabel>(u"errorBarText"_s).text()));
    QVERIFY(harness_->waitUntilIdle());
    QVERIFY(harness_->controller().model().has_value());
    QVERIFY(!harness_->answerTo(u"Hello!"_s).isEmpty());
    QVERIFY(!harness_->isShown(u"errorBar"_s));
  }

  void aNoticeCanBeDismissedWithTheKeyboard() {
    auto& bar = harness_->find<ui::NoticeBar>(u"errorBar"_s);
    bar.showNotice(u"Something failed."_s, u"Do something else."_s, QString());
    QCOMPARE(bar.notice(), u"Something failed. Do something else."_s);
    QTest::keyClick(&harness_->window(), Qt::Key_Escape);
    QVERIFY(!harness_->isShown(u"errorBar"_s));
    QVERIFY(bar.notice().isEmpty());
  }

  void theThemeCanBeSwitchedAndIsKept() {
    auto* dark = harness_->window().findChild<QAction*>(u"darkAction"_s);
    dark->setChecked(true);
    QVERIFY(harness_->window().palette().color(QPalette::Window).lightness() < 100);
    harness_->quit();
    harness_ = std::make_unique<WindowHarness>(folder_->path());
    QVERIFY(harness_->start());
    QVERIFY(harness_->window().palette().color(QPalette::Window).lightness() < 100);
  }
};

QTEST_MAIN(MainWindowAccessTest)
#include "main_window_access_test.moc"
