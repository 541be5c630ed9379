// "Check quality" in the real window, and the cards and notices of work that nobody asked about.
#include <QAction>
#include <QClipboard>
#include <QDialog>
#include <QGuiApplication>
#include <QLabel>
#include <QMimeData>
#include <QProgressBar>
#include <QPushButton>
#include <QSignalSpy>
#include <QTableWidget>

#include "ui/quality/quality_words.h"
#include "window_harness.h"

using namespace Qt::StringLiterals;
using namespace longhand;
using namespace longhand::tests;

class MainWindowQualityTest final : public WindowTest {
  Q_OBJECT

 private:
  QDialog& dialog() { return harness_->find<QDialog>(u"qualityDialog"_s); }
  QString label(const QString& name) { return harness_->find<QLabel>(name).text(); }
  bool isShownInDialog(const QString& name) {
    return dialog().isVisible() && harness_->find<QWidget>(name).isVisible();
  }
  void clickInDialog(const QString& name) {
    auto& button = harness_->find<QPushButton>(name);
    QVERIFY(button.isVisible() && button.isEnabled());
    QTest::mouseClick(&button, Qt::LeftButton);
  }
  void check() { harness_->window().findChild<QAction*>(u"checkQualityAction"_s)->trigger(); }

 private slots:
  // --- Check quality ----------------------------------------------------------------------------

  void theTableHasEveryPresetAndSaysWhatWasMeasured() {
    QVERIFY(harness_->useSampleDocument());
    QSignalSpy checked(&harness_->controller(), &app::ChatController::qualityChecked);
    harness_->click(u"documentQualityButton"_s);
    QVERIFY(isShownInDialog(u"qualityProgress"_s));
    QTRY_VERIFY_WITH_TIMEOUT(label(u"qualityProgressDetail"_s).contains(u"side by side"_s),
                             kPatienceMs);
    QVERIFY(label(u"qualityProgressDetail"_s).contains(u"left"_s));
    QTRY_COMPARE_WITH_TIMEOUT(checked.size(), 1, kPatienceMs);

    auto& table = harness_->find<QTableWidget>(u"qualityTable"_s);
    QVERIFY(isShownInDialog(u"qualityTable"_s));
    // All presets but "custom", which is not in use.
    const auto presets = harness_->controller().presets();
    QCOMPARE(table.rowCount(), static_cast<int>(presets.size()) - 1);
    for (int row = 0; row < table.rowCount(); ++row) {
      QCOMPARE(table.item(row, 0)->text(), presets[static_cast<std::size_t>(row)].name);
      for (int column = 1; column < table.columnCount(); ++column) {
        QVERIFY(!table.item(row, column)->text().isEmpty());
        QVERIFY(label(u"qualityMeanings"_s).contains(table.horizontalHeaderItem(column)->text()));
      }
    }
    QCOMPARE(table.item(0, ui::kQualityEqualTop)->text(), u"100 %"_s);
    QVERIFY2(label(u"qualitySample"_s).contains(u"of the 1,209 tokens of sample-document.txt"_s),
             qPrintable(label(u"qualitySample"_s)));
    QVERIFY2(label(u"qualityVerdict"_s).startsWith(u"Quality, in use here,"_s),
             qPrintable(label(u"qualityVerdict"_s)));
    QVERIFY(harness_->find<QPushButton>(u"qualityCloseButton"_s).hasFocus());
  }

  void theResultCanBeCopied() {
    QVERIFY(harness_->useSampleDocument());
    QSignalSpy checked(&harness_->controller(), &app::ChatController::qualityChecked);
    check();
    QTRY_COMPARE_WITH_TIMEOUT(checked.size(), 1, kPatienceMs);
    clickInDialog(u"qualityCopyButton"_s);
    const QMimeData* copied = QGuiApplication::clipboard()->mimeData();
    QVERIFY2(copied->text().contains(u"| Preset | Perplexity | Mean KL |"_s),
             qPrintable(copied->text()));
    QVERIFY(copied->text().contains(u"| Memory limit |"_s));
    QVERIFY(copied->text().contains(u"Measured on "_s));
    QVERIFY(copied->html().contains(u"<td align=\"left\">Memory limit</td>"_s));
    QCOMPARE(harness_->find<QPushButton>(u"qualityCopyButton"_s).text(), u"Copied"_s);
  }

  void cancelEndsTheCheckAndCheckAgainBeginsAnother() {
    QVERIFY(harness_->useSampleDocument());
    QSignalSpy failed(&harness_->controller(), &app::ChatController::qualityFailed);
    QSignalSpy checked(&harness_->controller(), &app::ChatController::qualityChecked);
    check();
    clickInDialog(u"qualityProgressCancel"_s);
    QTRY_COMPARE_WITH_TIMEOUT(failed.size(), 1, kPatienceMs);
    QVERIFY(isShownInDialog(u"qualityFailure"_s));
    QCOMPARE(label(u"qualityFailure"_s), u"The check was stopped."_s);
    QVERIFY(checked.isEmpty());
    clickInDialog(u"qualityAgainButton"_s);
    QVERIFY(isShownInDialog(u"qualityProgress"_s));
    QTRY_COMPARE_WITH_TIMEOUT(checked.size(), 1, kPatienceMs);
  }

  void closingTheDialogEndsTheCheck() {
    QVERIFY(harness_->useSampleDocument());
    QSignalSpy failed(&harness_->controller(), &app::ChatController::qualityFailed);
    check();
    QTest::keyClick(&dialog(), Qt::Key_Escape);
    QVERIFY(!dialog().isVisible());
    QTRY_COMPARE_WITH_TIMEOUT(failed.size(), 1, kPatienceMs);
    QVERIFY(harness_->waitUntilIdle());
    QVERIFY(!dialog().isVisible());
  }

  void withoutADocumentOneSentenceSaysSo() {
    check();
    QVERIFY(isShownInDialog(u"qualityFailure"_s));
    QVERIFY2(label(u"qualityFailure"_s).contains(u"no text"_s),
             qPrintable(label(u"qualityFailure"_s)));
    QCOMPARE(label(u"qualityFailureHint"_s), u"Open a document first."_s);
    QVERIFY(!harness_->find<QWidget>(u"qualityCopyButton"_s).isVisible());
  }

  void theChatCanBeUsedMeanwhile() {
    QVERIFY(harness_->useSampleDocument());
    check();
    QCOMPARE(harness_->answerTo(questions_[0].question), questions_[0].answer);
    QVERIFY2(label(u"qualityFailure"_s).contains(u"a question was asked"_s),
             qPrintable(label(u"qualityFailure"_s)));
  }

  void sharesAreNeverRoundedUpToAll() {
    QCOMPARE(ui::formatEqualShare(1.0), u"100 %"_s);
    QCOMPARE(ui::formatEqualShare(0.99999), u"99.9 %"_s);
    QCOMPARE(ui::formatEqualShare(0.9478), u"94.7 %"_s);
    QCOMPARE(ui::formatDivergence(0.0), u"0"_s);
    QCOMPARE(ui::formatDivergence(2e-6), u"< 0.0001"_s);
    QCOMPARE(ui::formatDivergence(0.00584), u"0.0058"_s);
  }

  void severalPiecesAreNamedByTheirTokens() {
    app::QualityCheckResult result;
    result.textName = u"report.pdf"_s;
    result.textTokens = 70'412;
    result.scoredTokens = 512;
    result.pieces = {{0, 2048, 256}, {68'364, 2048, 256}};
    QCOMPARE(ui::qualitySample(result),
             u"Measured on 512 of the 70,412 tokens of report.pdf. It has 2 pieces, spread evenly "
             u"over the text: tokens 1 to 2,048 and 68,365 to 70,412. Of each, the first 1,792 are "
             u"read as a prompt is; the other 256 are predicted one by one, as an answer is "
             u"written."_s);
  }

  void aPresetOfWhichNothingWasPackedIsNamed() {
    app::QualityCheckResult result;
    app::QualityCheckRow row;
    row.preset.name = u"Quality"_s;
    row.preset.cache.keyNbits = row.preset.cache.valueNbits = 4;
    result.rows = {row};
    QVERIFY(ui::qualityCaveat(result).contains(u"too short for Quality"_s));
    result.rows[0].packedTokens = 64;
    QVERIFY(ui::qualityCaveat(result).isEmpty());
  }

  // --- Other work -------------------------------------------------------------------------------

  void convertingShowsACardWithCancelWhereItTakesTime() {
    app::ChatController& controller = harness_->controller();
    emit controller.convertProgress(1 << 20, 4 << 20);
    QVERIFY(!harness_->isShown(u"workCard"_s));  // it may be over at once
    QTest::qWait(350);
    emit controller.convertProgress(2 << 20, 4 << 20);
    QVERIFY(harness_->isShown(u"workCard"_s));
    QVERIFY(label(u"workCardTitle"_s).contains(u"Switching the preset"_s));
    QCOMPARE(label(u"workCardDetail"_s), u"2.0 MiB of 4.0 MiB"_s);
    QCOMPARE(harness_->find<QProgressBar>(u"workCardBar"_s).value(), 500);
    harness_->click(u"workCardCancel"_s);
    emit controller.presetSwitched(controller.currentPreset());
    QVERIFY(!harness_->isShown(u"workCard"_s));
  }

  void openingASavedDocumentShowsACardUntilItIsThere() {
    app::ChatController& controller = harness_->controller();
    emit controller.restoreProgress(0, 4 << 20);
    QTest::qWait(350);
    emit controller.restoreProgress(1 << 20, 4 << 20);
    QVERIFY(harness_->isShown(u"workCard"_s));
    QCOMPARE(label(u"workCardTitle"_s), u"Opening the saved document"_s);
    emit controller.sessionRestored(1, 1000);
    QVERIFY(!harness_->isShown(u"workCard"_s));
  }

  void aSavedCacheThatCannotBeUsedIsTold() {
    QVERIFY(harness_->useSampleDocument());
    QSignalSpy saved(&harness_->controller(), &app::ChatController::sessionSaved);
    QCOMPARE(harness_->answerTo(questions_[0].question), questions_[0].answer);
    QTRY_COMPARE_WITH_TIMEOUT(saved.size(), 1, kPatienceMs);
    const QString path = u"%1/sessions/%2.lhkv"_s.arg(dataFolder()).arg(saved[0][0].toLongLong());
    harness_.reset();
    QFile damaged(path);
    QVERIFY(damaged.open(QIODevice::ReadWrite));
    QVERIFY(damaged.seek(damaged.size() / 2));
    damaged.write("damage");
    damaged.close();

    harness_ = std::make_unique<WindowHarness>(dataFolder());
    QVERIFY(harness_->start());
    QTRY_VERIFY_WITH_TIMEOUT(harness_->isShown(u"noticeBar"_s), kPatienceMs);
    QVERIFY2(label(u"noticeBarText"_s).startsWith(u"The saved cache of this chat could not"_s),
             qPrintable(label(u"noticeBarText"_s)));
    QVERIFY(label(u"noticeBarHint"_s).contains(u"checksum"_s));
    QVERIFY(!harness_->isShown(u"errorBar"_s));
    harness_->click(u"noticeBarDismiss"_s);
    QVERIFY(!harness_->isShown(u"noticeBar"_s));
    QCOMPARE(harness_->answerTo(questions_[1].question), questions_[1].answer);
  }

  void aCancelledSwitchKeepsTheOldPresetAndIsTold() {
    QVERIFY(harness_->useSampleDocument());
    QCOMPARE(harness_->answerTo(questions_[0].question), questions_[0].answer);
    QSignalSpy switched(&harness_->controller(), &app::ChatController::presetSwitched);
    harness_->controller().switchPreset(u"memory-limit"_s);
    QVERIFY(harness_->controller().activity() == app::Activity::kSwitchingPreset);
    harness_->controller().cancelSwitch();
    QTRY_COMPARE_WITH_TIMEOUT(switched.size(), 1, kPatienceMs);
    QVERIFY(harness_->waitUntilIdle());
    // It may have been done already: then there was nothing to cancel.
    if (harness_->controller().currentPreset() == u"quality"_s) {
      QVERIFY(harness_->isShown(u"noticeBar"_s));
      QVERIFY(label(u"noticeBarText"_s).contains(u"not switched"_s));
    }
    QVERIFY(!harness_->isShown(u"errorBar"_s));
    QCOMPARE(harness_->answerTo(questions_[1].question), questions_[1].answer);
  }
};

QTEST_MAIN(MainWindowQualityTest)
#include "main_window_quality_test.moc"
