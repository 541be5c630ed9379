// A graphics card that breaks in the middle of a chat, on the emulated one.

#include <memory>

#include <QTemporaryDir>
#include <QtTest>

#include "tests/app/chat_session.h"
#include "tests/cuda_on_cpu/emulated_plugin.h"

using namespace longhand;
using namespace longhand::app;
using tests::ChatSession;

class ChatDeviceTest : public QObject {
  Q_OBJECT
 private slots:
  void init();
  void cleanup();
  void theModelComputesOnTheCard();
  void aCardThatIsMissingIsExplained();
  void anAnswerGoesOnAndOneSentenceIsSaid();
  void aCardThatStaysBrokenLeavesTheChatToTheCpu();
  void aCardThatBreaksBetweenTwoQuestionsGetsItsCacheFromTheDisk();
  void aModelThatCannotBeLoadedAgainFailsTheAnswerAndKeepsTheChat();

 private:
  std::unique_ptr<ChatSession> start();

  std::unique_ptr<QTemporaryDir> folder_;
  std::unique_ptr<cuda_on_cpu::EmulatedPlugin> plugin_;
};

void ChatDeviceTest::init() {
  folder_ = std::make_unique<QTemporaryDir>();
  plugin_ = std::make_unique<cuda_on_cpu::EmulatedPlugin>(LONGHAND_EMULATED_PLUGIN);
}

void ChatDeviceTest::cleanup() {
  plugin_.reset();
  folder_.reset();
}

std::unique_ptr<ChatSession> ChatDeviceTest::start() {
  ControllerPaths paths = tests::chatPaths(folder_->path());
  paths.cudaPlugin = QString::fromStdString(plugin_->file());
  auto session = std::make_unique<ChatSession>(paths);
  if (!session->start()) qWarning("the model did not load");
  return session;
}

void ChatDeviceTest::theModelComputesOnTheCard() {
  const auto session = start();
  const std::optional<ModelInfo> model = session->controller.model();
  QVERIFY(model.has_value());
  QCOMPARE(model->backendDescription,
           QStringLiteral("CPU emulation, CUDA, compute capability 8.6"));
  QCOMPARE(model->whyNotDevice, QString());
  // The forecast counts what the backend holds for itself.
  QTRY_VERIFY(session->controller.memory().backend.deviceBytes > 0);
  const engine::MemoryReport memory = session->controller.memory();
  const std::vector<PresetForecast> forecast = session->controller.forecast(100);
  QVERIFY(!forecast.empty());
  QVERIFY(forecast.front().use[engine::MemoryCategory::kWorkspace] > memory.backend.deviceBytes);
}

void ChatDeviceTest::aCardThatIsMissingIsExplained() {
  plugin_->settings().nDevices = 0;
  const auto session = start();
  QCOMPARE(session->controller.model()->whyNotDevice,
           QStringLiteral("There is no NVIDIA graphics card."));
  QVERIFY(session->controller.model()->backendDescription.startsWith(QStringLiteral("CPU")));
}

void ChatDeviceTest::anAnswerGoesOnAndOneSentenceIsSaid() {
  const auto session = start();
  QVERIFY(session->ask(tests::kQuestion1));
  const QString expected = session->lastMessage().text;
  QVERIFY(!expected.isEmpty());
  session->controller.newConversation();
  QVERIFY(session->ask(tests::kQuestion2));

  session->controller.newConversation();
  plugin_->failures().launch = 150;  // behind the prompt's first token
  QVERIFY(session->ask(tests::kQuestion1));
  QCOMPARE(session->lastMessage().text, expected);
  QCOMPARE(session->lastMessage().state, MessageState::kComplete);
  QVERIFY2(session->errors.isEmpty(), qPrintable(session->lastError()));
  QCOMPARE(session->notices.size(), 1);
  const QString sentence = session->notices.front()[0].toString();
  QVERIFY2(sentence.startsWith(QStringLiteral("CPU emulation")) &&
               sentence.contains(QStringLiteral("was started again")),
           qPrintable(sentence));
  QCOMPARE(session->controller.messages().size(), std::size_t{2});
  QVERIFY(
      session->controller.model()->backendDescription.startsWith(QStringLiteral("CPU emulation")));
  QVERIFY(session->ask(tests::kQuestion2));  // and it goes on
  QCOMPARE(session->controller.messages().size(), std::size_t{4});
}

void ChatDeviceTest::aCardThatStaysBrokenLeavesTheChatToTheCpu() {
  const auto session = start();
  QSignalSpy changed(&session->controller, &ChatController::deviceChanged);
  plugin_->settings().staysBrokenAfterReset = true;
  plugin_->failures().launch = 150;
  QVERIFY(session->ask(tests::kQuestion1));
  QCOMPARE(session->lastMessage().state, MessageState::kComplete);
  QVERIFY(session->errors.isEmpty());
  QCOMPARE(changed.size(), 1);
  QCOMPARE(session->notices.size(), 1);
  const QString sentence = session->notices.front()[0].toString();
  QVERIFY2(sentence.endsWith(QStringLiteral(": the CPU goes on.")), qPrintable(sentence));
  QCOMPARE(session->controller.model()->whyNotDevice, sentence);
  QVERIFY(
      !session->controller.model()->backendDescription.startsWith(QStringLiteral("CPU emulation")));
}

void ChatDeviceTest::aCardThatBreaksBetweenTwoQuestionsGetsItsCacheFromTheDisk() {
  const auto session = start();
  session->controller.applySessionSettings(true, qint64{1} << 30, 16);
  QVERIFY(session->ask(tests::kQuestion1));
  QVERIFY(session->waitFor(session->saved));

  QVERIFY(session->ask(tests::kQuestion2));
  plugin_->failures().copy = 1;  // while these words are being kept, a second later
  QVERIFY(session->waitFor(session->restored));
  QVERIFY(session->restored.front()[1].toLongLong() > 0);
  QVERIFY(session->ask(tests::kQuestion1));
  QVERIFY(session->lastMessage().statistics.reusedTokens > 0);
  QVERIFY2(session->errors.isEmpty(), qPrintable(session->lastError()));
}

void ChatDeviceTest::aModelThatCannotBeLoadedAgainFailsTheAnswerAndKeepsTheChat() {
  ControllerPaths paths = tests::chatPaths(folder_->path());
  paths.cudaPlugin = QString::fromStdString(plugin_->file());
  paths.demoFolder = tests::makePlainModel(folder_->path());
  ChatSession session(paths);
  session.controller.start();
  session.controller.loadModel(paths.demoFolder, engine::WeightFormat::kAuto);
  QVERIFY(session.waitFor(session.loaded));
  session.controller.applySampling({}, 8);
  QVERIFY(session.ask(tests::kQuestion1));
  const std::vector<Message> before = session.controller.messages();

  const QString weights = paths.demoFolder + QStringLiteral("/model.safetensors");
  QVERIFY(QFile::rename(weights, weights + QStringLiteral(".away")));
  plugin_->failures().launch = 20;
  QVERIFY(session.ask(tests::kQuestion2));
  QCOMPARE(session.lastMessage().state, MessageState::kFailed);
  QVERIFY2(session.lastError().contains(QStringLiteral("could not be loaded again")),
           qPrintable(session.lastError()));
  QCOMPARE(session.controller.messages().size(), before.size() + 2);

  QVERIFY(QFile::rename(weights + QStringLiteral(".away"), weights));
  session.finished.clear();
  session.controller.regenerate();
  QVERIFY(session.waitFor(session.finished));
  QCOMPARE(session.lastMessage().state, MessageState::kComplete);
  QVERIFY(!session.lastMessage().text.isEmpty());
}

QTEST_GUILESS_MAIN(ChatDeviceTest)
#include "chat_device_test.moc"
