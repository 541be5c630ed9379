// How smooth the window stays while the engine computes on all cores: a timer of 16 ms ticks on the
// window's thread, asks for a repaint of the whole window each time, and what is late is counted.
// Prints; nothing is asserted about time.
#include <algorithm>
#include <vector>

#include <QElapsedTimer>
#include <QTemporaryDir>
#include <QTimer>

#include "tests/app/plain_model.h"
#include "window_harness.h"

using namespace Qt::StringLiterals;
using namespace longhand;
using namespace longhand::tests;

namespace {

constexpr int kTickMs = 16;  // of a screen with 60 pictures a second
constexpr int kPhaseMs = 10000;

/// Repaints the window in each tick and keeps how long after its time the tick was done.
class TickRecorder final {
 public:
  explicit TickRecorder(QWidget& window) {
    timer_.setTimerType(Qt::PreciseTimer);
    QObject::connect(&timer_, &QTimer::timeout, &window, [this, &window] {
      window.repaint();
      const qint64 now = clock_.nsecsElapsed();
      delaysMs_.push_back(static_cast<double>(now - last_) / 1e6 - kTickMs);
      last_ = now;
    });
    clock_.start();
    timer_.start(kTickMs);
  }

  void print(const char* phase) {
    timer_.stop();
    if (delaysMs_.empty()) return;
    std::sort(delaysMs_.begin(), delaysMs_.end());
    const auto at = [this](double part) {
      const auto last = static_cast<double>(delaysMs_.size() - 1);
      return std::max(0.0, delaysMs_[static_cast<std::size_t>(part * last)]);
    };
    qInfo("%s: %zu pictures; late by %.1f ms (median), %.1f (95 %%), %.1f (99 %%), %.1f (worst)",
          phase, delaysMs_.size(), at(0.5), at(0.95), at(0.99), at(1.0));
  }

 private:
  QTimer timer_;
  QElapsedTimer clock_;
  qint64 last_ = 0;
  std::vector<double> delaysMs_;
};

}  // namespace

class WindowSmoothnessBench final : public QObject {
  Q_OBJECT

 private slots:
  void picturesComeInTimeWhileTheEngineComputes() {
    const QTemporaryDir folder;
    WindowHarness harness(folder.path());
    QVERIFY(harness.start());
    {
      TickRecorder idle(harness.window());
      QTest::qWait(kPhaseMs);
      idle.print("idle");
    }
    harness.controller().loadModel(makeEndlessModel(folder.path()), engine::WeightFormat::kAuto);
    QVERIFY(harness.waitUntilIdle());

    TickRecorder busy(harness.window());
    QElapsedTimer elapsed;
    elapsed.start();
    std::int64_t nAnswers = 0;
    for (; elapsed.elapsed() < kPhaseMs; ++nAnswers) {
      harness.controller().newConversation();
      QVERIFY(harness.useSampleDocument());
      QVERIFY(!harness.answerTo(u"Who is the treasurer?"_s).isEmpty());
    }
    busy.print("reading and answering");
    qInfo("%lld documents read and answers streamed until the context was full",
          static_cast<long long>(nAnswers));
  }
};

QTEST_MAIN(WindowSmoothnessBench)
#include "window_smoothness_bench.moc"
