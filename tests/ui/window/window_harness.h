#pragma once
// The real main window with the real controller, engine and bundled model, in a data folder of its
// own. Widgets are found by object name; what is not there ends the test with its name.

#include <memory>
#include <stdexcept>
#include <vector>

#include <QTemporaryDir>
#include <QTest>

#include "app/chat_controller.h"
#include "ui/main_window.h"

class QPlainTextEdit;

namespace longhand::tests {

/// Generous: a loaded machine under a sanitizer is slow, a passing test never waits this long.
inline constexpr int kPatienceMs = 60000;

struct SampleQuestion {
  QString question;
  QString answer;
};
/// Of resources/longhand-demo: all work one after the other in one chat.
std::vector<SampleQuestion> sampleQuestions();
QString sampleDocumentPath();

class WindowHarness final {
 public:
  /// Opens controller and window; start() loads the bundled model. May be made again on the same
  /// data folder after the earlier one is gone: that is a restart of the program.
  explicit WindowHarness(const QString& dataFolder, const QString& cudaPlugin = {});
  ~WindowHarness();

  /// True once the model is loaded and the window is shown.
  bool start();
  void quit();  // as the user does it: closes the window, ends the controller

  app::ChatController& controller() { return *controller_; }
  ui::MainWindow& window() { return *window_; }

  template <typename Widget>
  Widget& find(const QString& objectName) {
    auto* widget = window_->findChild<Widget*>(objectName);
    if (widget == nullptr) throw std::runtime_error("no widget " + objectName.toStdString());
    return *widget;
  }
  bool isShown(const QString& objectName) {
    return find<QWidget>(objectName).isVisibleTo(window_.get());
  }
  void click(const QString& objectName);

  /// The text field of the composer.
  QWidget& composerField();
  /// Types into the composer and presses Enter.
  void ask(const QString& question);
  /// True once the answer has ended: nothing is computed any more.
  bool waitUntilIdle();
  /// Asks, waits, and returns the answer as stored; empty when none came.
  QString answerTo(const QString& question);
  QString lastAnswer() const;
  /// Opens the sample document and uses it without reading it first.
  bool useSampleDocument();

  /// What the document panel shows.
  bool waitForCandidate();

 private:
  std::unique_ptr<app::ChatController> controller_;
  std::unique_ptr<ui::MainWindow> window_;
};

/// A test whose functions each get a data folder and a started window of their own.
class WindowTest : public QObject {
  Q_OBJECT

 protected:
  QString path(const QString& name) const { return folder_->filePath(name); }
  QString dataFolder() const { return path(QStringLiteral("data")); }

  std::vector<SampleQuestion> questions_ = sampleQuestions();
  std::unique_ptr<QTemporaryDir> folder_;
  std::unique_ptr<WindowHarness> harness_;

 private slots:
  void init() {
    folder_ = std::make_unique<QTemporaryDir>();
    harness_ = std::make_unique<WindowHarness>(dataFolder());
    QVERIFY(harness_->start());
  }
  void cleanup() { harness_.reset(); }
};

}  // namespace longhand::tests
