#include "app/chat_controller.h"

#include <memory>

#include <QDir>
#include <QElapsedTimer>
#include <QFile>
#include <QSignalSpy>
#include <QTemporaryDir>
#include <QtTest>

#include "engine/presets.h"
#include "tests/app/plain_model.h"

namespace longhand::app {

namespace {

constexpr int kTimeoutMs = 60000;  // sanitizers are slow

const QString kQuestion1 = QStringLiteral("Who keeps the green ledger?");
const QString kAnswer1 = QStringLiteral("The keeper of the green ledger is Henry Moldak.");
const QString kQuestion2 = QStringLiteral("When was the old mill built?");
const QString kAnswer2 = QStringLiteral("The old mill was built in 1712.");

/// A controller with its spies. Destroyed like a window that is closed.
struct Session {
  explicit Session(const ControllerPaths& paths)
      : controller(paths),
        loaded(&controller, &ChatController::modelLoaded),
        loadFailed(&controller, &ChatController::modelFailed),
        added(&controller, &ChatController::messageAdded),
        changed(&controller, &ChatController::messageChanged),
        finished(&controller, &ChatController::generationFinished),
        refused(&controller, &ChatController::sendRefused),
        errors(&controller, &ChatController::errorOccurred),
        previews(&controller, &ChatController::documentPreviewReady),
        opened(&controller, &ChatController::conversationOpened),
        switched(&controller, &ChatController::presetSwitched),
        readProgress(&controller, &ChatController::prefillProgress),
        readFinished(&controller, &ChatController::prefillFinished) {}

  ChatController controller;
  QSignalSpy loaded;
  QSignalSpy loadFailed;
  QSignalSpy added;
  QSignalSpy changed;
  QSignalSpy finished;
  QSignalSpy refused;
  QSignalSpy errors;
  QSignalSpy previews;
  QSignalSpy opened;
  QSignalSpy switched;
  QSignalSpy readProgress;
  QSignalSpy readFinished;

  /// All of these wait; false when nothing came.
  bool start() {
    controller.start();
    return loaded.wait(kTimeoutMs);
  }
  bool ask(const QString& text) {
    finished.clear();
    controller.send(text);
    return finished.wait(kTimeoutMs);
  }
  bool attach(const QString& path) {
    controller.openDocument(path);
    if (!previews.wait(kTimeoutMs)) return false;
    controller.attachDocument();
    return true;
  }
  Message lastMessage() const { return controller.messages().back(); }
  QString lastError() const { return errors.isEmpty() ? QString() : errors.back()[0].toString(); }
};

}  // namespace

class ChatControllerTest : public QObject {
  Q_OBJECT

 private:
  std::unique_ptr<QTemporaryDir> folder_;
  QString document_ = tests::demoFolder() + QStringLiteral("/sample-document.txt");

  ControllerPaths paths() const {
    return {folder_->filePath(QStringLiteral("data")), folder_->path(), tests::demoFolder()};
  }

  std::unique_ptr<Session> startedSession() const {
    auto session = std::make_unique<Session>(paths());
    if (!session->start()) qWarning("the model did not load");
    return session;
  }

  /// With the same model as a plain one, sampled so wildly that it does not come to an end.
  std::unique_ptr<Session> endlessSession() const {
    auto session = startedSession();
    session->loaded.clear();
    session->controller.loadModel(tests::makePlainModel(folder_->path()),
                                  engine::WeightFormat::kAuto);
    if (!session->loaded.wait(kTimeoutMs)) qWarning("the plain model did not load");
    engine::SamplerConfig wild;
    wild.temperature = 5.0;
    wild.topK = 0;
    wild.topP = 1.0;
    session->controller.applySampling(wild, 0);
    engine::KvCacheConfig cache = engine::presetById("quality").cache;
    session->controller.applyCacheConfig(cache, 100000);
    return session;
  }

  /// Sends and waits for the first words of an endless answer.
  static bool sendAndSeeWords(Session& session) {
    session.changed.clear();
    session.controller.send(QStringLiteral("Tell me everything."));
    return session.changed.wait(kTimeoutMs);
  }

 private slots:
  void init() { folder_ = std::make_unique<QTemporaryDir>(); }

  void aFirstStartLoadsTheDemonstrationModel() {
    Session session(paths());
    QVERIFY(!session.controller.model().has_value());
    QSignalSpy activity(&session.controller, &ChatController::activityChanged);
    QVERIFY(session.start());
    QVERIFY(session.controller.model()->isDemo);
    QCOMPARE(session.controller.currentConversation(), 0);
    QVERIFY(session.controller.activity() == Activity::kIdle);
    QCOMPARE(activity.size(), 2);  // loading, idle
    QCOMPARE(session.controller.demo()->questions.size(), 8);
    QCOMPARE(session.controller.availableModels().size(), std::size_t{1});
    QCOMPARE(session.controller.presets().size(), engine::builtInPresets().size() + 1);
    QVERIFY(session.errors.isEmpty());
  }

  void aDocumentIsShownWithItsCostBeforeItIsRead() {
    const auto session = startedSession();
    session->controller.openDocument(document_);
    QVERIFY(session->previews.wait(kTimeoutMs));
    const auto preview = session->previews[0][0].value<DocumentPreview>();
    QCOMPARE(preview.content.fileName, QStringLiteral("sample-document.txt"));
    QVERIFY2(preview.tokenCount > 1150 && preview.tokenCount < 1250,
             qPrintable(QString::number(preview.tokenCount)));
    QVERIFY(preview.fitsContext);
    QCOMPARE(preview.contextLength, std::int64_t{2048});
    QCOMPARE(preview.forecasts.size(), session->controller.presets().size());
    for (const PresetForecast& forecast : preview.forecasts) {
      QVERIFY(forecast.use.total() > 4'000'000U);  // the weights alone
      QVERIFY(forecast.largestContext >= preview.tokenCount || !forecast.fits);
    }
    QVERIFY(preview.forecasts.front().use.total() > preview.forecasts[4].use.total());
    QCOMPARE(session->controller.memory().cachedTokens, std::int64_t{0});
    QCOMPARE(session->controller.conversations().size(), std::size_t{0});

    session->controller.discardDocument();
    QVERIFY(!session->controller.pendingDocument().has_value());
    session->controller.attachDocument();
    QVERIFY(!session->errors.isEmpty());
    QVERIFY(session->controller.documents().empty());
  }

  void questionsAboutADocumentAreAnsweredAndTheSecondStartsAtOnce() {
    const auto session = startedSession();
    QVERIFY(session->attach(document_));
    QVERIFY2(session->ask(kQuestion1), qPrintable(session->lastError()));
    QCOMPARE(session->added.size(), 2);
    const Message first = session->lastMessage();
    QCOMPARE(first.text, kAnswer1);
    QVERIFY(first.state == MessageState::kComplete);
    QCOMPARE(first.stopReason, QStringLiteral("end_of_text"));
    QVERIFY(first.statistics.promptTokens > 1200);
    QCOMPARE(first.statistics.answerTokens, static_cast<std::int64_t>(first.tokens.size()));
    QVERIFY(first.statistics.firstTokenSeconds > 0.0);
    QVERIFY(first.statistics.tokensPerSecond > 0.0);
    QCOMPARE(session->controller.conversations().front().title, kQuestion1);

    QVERIFY(session->ask(kQuestion2));
    const Message second = session->lastMessage();
    QCOMPARE(second.text, kAnswer2);
    // Document, first question and first answer are all found in the cache.
    QVERIFY2(second.statistics.reusedTokens >=
                 first.statistics.promptTokens + first.statistics.answerTokens - 1,
             qPrintable(QStringLiteral("%1 of %2")
                            .arg(second.statistics.reusedTokens)
                            .arg(second.statistics.promptTokens)));
    QCOMPARE(session->controller.messages().size(), std::size_t{4});
    QCOMPARE(session->controller.contextState().usedTokens,
             second.statistics.promptTokens + second.statistics.answerTokens);
    QVERIFY(session->errors.isEmpty());
  }

  void readingAheadMakesTheFirstQuestionStartAtOnce() {
    const auto session = startedSession();
    QVERIFY(session->attach(document_));
    const std::int64_t documentTokens = session->controller.documents().front().tokenCount;
    session->controller.readDocument();
    QVERIFY(session->controller.activity() == Activity::kReading);
    QVERIFY(session->readFinished.wait(kTimeoutMs));
    QCOMPARE(session->readFinished[0][0].toBool(), false);
    QVERIFY(!session->readProgress.isEmpty());
    QVERIFY(session->controller.activity() == Activity::kIdle);
    QVERIFY(session->controller.messages().empty());
    QVERIFY(session->ask(kQuestion1));
    QCOMPARE(session->lastMessage().text, kAnswer1);
    // Only where the document meets the question may tokens differ.
    QVERIFY2(session->lastMessage().statistics.reusedTokens >= documentTokens - 8,
             qPrintable(QString::number(session->lastMessage().statistics.reusedTokens)));
  }

  void aReadingCanBeCancelled() {
    const auto session = startedSession();
    QVERIFY(session->attach(document_));
    session->controller.readDocument();
    session->controller.cancelReading();
    QTRY_COMPARE_WITH_TIMEOUT(session->readFinished.size(), 1, kTimeoutMs);
    QVERIFY(session->readFinished[0][0].toBool());
    QVERIFY(session->controller.activity() == Activity::kIdle);
    QVERIFY(session->ask(kQuestion1));
    QCOMPARE(session->lastMessage().text, kAnswer1);
    QVERIFY(session->errors.isEmpty());
  }

  void theQuestionIsStoredBeforeItsAnswerBegins() {
    auto session = endlessSession();
    QVERIFY(sendAndSeeWords(*session));
    const std::vector<Message> messages = session->controller.messages();
    QCOMPARE(messages.size(), std::size_t{2});
    QVERIFY(messages[1].state == MessageState::kStreaming);
    QVERIFY(!messages[1].text.isEmpty());

    // The files as a power cut would leave them, after a second of streaming.
    QTest::qWait(1100);
    QTemporaryDir copy;
    const QString name = QStringLiteral("/longhand.sqlite");
    for (const QString& suffix : {QString(), QStringLiteral("-wal")}) {
      QVERIFY(QFile::copy(paths().dataFolder + name + suffix, copy.path() + name + suffix));
    }
    ControllerPaths copied = paths();
    copied.dataFolder = copy.path();
    Session restarted(copied);
    restarted.controller.selectConversation(restarted.controller.conversations().front().id);
    const std::vector<Message> recovered = restarted.controller.messages();
    QCOMPARE(recovered.size(), std::size_t{2});
    QCOMPARE(recovered[0].text, QStringLiteral("Tell me everything."));
    QVERIFY(recovered[1].state == MessageState::kStopped);
    QVERIFY(!recovered[1].text.isEmpty());
    QVERIFY(session->controller.messages()[1].text.startsWith(recovered[1].text));
  }

  void stopEndsAnAnswerAtOnceAndKeepsItsText() {
    const auto session = endlessSession();
    QVERIFY(sendAndSeeWords(*session));
    QVERIFY(session->controller.activity() == Activity::kAnswering);
    session->controller.send(QStringLiteral("Another one"));  // one at a time
    QCOMPARE(session->refused.size(), 1);
    QCOMPARE(session->refused[0][0].toString(), QStringLiteral("Another one"));
    QElapsedTimer timer;
    timer.start();
    session->controller.stop();
    QVERIFY(session->finished.wait(kTimeoutMs));
    QVERIFY2(timer.elapsed() < 2000, qPrintable(QString::number(timer.elapsed())));
    const Message answer = session->lastMessage();
    QVERIFY(answer.state == MessageState::kStopped);
    QCOMPARE(answer.stopReason, QStringLiteral("cancelled"));
    QVERIFY(!answer.text.isEmpty());
    QVERIFY(session->controller.activity() == Activity::kIdle);
    // The chat goes on, and the stopped answer is part of it.
    QVERIFY(sendAndSeeWords(*session));
    session->controller.stop();
    QVERIFY(session->finished.wait(kTimeoutMs));
    QCOMPARE(session->controller.messages().size(), std::size_t{4});
    QVERIFY(session->lastMessage().statistics.reusedTokens >=
            answer.statistics.promptTokens + answer.statistics.answerTokens - 1);
  }

  void closingTheWindowInMidAnswerKeepsWhatWasSaid() {
    auto session = endlessSession();
    QVERIFY(sendAndSeeWords(*session));
    const QString seen = session->lastMessage().text;
    session.reset();
    session = startedSession();
    QCOMPARE(session->controller.messages().size(), std::size_t{2});
    QVERIFY(session->lastMessage().state == MessageState::kStopped);
    QVERIFY(session->lastMessage().text.startsWith(seen));
  }

  void aRestartFindsEverything() {
    auto session = startedSession();
    QVERIFY(session->attach(document_));
    session->controller.switchPreset(QStringLiteral("balanced"));
    QVERIFY(session->ask(kQuestion1));
    session->controller.saveDraft(QStringLiteral("half a thou"));
    session->controller.setThreads(1);
    session->controller.saveWindowLayout("geometry", "state");
    const Message before = session->lastMessage();
    const std::int64_t id = session->controller.currentConversation();
    session.reset();

    session = startedSession();
    QCOMPARE(session->controller.currentConversation(), id);
    QCOMPARE(session->controller.conversations().front().title, kQuestion1);
    QCOMPARE(session->controller.draft(), QStringLiteral("half a thou"));
    QCOMPARE(session->controller.currentPreset(), QStringLiteral("balanced"));
    QCOMPARE(session->controller.settings().threads, 1);
    QCOMPARE(session->controller.settings().windowGeometry, QByteArray("geometry"));
    QCOMPARE(session->controller.documents().size(), std::size_t{1});
    QCOMPARE(session->lastMessage().text, before.text);
    QVERIFY(session->lastMessage().tokens == before.tokens);
    QVERIFY(session->ask(kQuestion2));
    QCOMPARE(session->lastMessage().text, kAnswer2);
    QCOMPARE(session->lastMessage().statistics.promptTokens >
                 before.statistics.promptTokens + before.statistics.answerTokens,
             true);
  }

  void switchingThePresetDownConvertsTheChatInPlace() {
    const auto session = startedSession();
    QVERIFY(session->attach(document_));
    QVERIFY(session->ask(kQuestion1));
    QTRY_VERIFY_WITH_TIMEOUT(session->controller.memory().cachedTokens > 1200, kTimeoutMs);
    const std::int64_t cached = session->controller.memory().cachedTokens;

    const auto none = session->controller.switchCost(QStringLiteral("quality"));
    QCOMPARE(none->tokensToRead, std::int64_t{0});
    const auto cost = session->controller.switchCost(QStringLiteral("memory-limit"));
    QVERIFY(cost.has_value());
    QCOMPARE(cost->tokensToRead, std::int64_t{0});
    QVERIFY(cost->pagesToConvert > 0);
    QCOMPARE(cost->tokensBelowBits, std::int64_t{0});
    QVERIFY(cost->kvBytesAfter < cost->kvBytesBefore);
    QVERIFY(cost->fits);
    QVERIFY(!session->controller.switchCost(QStringLiteral("no-such")).has_value());

    session->readProgress.clear();
    session->switched.clear();
    session->controller.switchPreset(QStringLiteral("memory-limit"));
    QVERIFY(session->switched.wait(kTimeoutMs));
    QCOMPARE(session->switched.back()[0].toString(), QStringLiteral("memory-limit"));
    QVERIFY(session->readProgress.isEmpty());
    QCOMPARE(session->controller.messages().size(), std::size_t{2});
    QCOMPARE(session->controller.messages()[1].text, kAnswer1);
    QCOMPARE(session->controller.conversations().front().presetId, QStringLiteral("memory-limit"));
    QTRY_VERIFY_WITH_TIMEOUT(session->controller.memory().cachedTokens >= cached - 1, kTimeoutMs);

    QVERIFY(session->ask(kQuestion2));
    QVERIFY(session->lastMessage().statistics.reusedTokens >= cached - 1 - 64);
    QVERIFY(session->readProgress.size() < 10);
    QCOMPARE(session->controller.messages().size(), std::size_t{4});

    session->controller.switchPreset(QStringLiteral("no-such"));
    QCOMPARE(session->controller.currentPreset(), QStringLiteral("memory-limit"));
    QCOMPARE(session->errors.size(), 1);
  }

  void switchingThePresetUpKeepsTheBitsUntilTheChatIsReadAgain() {
    const auto session = startedSession();
    session->controller.switchPreset(QStringLiteral("memory-limit"));
    QVERIFY(session->attach(document_));
    QVERIFY(session->ask(kQuestion1));
    QTRY_VERIFY_WITH_TIMEOUT(session->controller.memory().cachedTokens > 1200, kTimeoutMs);
    const auto kvBytes = [&] {
      return session->controller.switchCost(QStringLiteral("exact"))->kvBytesBefore;
    };
    const std::uint64_t few = kvBytes();

    const auto cost = session->controller.switchCost(QStringLiteral("throughput"));
    QCOMPARE(cost->tokensToRead, std::int64_t{0});
    QVERIFY(cost->tokensBelowBits > 500);
    session->switched.clear();
    session->readFinished.clear();
    session->controller.switchPreset(QStringLiteral("throughput"));
    QVERIFY(session->switched.wait(kTimeoutMs));
    QCOMPARE(session->readFinished.size(), 0);
    QVERIFY(2 * kvBytes() < 3 * few);  // the residual is longer

    session->controller.readAgain();
    QVERIFY(session->readFinished.wait(kTimeoutMs));
    QVERIFY(!session->readFinished[0][0].toBool());
    QTRY_VERIFY_WITH_TIMEOUT(2 * kvBytes() > 3 * few, kTimeoutMs);
    QVERIFY(session->errors.isEmpty());
    QVERIFY(session->ask(kQuestion2));
    QCOMPARE(session->lastMessage().text, kAnswer2);
  }

  void whatASlidingWindowForgetsIsSaid() {
    const auto session = startedSession();
    engine::KvCacheConfig cache = session->controller.currentCacheConfig();
    cache.slidingWindow = 300;
    session->controller.applyCacheConfig(cache, 0);
    QVERIFY(session->attach(document_));
    QVERIFY(session->ask(kQuestion1));
    QTRY_VERIFY_WITH_TIMEOUT(session->controller.contextState().forgottenTokens > 500, kTimeoutMs);
    session->controller.newConversation();
    QCOMPARE(session->controller.contextState().forgottenTokens, std::int64_t{0});
    QCOMPARE(session->controller.currentPreset(), QStringLiteral("custom"));
  }

  void aSwitchDuringAnAnswerWaitsForItsEnd() {
    const auto session = endlessSession();
    QVERIFY(sendAndSeeWords(*session));
    session->switched.clear();
    session->controller.switchPreset(QStringLiteral("throughput"));
    QVERIFY(session->controller.activity() == Activity::kAnswering);
    session->controller.stop();
    QVERIFY(session->switched.wait(kTimeoutMs));
    QCOMPARE(session->switched.size(), 1);
    QCOMPARE(session->controller.currentCacheConfig().keyNbits, 8);
    QCOMPARE(session->controller.messages().size(), std::size_t{2});
    QVERIFY(!session->lastMessage().text.isEmpty());
  }

  void eachChatKeepsItsOwnPreset() {
    const auto session = startedSession();
    QVERIFY(session->ask(QStringLiteral("Hello!")));
    const std::int64_t first = session->controller.currentConversation();
    session->controller.newConversation();
    session->controller.switchPreset(QStringLiteral("exact"));
    QVERIFY(session->ask(QStringLiteral("Hello!")));
    const std::int64_t second = session->controller.currentConversation();
    session->controller.selectConversation(first);
    QCOMPARE(session->controller.currentPreset(), QStringLiteral("quality"));
    QVERIFY(session->ask(QStringLiteral("Who are you?")));
    session->controller.selectConversation(second);
    QCOMPARE(session->controller.currentPreset(), QStringLiteral("exact"));
    QVERIFY(session->ask(QStringLiteral("Who are you?")));
    QVERIFY(session->errors.isEmpty());
  }

  void whatDoesNotFitTheContextIsRefusedWithNumbersAndNothingIsLost() {
    const auto session = startedSession();
    session->controller.applyCacheConfig(session->controller.currentCacheConfig(), 512);
    QCOMPARE(session->controller.currentPreset(), QStringLiteral("quality"));
    QVERIFY(session->attach(document_));
    const auto preview = session->previews.back()[0].value<DocumentPreview>();
    QVERIFY(!preview.fitsContext);
    QCOMPARE(preview.contextLength, std::int64_t{512});
    session->controller.send(kQuestion1);
    QVERIFY(session->refused.wait(kTimeoutMs));
    QCOMPARE(session->refused[0][0].toString(), kQuestion1);
    QVERIFY2(session->lastError().contains(QStringLiteral("512")),
             qPrintable(session->lastError()));
    QVERIFY(session->controller.messages().empty());
    QCOMPARE(session->controller.draft(), kQuestion1);
    QCOMPARE(session->controller.memory().cachedTokens, std::int64_t{0});
    QVERIFY(session->controller.activity() == Activity::kIdle);

    session->controller.readDocument();
    QVERIFY(session->readFinished.wait(kTimeoutMs));
    QVERIFY(session->readFinished[0][0].toBool());

    session->controller.applyCacheConfig(session->controller.currentCacheConfig(), 0);
    QVERIFY(session->ask(kQuestion1));
    QCOMPARE(session->lastMessage().text, kAnswer1);
    QCOMPARE(session->controller.draft(), QString());
  }

  void aContextBeyondTheTrainedLengthIsSaid() {
    const auto session = startedSession();
    session->controller.applyCacheConfig(session->controller.currentCacheConfig(), 4096);
    QVERIFY(session->attach(document_));
    const QString copy = folder_->filePath(QStringLiteral("copy.txt"));
    QVERIFY(QFile::copy(document_, copy));
    QVERIFY(session->attach(copy));
    QTRY_VERIFY_WITH_TIMEOUT(session->controller.contextState().usedTokens > 2300, kTimeoutMs);
    const ContextState state = session->controller.contextState();
    QCOMPARE(state.contextLength, std::int64_t{4096});
    QCOMPARE(state.trainedLength, std::int64_t{2048});
    QVERIFY(state.isBeyondTraining());
    QVERIFY(session->ask(kQuestion1));  // a warning is no refusal
  }

  void regenerateAndEditMakeBranches() {
    const auto session = startedSession();
    QVERIFY(session->attach(document_));
    QVERIFY(session->ask(kQuestion1));
    const Message original = session->lastMessage();
    session->finished.clear();
    session->controller.regenerate();
    QVERIFY(session->finished.wait(kTimeoutMs));
    const Message again = session->lastMessage();
    QVERIFY(again.id != original.id);
    QCOMPARE(again.parentId, original.parentId);
    QCOMPARE(again.siblingIds.size(), std::size_t{2});
    QCOMPARE(again.text, original.text);  // greedy
    QVERIFY(again.statistics.reusedTokens >= original.statistics.promptTokens - 1);

    session->finished.clear();
    session->controller.editMessage(original.parentId, kQuestion2);
    QVERIFY(session->finished.wait(kTimeoutMs));
    QCOMPARE(session->lastMessage().text, kAnswer2);
    QCOMPARE(session->controller.messages().size(), std::size_t{2});
    QCOMPARE(session->controller.messages()[0].siblingIds.size(), std::size_t{2});

    session->opened.clear();
    session->controller.selectBranch(original.id);
    QCOMPARE(session->opened.size(), 1);
    QCOMPARE(session->lastMessage().id, original.id);
    session->controller.editMessage(original.id, QStringLiteral("answers cannot be edited"));
    QCOMPARE(session->refused.size(), 1);
    QVERIFY(session->ask(kQuestion2));
    QCOMPARE(session->controller.messages().size(), std::size_t{4});
  }

  void aRegeneratedAnswerIsAnotherOneWhereTokensAreDrawn() {
    const auto session = endlessSession();
    engine::SamplerConfig wild;
    wild.temperature = 5.0;
    wild.topK = 0;
    wild.topP = 1.0;
    session->controller.applySampling(wild, 20);
    QVERIFY(session->ask(QStringLiteral("Say something.")));
    const Message first = session->lastMessage();
    QCOMPARE(first.stopReason, QStringLiteral("token_limit"));
    QCOMPARE(first.tokens.size(), std::size_t{20});
    session->finished.clear();
    session->controller.regenerate();
    QVERIFY(session->finished.wait(kTimeoutMs));
    QVERIFY(session->lastMessage().tokens != first.tokens);
  }

  void deletingAChatCanBeUndone() {
    const auto session = startedSession();
    QVERIFY(session->ask(QStringLiteral("Hello!")));
    const std::int64_t id = session->controller.currentConversation();
    session->controller.renameConversation(id, QStringLiteral("Greetings"));
    QCOMPARE(session->controller.searchResults(QStringLiteral("greet")).size(), std::size_t{1});
    session->controller.deleteConversation(id);
    QVERIFY(session->controller.conversations().empty());
    QCOMPARE(session->controller.currentConversation(), 0);
    QVERIFY(session->controller.messages().empty());
    session->controller.undoDelete();
    QCOMPARE(session->controller.currentConversation(), id);
    QCOMPARE(session->controller.messages().size(), std::size_t{2});
    QCOMPARE(session->controller.conversations().front().title, QStringLiteral("Greetings"));
  }

  void eachDeletionCanBeUndoneTheLastOneFirst() {
    const auto session = startedSession();
    QVERIFY(session->ask(QStringLiteral("Hello!")));
    const std::int64_t first = session->controller.currentConversation();
    session->controller.newConversation();
    QVERIFY(session->ask(QStringLiteral("Hello!")));
    const std::int64_t second = session->controller.currentConversation();
    session->controller.deleteConversation(first);
    session->controller.deleteConversation(second);
    session->controller.undoDelete();
    QCOMPARE(session->controller.currentConversation(), second);
    session->controller.undoDelete();
    QCOMPARE(session->controller.currentConversation(), first);
    QCOMPARE(session->controller.conversations().size(), std::size_t{2});
    session->controller.undoDelete();
    QVERIFY(session->errors.isEmpty());
  }

  void aDraftInANewChatSurvivesOtherChatsAndARestart() {
    {
      const auto session = startedSession();
      QVERIFY(session->ask(QStringLiteral("Hello!")));
      const std::int64_t other = session->controller.currentConversation();
      session->controller.newConversation();
      session->controller.saveDraft(kQuestion1);
      session->controller.selectConversation(other);
      QCOMPARE(session->controller.draft(), QString());
      session->controller.newConversation();
      QCOMPARE(session->controller.draft(), kQuestion1);
    }
    const auto session = startedSession();
    QCOMPARE(session->controller.currentConversation(), 0);
    QCOMPARE(session->controller.draft(), kQuestion1);
    // A document makes a chat of it: the draft is that chat's, and the next one begins empty.
    QVERIFY(session->attach(document_));
    QCOMPARE(session->controller.draft(), kQuestion1);
    session->controller.newConversation();
    QCOMPARE(session->controller.draft(), QString());
  }

  void aRefusedFirstQuestionLeavesADraftAndNoChat() {
    const auto session = startedSession();
    session->controller.applyCacheConfig(session->controller.currentCacheConfig(), 64);
    const QString question = QStringLiteral("Who keeps the green ledger? ").repeated(20);
    session->controller.send(question);
    QVERIFY(session->refused.wait(kTimeoutMs));
    QVERIFY(session->controller.conversations().empty());
    QCOMPARE(session->controller.currentConversation(), 0);
    QCOMPARE(session->controller.draft(), question);
    QCOMPARE(session->controller.contextState().contextLength, std::int64_t{64});
  }

  void theTrainedLengthIsNoChoiceAndAnotherLengthIsThatOfOneChat() {
    const auto session = startedSession();
    engine::KvCacheConfig cache = session->controller.currentCacheConfig();
    cache.residualLength = 77;
    session->controller.applyCacheConfig(cache, 2048);
    QVERIFY(session->switched.wait(kTimeoutMs));
    QCOMPARE(session->controller.settings().contextLength, std::int64_t{0});
    QVERIFY(session->ask(QStringLiteral("Hello!")));
    const std::int64_t first = session->controller.currentConversation();
    cache.residualLength = 99;
    session->controller.applyCacheConfig(cache, 4096);
    QVERIFY(session->switched.wait(kTimeoutMs));
    QCOMPARE(session->controller.contextState().contextLength, std::int64_t{4096});

    session->controller.newConversation();
    QCOMPARE(session->controller.contextState().contextLength, std::int64_t{2048});
    cache.residualLength = 55;
    session->controller.applyCacheConfig(cache, 0);
    QVERIFY(session->ask(QStringLiteral("Hello!")));
    session->controller.selectConversation(first);
    QCOMPARE(session->controller.contextState().contextLength, std::int64_t{4096});
    QCOMPARE(session->controller.currentCacheConfig().residualLength, 99);
    QCOMPARE(session->controller.currentPreset(), QStringLiteral("custom"));
  }

  void theContextMeterIsThatOfTheOpenChatWhileAnotherAnswers() {
    const auto session = endlessSession();
    QVERIFY(session->attach(document_));
    QTRY_VERIFY_WITH_TIMEOUT(session->controller.contextState().usedTokens > 1000, kTimeoutMs);
    const std::int64_t tokens = session->controller.contextState().usedTokens;
    const std::int64_t quiet = session->controller.currentConversation();
    session->controller.newConversation();
    QCOMPARE(session->controller.contextState().usedTokens, std::int64_t{0});
    session->controller.applyCacheConfig(session->controller.currentCacheConfig(), 100000);
    QVERIFY(sendAndSeeWords(*session));
    const std::int64_t busy = session->controller.currentConversation();
    session->controller.selectConversation(quiet);
    // Another document is looked at in the meantime: its room is that of the open chat.
    QVERIFY(session->changed.wait(kTimeoutMs));
    QVERIFY(std::abs(session->controller.contextState().usedTokens - tokens) < 20);
    session->controller.stop();
    QVERIFY(session->finished.wait(kTimeoutMs));
    QTRY_COMPARE_WITH_TIMEOUT(session->controller.contextState().usedTokens, tokens, kTimeoutMs);
    session->controller.selectConversation(busy);
    QVERIFY(session->controller.contextState().usedTokens < 1000);
  }

  void theForecastOfAPendingDocumentFollowsTheOpenChat() {
    const auto session = startedSession();
    QVERIFY(session->attach(document_));
    QTRY_VERIFY_WITH_TIMEOUT(session->controller.contextState().usedTokens > 1000, kTimeoutMs);
    const QString copy = folder_->filePath(QStringLiteral("copy.txt"));
    QVERIFY(QFile::copy(document_, copy));
    session->previews.clear();
    session->controller.openDocument(copy);
    QVERIFY(session->previews.wait(kTimeoutMs));
    QVERIFY(session->previews.back()[0].value<DocumentPreview>().tokensInUse > 1000);
    QVERIFY(!session->controller.pendingDocument()->fitsContext);
    session->controller.newConversation();
    QCOMPARE(session->previews.back()[0].value<DocumentPreview>().tokensInUse, std::int64_t{0});
    QVERIFY(session->controller.pendingDocument()->fitsContext);
  }

  void discardingADocumentEndsItsCounting() {
    const auto session = startedSession();
    const QString path = folder_->filePath(QStringLiteral("long.txt"));
    QFile file(path);
    QVERIFY(file.open(QIODevice::WriteOnly));
    file.write(QByteArray("The old mill was built in 1712. ").repeated(500'000));
    file.close();
    QSignalSpy counting(&session->controller, &ChatController::documentCountProgress);
    session->controller.openDocument(path);
    QVERIFY(counting.wait(kTimeoutMs));
    session->controller.discardDocument();
    QElapsedTimer timer;
    timer.start();
    QVERIFY(session->ask(QStringLiteral("Hello!")));
    QVERIFY2(timer.elapsed() < 6000, qPrintable(QString::number(timer.elapsed())));
    QVERIFY(session->previews.isEmpty());
  }

  void anEmptyChatGivesItsMemoryBack() {
    const auto session = startedSession();
    QVERIFY(session->attach(document_));
    session->controller.readDocument();
    QVERIFY(session->readFinished.wait(kTimeoutMs));
    QTRY_VERIFY_WITH_TIMEOUT(session->controller.memory().cachedTokens > 1000, kTimeoutMs);
    session->controller.detachDocument(session->controller.documents().front().id);
    QTRY_COMPARE_WITH_TIMEOUT(session->controller.memory().cachedTokens, std::int64_t{0},
                              kTimeoutMs);
    QCOMPARE(session->controller.memory().use[engine::MemoryCategory::kKvCodes], std::uint64_t{0});
  }

  void theSameDocumentTwiceIsSaid() {
    const auto session = startedSession();
    QVERIFY(session->attach(document_));
    QVERIFY(session->errors.isEmpty());
    QVERIFY(session->attach(document_));
    QVERIFY2(session->lastError().contains(QStringLiteral("already in this chat")),
             qPrintable(session->lastError()));
    QCOMPARE(session->controller.documents().size(), std::size_t{1});
  }

  void chatsAreNobodyElsesBusiness() {
    const Session session(paths());
    const QFile::Permissions others = QFile::ReadGroup | QFile::WriteGroup | QFile::ExeGroup |
                                      QFile::ReadOther | QFile::WriteOther | QFile::ExeOther;
    const QString folder = paths().dataFolder;
    QCOMPARE(QFile::permissions(folder) & others, QFile::Permissions());
    for (const QString& name : QDir(folder).entryList({QStringLiteral("*.sqlite*")}, QDir::Files)) {
      if (name.endsWith(QStringLiteral(".lock"))) continue;
      QCOMPARE(QFile::permissions(QDir(folder).filePath(name)) & others, QFile::Permissions());
    }
  }

  void aModelThatDoesNotLoadLeavesTheOldOneInUse() {
    const auto session = startedSession();
    session->controller.loadModel(folder_->path(), engine::WeightFormat::kAuto);
    QVERIFY(session->loadFailed.wait(kTimeoutMs));
    QVERIFY(!session->loadFailed[0][0].toString().isEmpty());
    QVERIFY(session->controller.model().has_value());
    QVERIFY(session->controller.settings().modelFolder.isEmpty());
    QVERIFY(session->ask(QStringLiteral("Hello!")));
  }

  void withoutAnyModelNothingIsLost() {
    ControllerPaths bare = paths();
    bare.demoFolder.clear();
    Session session(bare);
    session.controller.start();
    QCOMPARE(session.loadFailed.size(), 1);
    session.controller.send(kQuestion1);
    QCOMPARE(session.refused.size(), 1);
    session.controller.openDocument(document_);
    QVERIFY(session.previews.wait(kTimeoutMs));
    QCOMPARE(session.controller.pendingDocument()->tokenCount, std::int64_t{-1});
    session.controller.attachDocument();
    QCOMPARE(session.controller.documents().size(), std::size_t{1});
  }

  void aFileThatCannotBeOpenedIsSaid() {
    const auto session = startedSession();
    session->controller.openDocument(QStringLiteral("/no/such/file.txt"));
    QVERIFY(session->errors.wait(kTimeoutMs));
    QVERIFY(session->lastError().contains(QStringLiteral("/no/such/file.txt")));
    QVERIFY(session->previews.isEmpty());
  }
};

}  // namespace longhand::app

QTEST_GUILESS_MAIN(longhand::app::ChatControllerTest)
#include "chat_controller_test.moc"
