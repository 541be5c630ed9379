// Documents in the real window: opened, forecast before anything is computed, read, cancelled.
#include <QComboBox>
#include <QFile>
#include <QLabel>
#include <QMimeData>
#include <QPainter>
#include <QPdfWriter>
#include <QPlainTextEdit>
#include <QProgressBar>
#include <QPushButton>
#include <QSignalSpy>
#include <QTableWidget>

#include "ui/chat/composer.h"
#include "ui/opening_job.h"
#include "window_harness.h"

using namespace Qt::StringLiterals;
using namespace longhand;
using namespace longhand::tests;

namespace {

void writeFile(const QString& path, const QByteArray& bytes) {
  QFile file(path);
  if (!file.open(QIODevice::WriteOnly) || file.write(bytes) != bytes.size()) {
    throw std::runtime_error("cannot write " + path.toStdString());
  }
}

void writePdf(const QString& path, const QStringList& pages) {
  QPdfWriter writer(path);
  QPainter painter(&writer);
  for (int page = 0; page < pages.size(); ++page) {
    if (page > 0) writer.newPage();
    painter.drawText(QRect(0, 0, writer.width(), writer.height()),
                     Qt::AlignLeft | Qt::AlignTop | Qt::TextWordWrap, pages[page]);
  }
}

}  // namespace

class MainWindowDocumentTest final : public WindowTest {
  Q_OBJECT

 private:
  QString label(const QString& name) { return harness_->find<QLabel>(name).text(); }
  QTableWidget& table() { return harness_->find<QTableWidget>(u"forecastTable"_s); }

 private slots:
  void aForecastForEveryPresetIsShownBeforeAnythingIsComputed() {
    QSignalSpy progress(&harness_->controller(), &app::ChatController::prefillProgress);
    harness_->window().openDocument(sampleDocumentPath());
    QVERIFY(harness_->waitForCandidate());

    QCOMPARE(label(u"documentName"_s), u"sample-document.txt"_s);
    QVERIFY2(label(u"documentFacts"_s).contains(u"UTF-8"_s) ||
                 label(u"documentFacts"_s).contains(u"ASCII"_s),
             qPrintable(label(u"documentFacts"_s)));
    QVERIFY(label(u"documentFacts"_s).contains(u"characters"_s));
    QVERIFY2(label(u"documentFacts"_s).contains(u"1,2"_s), qPrintable(label(u"documentFacts"_s)));
    QVERIFY(harness_->isShown(u"forecastTable"_s));
    QCOMPARE(table().rowCount(), static_cast<int>(harness_->controller().presets().size()));
    for (int row = 0; row < table().rowCount(); ++row) {
      for (int column = 0; column < table().columnCount(); ++column) {
        QVERIFY(!table().item(row, column)->text().isEmpty());
      }
      QCOMPARE(table().item(row, 3)->text(), u"Yes"_s);
    }
    QVERIFY(table().item(0, 1)->text() > table().item(3, 1)->text());  // Exact needs more
    QVERIFY(harness_->find<QPlainTextEdit>(u"documentText"_s)
                .toPlainText()
                .startsWith(u"# Handbook of Karnevik House"_s));
    QCOMPARE(progress.count(), 0);
    QVERIFY(harness_->controller().documents().empty());
    QCOMPARE(harness_->controller().memory().cachedTokens, 0);
  }

  void aCandidateCanBePutAway() {
    harness_->window().openDocument(sampleDocumentPath());
    QVERIFY(harness_->waitForCandidate());
    harness_->click(u"documentDiscardButton"_s);
    QVERIFY(!harness_->controller().pendingDocument().has_value());
    QVERIFY(harness_->isShown(u"documentOpenButton"_s));
    QVERIFY(harness_->controller().documents().empty());
  }

  void readNowReadsWithProgressAndTheFirstAnswerStartsAtOnce() {
    harness_->window().openDocument(sampleDocumentPath());
    QVERIFY(harness_->waitForCandidate());
    QSignalSpy read(&harness_->controller(), &app::ChatController::prefillFinished);
    harness_->click(u"documentReadButton"_s);
    QTRY_VERIFY_WITH_TIMEOUT(harness_->isShown(u"documentProgress"_s) || read.count() == 1,
                             kPatienceMs);
    QVERIFY(read.count() == 1 || read.wait(kPatienceMs));
    QCOMPARE(read[0][0].toBool(), false);
    QVERIFY(!harness_->isShown(u"documentProgress"_s));
    QTRY_VERIFY_WITH_TIMEOUT(harness_->controller().memory().cachedTokens > 1200, kPatienceMs);

    const SampleQuestion sample = sampleQuestions()[0];
    QCOMPARE(harness_->answerTo(sample.question), sample.answer);
    QVERIFY(harness_->controller().messages().back().statistics.reusedTokens > 1200);
  }

  void readingCanBeCancelledAndTheChatStaysUsable() {
    // Long enough for a cancel to come in time on any machine; the context is set to hold it.
    QFile sample(sampleDocumentPath());
    QVERIFY(sample.open(QIODevice::ReadOnly));
    writeFile(path(u"long.txt"_s), sample.readAll().repeated(8));
    harness_->controller().applyCacheConfig(harness_->controller().currentCacheConfig(), 16384);
    QVERIFY(harness_->waitUntilIdle());
    harness_->window().openDocument(path(u"long.txt"_s));
    QVERIFY(harness_->waitForCandidate());
    QVERIFY2(label(u"documentAdvice"_s).contains(u"trained for 2,048"_s),
             qPrintable(label(u"documentAdvice"_s)));
    QSignalSpy progress(&harness_->controller(), &app::ChatController::prefillProgress);
    QSignalSpy read(&harness_->controller(), &app::ChatController::prefillFinished);
    harness_->click(u"documentReadButton"_s);
    QVERIFY(progress.count() > 0 || progress.wait(kPatienceMs));
    QVERIFY(harness_->isShown(u"documentProgress"_s));
    QVERIFY2(label(u"documentProgressDetail"_s).contains(u"tokens"_s),
             qPrintable(label(u"documentProgressDetail"_s)));
    harness_->click(u"documentProgressCancel"_s);
    QVERIFY(read.count() == 1 || read.wait(kPatienceMs));
    QCOMPARE(read[0][0].toBool(), true);
    QVERIFY(harness_->waitUntilIdle());
    QVERIFY(!harness_->isShown(u"documentProgress"_s));
    QVERIFY(harness_->find<QPushButton>(u"documentReadButton"_s).isEnabled());
    QCOMPARE(harness_->controller().documents().size(), std::size_t{1});
  }

  void markdownIsOpenedAsText() {
    writeFile(path(u"notes.md"_s), "# Notes\n\nThe code of the north gate is 4821.\n");
    harness_->window().openDocument(path(u"notes.md"_s));
    QVERIFY(harness_->waitForCandidate());
    harness_->click(u"documentUseButton"_s);
    QCOMPARE(harness_->answerTo(u"What is the code of the north gate?"_s),
             u"The code of the north gate is 4821."_s);
  }

  void aPdfIsReadAndItsEmptyPagesAreNamed() {
    writePdf(path(u"rules.pdf"_s), {u"The code of the north gate is 4821."_s, QString()});
    harness_->window().openDocument(path(u"rules.pdf"_s));
    QVERIFY(harness_->waitForCandidate());
    QVERIFY2(harness_->isShown(u"documentLosses"_s), "an empty page was passed over");
    QVERIFY2(label(u"documentLosses"_s).contains(u"page"_s, Qt::CaseInsensitive),
             qPrintable(label(u"documentLosses"_s)));
    harness_->click(u"documentUseButton"_s);
    QCOMPARE(harness_->answerTo(u"What is the code of the north gate?"_s),
             u"The code of the north gate is 4821."_s);
  }

  void aDocumentLongerThanTheContextIsNeverCutButOfferedALongerOne() {
    writeFile(path(u"long.txt"_s), QByteArray("The lamp is in the hall. ").repeated(400));
    harness_->window().openDocument(path(u"long.txt"_s));
    QTRY_VERIFY_WITH_TIMEOUT(harness_->controller().pendingDocument().has_value(), kPatienceMs);
    QTRY_VERIFY(harness_->isShown(u"documentRaiseContextButton"_s));
    QVERIFY(!harness_->find<QPushButton>(u"documentReadButton"_s).isEnabled());
    QVERIFY2(label(u"documentAdvice"_s).contains(u"Nothing is cut"_s),
             qPrintable(label(u"documentAdvice"_s)));
    QVERIFY2(table().item(0, 3)->text().startsWith(u"Context "_s),
             qPrintable(table().item(0, 3)->text()));

    harness_->click(u"documentRaiseContextButton"_s);
    QTRY_VERIFY_WITH_TIMEOUT(harness_->find<QPushButton>(u"documentReadButton"_s).isEnabled(),
                             kPatienceMs);
    QCOMPARE(table().item(0, 3)->text(), u"Yes"_s);
  }

  void aQuestionAskedBesideAnOpenDocumentIsAboutThatDocument() {
    harness_->window().openDocument(sampleDocumentPath());
    QVERIFY(harness_->waitForCandidate());
    const SampleQuestion sample = sampleQuestions()[0];
    QCOMPARE(harness_->answerTo(sample.question), sample.answer);
    QCOMPARE(harness_->controller().documents().size(), std::size_t{1});
    QVERIFY(!harness_->controller().pendingDocument().has_value());
  }

  void aQuestionAskedWhileADocumentIsBeingOpenedWaitsForIt() {
    harness_->window().openDocument(sampleDocumentPath());
    const SampleQuestion sample = sampleQuestions()[0];
    QCOMPARE(harness_->answerTo(sample.question), sample.answer);
    QCOMPARE(harness_->controller().documents().size(), std::size_t{1});
  }

  void aQuestionAboutADocumentThatDoesNotFitIsRefusedWithNumbersAndKept() {
    writeFile(path(u"long.txt"_s), QByteArray("The lamp is in the hall. ").repeated(400));
    harness_->window().openDocument(path(u"long.txt"_s));
    QVERIFY(harness_->waitForCandidate());
    harness_->ask(u"Where is the lamp?"_s);
    QVERIFY2(label(u"composerHint"_s).contains(u"2,048"_s) &&
                 label(u"composerHint"_s).contains(u"long.txt"_s),
             qPrintable(label(u"composerHint"_s)));
    QCOMPARE(harness_->find<ui::Composer>(u"composer"_s).text(), u"Where is the lamp?"_s);
    QCOMPARE(harness_->controller().activity(), app::Activity::kIdle);
    QVERIFY(harness_->controller().messages().empty());
    QVERIFY(harness_->controller().pendingDocument().has_value());
  }

  void sampleQuestionsAreNotOfferedForAnotherDocument() {
    QVERIFY(harness_->isShown(u"sampleQuestion0"_s));
    writeFile(path(u"notes.md"_s), "The code of the north gate is 4821.\n");
    harness_->window().openDocument(path(u"notes.md"_s));
    QVERIFY(harness_->waitForCandidate());
    QVERIFY(!harness_->isShown(u"sampleQuestion0"_s));
    QVERIFY2(label(u"welcomeText"_s).contains(u"notes.md"_s), qPrintable(label(u"welcomeText"_s)));
    harness_->click(u"documentDiscardButton"_s);
    QVERIFY(harness_->isShown(u"sampleQuestion0"_s));
  }

  void aDocumentCanBeRemovedFromTheChatByAButton() {
    QVERIFY(harness_->useSampleDocument());
    harness_->click(u"documentRemoveButton"_s);
    QVERIFY(harness_->controller().documents().empty());
    QVERIFY(harness_->isShown(u"documentOpenButton"_s));
  }

  void aQuestionOfTheCommandLineStaysWhenItsDocumentDoesNotFit() {
    writeFile(path(u"long.txt"_s), QByteArray("The lamp is in the hall. ").repeated(400));
    ui::OpeningJob job(harness_->controller(), harness_->window(),
                       {path(u"long.txt"_s), u"Where is the lamp?"_s}, nullptr);
    QSignalSpy failed(&job, &ui::OpeningJob::failed);
    job.start();
    emit harness_->controller().modelLoaded(*harness_->controller().model());
    QVERIFY(failed.count() == 1 || failed.wait(kPatienceMs));
    QCOMPARE(harness_->find<ui::Composer>(u"composer"_s).text(), u"Where is the lamp?"_s);
  }

  void aQuestionOfTheCommandLineIsAskedAboutItsDocument() {
    const SampleQuestion sample = sampleQuestions()[0];
    ui::OpeningJob job(harness_->controller(), harness_->window(),
                       {sampleDocumentPath(), sample.question}, nullptr);
    QSignalSpy finished(&job, &ui::OpeningJob::finished);
    job.start();
    emit harness_->controller().modelLoaded(*harness_->controller().model());
    QVERIFY(finished.count() == 1 || finished.wait(kPatienceMs));
    QCOMPARE(harness_->lastAnswer(), sample.answer);
    QVERIFY(harness_->find<ui::Composer>(u"composer"_s).text().isEmpty());
  }

  void whatCannotBeOpenedIsSaidInOneSentence_data() {
    QTest::addColumn<QString>("name");
    QTest::addColumn<QByteArray>("bytes");
    QTest::newRow("missing") << u"missing.txt"_s << QByteArray();
    QTest::newRow("damaged PDF") << u"broken.pdf"_s << QByteArray("%PDF-1.7\nnothing");
    QTest::newRow("empty") << u"empty.txt"_s << QByteArray("");
  }

  void whatCannotBeOpenedIsSaidInOneSentence() {
    QFETCH(const QString, name);
    QFETCH(const QByteArray, bytes);
    if (!name.startsWith(u"missing"_s)) writeFile(path(name), bytes);
    harness_->window().openDocument(path(name));
    QTRY_VERIFY_WITH_TIMEOUT(harness_->isShown(u"errorBar"_s), kPatienceMs);
    QVERIFY2(label(u"errorBarText"_s).contains(name), qPrintable(label(u"errorBarText"_s)));
    QVERIFY(!harness_->isShown(u"documentProgress"_s));
    QVERIFY(harness_->isShown(u"documentOpenButton"_s));
  }

  void aFileDroppedOnTheChatIsOpened() {
    QMimeData data;
    data.setUrls({QUrl::fromLocalFile(sampleDocumentPath())});
    auto& pane = harness_->find<QWidget>(u"chatPane"_s);
    QDragEnterEvent enter(QPoint(40, 40), Qt::CopyAction, &data, Qt::LeftButton, Qt::NoModifier);
    QCoreApplication::sendEvent(&pane, &enter);
    QVERIFY(enter.isAccepted());
    QDropEvent drop(QPointF(40, 40), Qt::CopyAction, &data, Qt::LeftButton, Qt::NoModifier);
    QCoreApplication::sendEvent(&pane, &drop);
    QVERIFY(drop.isAccepted());
    QVERIFY(harness_->waitForCandidate());
  }
};

// Qt 6.4's PDF engine keeps what it allocates once, which LeakSanitizer reports.
extern "C" [[gnu::visibility("default")]] const char* __lsan_default_suppressions();
extern "C" [[gnu::visibility("default")]] const char* __lsan_default_suppressions() {
  return "leak:libQt6Pdf.so";
}

QTEST_MAIN(MainWindowDocumentTest)
#include "main_window_document_test.moc"
