// The emulation finds each kind of bug that is planted in a kernel, and leaves right kernels alone.
// What only a sanitizer can see runs in a child process, which the sanitizer ends.

#include <algorithm>
#include <string>
#include <vector>

#include <QCoreApplication>
#include <QProcess>
#include <QtTest>

#include "tests/cuda_on_cpu/options.h"
#include "tests/cuda_on_cpu/planted_bugs.h"
#include "tests/cuda_on_cpu/sanitizer_hooks.h"

using namespace longhand::cuda_on_cpu;

namespace {

#ifdef LONGHAND_EMULATION_TSAN
constexpr bool kHasTsan = true;
#else
constexpr bool kHasTsan = false;
#endif
#ifdef LONGHAND_EMULATION_ASAN
constexpr bool kHasAsan = true;
#else
constexpr bool kHasAsan = false;
#endif

/// What the kernel computes without its bug, for 2 blocks of 64 threads.
std::vector<int> rightResult() {
  std::vector<int> result;
  for (int i = 0; i < 128; ++i) result.push_back((i % 64 + 1) % 64);
  return result;
}

/// What the emulation says about a bug; empty when it says nothing.
std::string errorOf(Bug bug) {
  try {
    runPlanted(bug);
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

/// True when a process that runs the kernel ends well.
bool childSucceeds(const char* bug) {
  QProcess child;
  child.start(QCoreApplication::applicationFilePath(),
              {QStringLiteral("--planted"), QString::fromLatin1(bug)});
  return child.waitForFinished(60'000) && child.exitStatus() == QProcess::NormalExit &&
         child.exitCode() == 0;
}

}  // namespace

class CudaOnCpuTest : public QObject {
  Q_OBJECT

 private slots:
  void cleanup() { options = Options(); }

  void aRightKernelIsRightInEverySchedule_data() { addSchedules(); }
  void aRightKernelIsRightInEverySchedule();
  void aRightKernelIsRightOnSeveralThreads();
  void wrongValuesShowWhatMissesABarrier_data() { addSchedules(); }
  void wrongValuesShowWhatMissesABarrier();
  void errorsNameTheBugAndItsPlace_data();
  void errorsNameTheBugAndItsPlace();
  void anErrorLeavesTheEmulationUsable();
  void anErrorFreesWhatItsThreadsOwn();
  void aSanitizerSeesWhatItShould_data();
  void aSanitizerSeesWhatItShould();

 private:
  static void addSchedules() {
    QTest::addColumn<int>("schedule");
    QTest::newRow("forward") << static_cast<int>(Schedule::kForward);
    QTest::newRow("reverse") << static_cast<int>(Schedule::kReverse);
    QTest::newRow("random") << static_cast<int>(Schedule::kRandom);
  }
};

void CudaOnCpuTest::aRightKernelIsRightInEverySchedule() {
  QFETCH(int, schedule);
  options.schedule = static_cast<Schedule>(schedule);
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    options.seed = seed;
    QVERIFY(runPlanted(Bug::kNone) == rightResult());
  }
}

void CudaOnCpuTest::aRightKernelIsRightOnSeveralThreads() {
  options.osThreads = 3;
  for (int i = 0; i < 20; ++i) QVERIFY(runPlanted(Bug::kNone) == rightResult());
}

void CudaOnCpuTest::wrongValuesShowWhatMissesABarrier() {
  if (kHasTsan) QSKIP("ThreadSanitizer reports these itself, see below");
  QFETCH(int, schedule);
  options.schedule = static_cast<Schedule>(schedule);
  for (const Bug bug : {Bug::kMissingBarrier, Bug::kMissingWait, Bug::kUninitialised}) {
    QVERIFY2(runPlanted(bug) != rightResult(), std::to_string(static_cast<int>(bug)).c_str());
  }
  // These need a certain order. Forward, the last one into a barrier or a collective runs on at
  // once: it reads what the next warp has not written yet, or overwrites what its neighbour wants.
  if (options.schedule == Schedule::kForward) {
    QVERIFY(runPlanted(Bug::kWriteAfterRead) != rightResult());
    QVERIFY(runPlanted(Bug::kWarpBarrierOnly) != rightResult());
  }
}

void CudaOnCpuTest::errorsNameTheBugAndItsPlace_data() {
  QTest::addColumn<int>("bug");
  QTest::addColumn<QString>("text");
  const auto add = [](const char* name, Bug bug, const char* text) {
    QTest::newRow(name) << static_cast<int>(bug) << QString::fromLatin1(text);
  };
  add("divergent barrier", Bug::kDivergentBarrier, "divergent barrier");
  add("early exit", Bug::kEarlyExit, "exited");
  add("mismatched collective", Bug::kMismatchedCollective, "mismatched warp collectives");
  add("exited lane", Bug::kExitedLane, "exited");
  add("not in mask", Bug::kNotInMask, "caller not in its mask");
  add("deadlock", Bug::kDeadlock, "deadlock");
  add("misaligned ldmatrix", Bug::kMisalignedLoad, "not 16-byte aligned");
  add("too much shared memory", Bug::kTooMuchShared, "too much shared memory");
  if (kHasAsan || kHasTsan) return;  // they see these themselves, see below
  add("shared overrun", Bug::kSharedOverrun, "wrote past a shared array");
  add("dynamic overrun", Bug::kDynamicOverrun, "wrote past the dynamic shared memory");
}

void CudaOnCpuTest::errorsNameTheBugAndItsPlace() {
  QFETCH(int, bug);
  QFETCH(QString, text);
  for (const Schedule schedule : {Schedule::kForward, Schedule::kReverse, Schedule::kRandom}) {
    options.schedule = schedule;
    const std::string error = errorOf(static_cast<Bug>(bug));
    QVERIFY2(error.find(text.toStdString()) != std::string::npos, error.c_str());
    QVERIFY2(error.find("planted_bugs.cu:") != std::string::npos ||
                 error.find("[block") != std::string::npos,
             error.c_str());
  }
}

void CudaOnCpuTest::anErrorLeavesTheEmulationUsable() {
  QVERIFY(!errorOf(Bug::kDeadlock).empty());
  QVERIFY(runPlanted(Bug::kNone) == rightResult());
}

void CudaOnCpuTest::anErrorFreesWhatItsThreadsOwn() {
  for (const Bug bug : {Bug::kDeadlock, Bug::kNotInMask, Bug::kExitedLane}) {
    QVERIFY(!errorOf(bug).empty());
    QCOMPARE(ownedByThreads(), 0);
  }
}

void CudaOnCpuTest::aSanitizerSeesWhatItShould_data() {
  QTest::addColumn<QString>("bug");
  QTest::addColumn<bool>("isSeen");
  QTest::newRow("none") << "none" << false;
  for (const char* race :
       {"missing-barrier", "write-after-read", "warp-barrier-only", "global-race",
        "far-blocks-race", "shuffle-for-barrier", "early-matrix-load"}) {
    QTest::newRow(race) << race << kHasTsan;
  }
  for (const char* overrun : {"shared-overrun", "dynamic-overrun"}) {
    if (!kHasTsan) QTest::newRow(overrun) << overrun << true;  // without asan by an Error
  }
}

void CudaOnCpuTest::aSanitizerSeesWhatItShould() {
  QFETCH(QString, bug);
  QFETCH(bool, isSeen);
  QCOMPARE(childSucceeds(bug.toLatin1().constData()), !isSeen);
}

int main(int argc, char** argv) {
  if (argc == 3 && std::string(argv[1]) == "--planted") {
    options.osThreads = kHasTsan && std::string(argv[2]) == "global-race" ? 2 : 1;
    try {
      runPlanted(bugNamed(argv[2]));
    } catch (const Error&) {
      return 1;
    }
    return 0;
  }
  QCoreApplication application(argc, argv);
  CudaOnCpuTest test;
  return QTest::qExec(&test, argc, argv);
}

#include "cuda_on_cpu_test.moc"
