// The main job in the real window: ask, stream, stop, branches, empty chat.
#include <QAbstractButton>
#include <QLabel>
#include <QSignalSpy>

#include "ui/chat/composer.h"
#include "ui/memory/memory_strip.h"
#include "ui/transcript/transcript_view.h"
#include "window_harness.h"

using namespace Qt::StringLiterals;
using namespace longhand;
using namespace longhand::tests;

class MainWindowChatTest final : public WindowTest {
  Q_OBJECT

 private:
  ui::TranscriptView& transcript() { return harness_->find<ui::TranscriptView>(u"transcript"_s); }
  const ui::TranscriptMessage& lastShown() {
    return transcript().message(transcript().messageCount() - 1);
  }

 private slots:
  void theFirstStartOffersTheSampleDocumentAndItsQuestions() {
    QVERIFY(harness_->isShown(u"welcomePanel"_s));
    QVERIFY(harness_->isShown(u"sampleDocumentButton"_s));
    QVERIFY(harness_->isShown(u"demoBadge"_s));
    QVERIFY(harness_->isShown(u"modelHelpButton"_s));
    const std::vector<SampleQuestion> questions = sampleQuestions();
    for (std::size_t i = 0; i < questions.size(); ++i) {
      const auto& button = harness_->find<QAbstractButton>(u"sampleQuestion%1"_s.arg(i));
      QCOMPARE(button.accessibleName(), questions[i].question);
      QVERIFY(button.isEnabled());
    }
    QCOMPARE(harness_->find<QLabel>(u"modelName"_s).text(), u"longhand-demo"_s);
  }

  void aSampleQuestionIsAnsweredWithOneClick() {
    harness_->click(u"sampleQuestion0"_s);
    QTRY_COMPARE_WITH_TIMEOUT(harness_->lastAnswer(), sampleQuestions()[0].answer, kPatienceMs);
    QVERIFY(harness_->waitUntilIdle());
    QCOMPARE(harness_->controller().documents().size(), std::size_t{1});
    QCOMPARE(lastShown().text, sampleQuestions()[0].answer);
  }

  void aTypedQuestionStreamsTheExpectedSentence() {
    QVERIFY(harness_->useSampleDocument());
    const SampleQuestion sample = sampleQuestions()[1];
    QSignalSpy changed(&harness_->controller(), &app::ChatController::messageChanged);
    QSignalSpy progress(&harness_->controller(), &app::ChatController::prefillProgress);
    bool saysReadingBelowText = false;
    const QObject context;
    connect(&harness_->controller(), &app::ChatController::messageChanged, &context, [&] {
      const bool saysReading = lastShown().footer.contains(u"Reading"_s);
      if (!lastShown().text.isEmpty() && saysReading) saysReadingBelowText = true;
    });
    QCOMPARE(harness_->answerTo(sample.question), sample.answer);
    QVERIFY(!saysReadingBelowText);

    QVERIFY2(changed.count() >= 2, "the answer came in one piece");
    QVERIFY(progress.count() >= 1);
    QString before;
    for (const QList<QVariant>& arguments : changed) {
      if (arguments[2].value<app::MessageState>() != app::MessageState::kStreaming) continue;
      QVERIFY(arguments[1].toString().startsWith(before));
      before = arguments[1].toString();
    }
    QCOMPARE(lastShown().text, sample.answer);
    QVERIFY(lastShown().state == ui::TranscriptState::kComplete);
    QVERIFY(lastShown().canRetry);
    QVERIFY2(lastShown().footer.contains(u"tokens/s"_s), qPrintable(lastShown().footer));
    QVERIFY(harness_->find<QLabel>(u"statusSpeed"_s).text().contains(u"first token after"_s));
    QVERIFY(harness_->find<ui::Composer>(u"composer"_s).text().isEmpty());
  }

  void followUpQuestionsReadOnlyWhatIsNew() {
    QVERIFY(harness_->useSampleDocument());
    const std::vector<SampleQuestion> questions = sampleQuestions();
    QCOMPARE(harness_->answerTo(questions[0].question), questions[0].answer);
    QCOMPARE(harness_->answerTo(questions[2].question), questions[2].answer);
    const app::MessageStatistics statistics = harness_->controller().messages().back().statistics;
    QVERIFY2(statistics.reusedTokens > 1200, "the document was read again");
  }

  void shiftEnterBreaksTheLine() {
    auto& composer = harness_->find<ui::Composer>(u"composer"_s);
    composer.setFocus();
    QTest::keyClicks(&harness_->composerField(), u"one"_s);
    QTest::keyClick(&harness_->composerField(), Qt::Key_Return, Qt::ShiftModifier);
    QTest::keyClicks(&harness_->composerField(), u"two"_s);
    QCOMPARE(composer.text(), u"one\ntwo"_s);
    QVERIFY(harness_->controller().messages().empty());
  }

  void escStopsAndKeepsWhatHasStreamed() {
    QVERIFY(harness_->useSampleDocument());
    QSignalSpy started(&harness_->controller(), &app::ChatController::generationStarted);
    QSignalSpy finished(&harness_->controller(), &app::ChatController::generationFinished);
    harness_->ask(sampleQuestions()[0].question);
    QVERIFY(started.count() == 1 || started.wait(kPatienceMs));
    QTest::keyClick(&harness_->composerField(), Qt::Key_Escape);
    QVERIFY(finished.count() == 1 || finished.wait(kPatienceMs));
    QVERIFY(harness_->waitUntilIdle());

    QCOMPARE(finished[0][2].toString(), u"cancelled"_s);
    QCOMPARE(harness_->controller().messages().size(), std::size_t{2});
    QVERIFY(lastShown().state == ui::TranscriptState::kStopped);
    QVERIFY2(lastShown().footer.contains(u"stopped by you"_s), qPrintable(lastShown().footer));
    // The chat goes on.
    const SampleQuestion next = sampleQuestions()[3];
    QCOMPARE(harness_->answerTo(next.question), next.answer);
  }

  void escStopsFromAnywhereInTheWindow() {
    QVERIFY(harness_->useSampleDocument());
    QSignalSpy started(&harness_->controller(), &app::ChatController::generationStarted);
    QSignalSpy finished(&harness_->controller(), &app::ChatController::generationFinished);
    harness_->ask(sampleQuestions()[0].question);
    QVERIFY(started.count() == 1 || started.wait(kPatienceMs));
    auto& list = harness_->find<QWidget>(u"conversationList"_s);
    list.setFocus();
    QTest::keyClick(&list, Qt::Key_Escape);
    QVERIFY(finished.count() == 1 || finished.wait(kPatienceMs));
    QCOMPARE(finished[0][2].toString(), u"cancelled"_s);
  }

  void anotherAnswerIsABranchThatCanBeLeft() {
    QVERIFY(harness_->useSampleDocument());
    const SampleQuestion sample = sampleQuestions()[0];
    QCOMPARE(harness_->answerTo(sample.question), sample.answer);
    const qint64 firstAnswer = harness_->controller().messages().back().id;
    QSignalSpy finished(&harness_->controller(), &app::ChatController::generationFinished);
    emit transcript().regenerateRequested(firstAnswer);
    QVERIFY(finished.wait(kPatienceMs));
    QVERIFY(harness_->waitUntilIdle());
    QCOMPARE(harness_->lastAnswer(), sample.answer);  // greedy: the same again
    QCOMPARE(lastShown().branchCount, 2);
    QCOMPARE(lastShown().branchIndex, 1);

    emit transcript().branchRequested(lastShown().id, -1);
    QTRY_COMPARE(lastShown().id, firstAnswer);
  }

  void anEditedQuestionIsAskedAgain() {
    QVERIFY(harness_->useSampleDocument());
    const std::vector<SampleQuestion> questions = sampleQuestions();
    QCOMPARE(harness_->answerTo(questions[0].question), questions[0].answer);
    auto& composer = harness_->find<ui::Composer>(u"composer"_s);
    emit transcript().editRequested(harness_->controller().messages().front().id);
    QVERIFY(composer.isEditing());
    QCOMPARE(composer.text(), questions[0].question);
    composer.setText(QString());
    QCOMPARE(harness_->answerTo(questions[1].question), questions[1].answer);
    QVERIFY(!composer.isEditing());
    QVERIFY(composer.text().isEmpty());
    QCOMPARE(harness_->controller().messages().size(), std::size_t{2});
  }

  void aDraftOutlivesAnEditThatIsGivenUpOrSent() {
    QVERIFY(!harness_->answerTo(u"Hello!"_s).isEmpty());
    auto& composer = harness_->find<ui::Composer>(u"composer"_s);
    composer.setText(u"half a thought"_s);
    emit transcript().editRequested(harness_->controller().messages().front().id);
    QCOMPARE(composer.text(), u"Hello!"_s);
    QTest::keyClick(&harness_->composerField(), Qt::Key_Escape);
    QVERIFY(!composer.isEditing());
    QCOMPARE(composer.text(), u"half a thought"_s);

    emit transcript().editRequested(harness_->controller().messages().front().id);
    composer.setText(QString());
    QVERIFY(!harness_->answerTo(u"Good day!"_s).isEmpty());
    QVERIFY(!composer.isEditing());
    QCOMPARE(composer.text(), u"half a thought"_s);
  }

  void aQuestionLongerThanTheContextIsRefusedAndKept() {
    auto& composer = harness_->find<ui::Composer>(u"composer"_s);
    const QString question = u"word "_s.repeated(4000).trimmed();
    composer.setText(question);
    composer.setFocus();
    QTest::keyClick(&harness_->composerField(), Qt::Key_Return);
    QTRY_VERIFY_WITH_TIMEOUT(harness_->isShown(u"errorBar"_s), kPatienceMs);
    QVERIFY(harness_->waitUntilIdle());
    QCOMPARE(composer.text(), question);
    QVERIFY(harness_->controller().messages().empty());
    QVERIFY(!harness_->find<QLabel>(u"errorBarHint"_s).text().isEmpty());
    harness_->click(u"errorBarDismiss"_s);
    QVERIFY(!harness_->isShown(u"errorBar"_s));
  }

  void theMemoryStripShowsTheKvCache() {
    const auto& strip = harness_->find<ui::MemoryStrip>(u"memoryStrip"_s);
    QVERIFY(harness_->isShown(u"memoryStrip"_s));
    QTRY_VERIFY_WITH_TIMEOUT(strip.data().use[engine::MemoryCategory::kWeights] > 4000000,
                             kPatienceMs);
    QVERIFY(harness_->useSampleDocument());
    const SampleQuestion sample = sampleQuestions()[0];
    QCOMPARE(harness_->answerTo(sample.question), sample.answer);
    QTRY_VERIFY_WITH_TIMEOUT(strip.data().use[engine::MemoryCategory::kKvCodes] > 0, kPatienceMs);
    QVERIFY(strip.data().use[engine::MemoryCategory::kKvScales] > 0);
    QVERIFY(strip.data().use[engine::MemoryCategory::kKvExact] > 0);
    QVERIFY(strip.data().totalBytes > strip.data().use.total());
    QVERIFY(strip.textEquivalent().contains(u"KV codes"_s));
  }
};

QTEST_MAIN(MainWindowChatTest)
#include "main_window_chat_test.moc"
