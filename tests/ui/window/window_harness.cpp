#include "window_harness.h"

#include <QAbstractButton>
#include <QFile>
#include <QJsonArray>
#include <QJsonDocument>
#include <QJsonObject>
#include <QSignalSpy>

#include "tests/support/paths.h"
#include "ui/chat/composer.h"

using namespace Qt::StringLiterals;

namespace longhand::tests {

namespace {

QString demoFolder() { return QString::fromStdString(resourcePath("longhand-demo").string()); }

}  // namespace

std::vector<SampleQuestion> sampleQuestions() {
  QFile file(demoFolder() + u"/sample-questions.json"_s);
  if (!file.open(QIODevice::ReadOnly)) throw std::runtime_error("no sample-questions.json");
  const QJsonArray list =
      QJsonDocument::fromJson(file.readAll()).object().value("questions"_L1).toArray();
  std::vector<SampleQuestion> questions;
  for (const QJsonValue& entry : list) {
    questions.push_back({entry["question"_L1].toString(), entry["answer"_L1].toString()});
  }
  return questions;
}

QString sampleDocumentPath() { return demoFolder() + u"/sample-document.txt"_s; }

WindowHarness::WindowHarness(const QString& dataFolder, const QString& cudaPlugin) {
  app::ControllerPaths paths;
  paths.dataFolder = dataFolder;
  paths.modelsFolder = dataFolder + u"/models"_s;
  paths.demoFolder = demoFolder();
  paths.cudaPlugin = cudaPlugin;
  controller_ = std::make_unique<app::ChatController>(paths);
  window_ = std::make_unique<ui::MainWindow>(
      *controller_, ui::MainWindowOptions{paths.dataFolder, paths.modelsFolder,
                                          ui::ThemeKind::kLight, std::nullopt});
}

WindowHarness::~WindowHarness() { quit(); }

bool WindowHarness::start() {
  window_->show();
  controller_->start();
  return QTest::qWaitForWindowActive(window_.get(), kPatienceMs) &&
         QTest::qWaitFor([this] { return controller_->model().has_value(); }, kPatienceMs) &&
         waitUntilIdle();
}

void WindowHarness::quit() {
  if (window_ == nullptr) return;
  window_->close();
  window_.reset();
  controller_.reset();
}

void WindowHarness::click(const QString& objectName) {
  auto& button = find<QAbstractButton>(objectName);
  if (!button.isVisibleTo(window_.get()) || !button.isEnabled()) {
    throw std::runtime_error("cannot be clicked: " + objectName.toStdString());
  }
  QTest::mouseClick(&button, Qt::LeftButton);
}

QWidget& WindowHarness::composerField() {
  auto& composer = find<ui::Composer>(u"composer"_s);
  QWidget* field = composer.focusProxy();
  if (field == nullptr) throw std::runtime_error("the composer has no focus proxy");
  return *field;
}

void WindowHarness::ask(const QString& question) {
  find<ui::Composer>(u"composer"_s).setFocus();
  QTest::keyClicks(&composerField(), question);
  QTest::keyClick(&composerField(), Qt::Key_Return);
}

bool WindowHarness::waitUntilIdle() {
  return QTest::qWaitFor([this] { return controller_->activity() == app::Activity::kIdle; },
                         kPatienceMs);
}

QString WindowHarness::answerTo(const QString& question) {
  QSignalSpy finished(controller_.get(), &app::ChatController::generationFinished);
  ask(question);
  if (!QTest::qWaitFor([&] { return finished.count() > 0; }, kPatienceMs) || !waitUntilIdle()) {
    return {};
  }
  return lastAnswer();
}

QString WindowHarness::lastAnswer() const {
  const std::vector<app::Message> messages = controller_->messages();
  return messages.empty() || messages.back().role != app::MessageRole::kAssistant
             ? QString()
             : messages.back().text;
}

bool WindowHarness::waitForCandidate() {
  return QTest::qWaitFor(
      [this] {
        return controller_->pendingDocument().has_value() && isShown(u"documentUseButton"_s);
      },
      kPatienceMs);
}

bool WindowHarness::useSampleDocument() {
  window_->openDocument(sampleDocumentPath());
  if (!waitForCandidate()) return false;
  click(u"documentUseButton"_s);
  return controller_->documents().size() == 1;
}

}  // namespace longhand::tests
