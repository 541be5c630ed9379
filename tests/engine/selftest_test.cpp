// `longhand-cli selftest`: that right kernels pass, that a wrong one and a broken device are
// noticed, and what the report says.

#include "engine/cli/selftest.h"

#include <fstream>
#include <set>
#include <sstream>

#include <QtTest>

#include "engine/backend_factory.h"
#include "engine/error.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/engine/wrong_backend.h"
#ifdef LONGHAND_EMULATED_PLUGIN
#include "tests/cuda_on_cpu/emulated_plugin.h"
#endif

#include <nlohmann/json.hpp>

using namespace longhand;
using namespace longhand::engine;
using namespace longhand::engine::cli;
using nlohmann::json;

namespace {

struct Outcome {
  bool isGood = false;
  json report;
  std::string table;
  std::string progress;
};

json readJson(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return json::parse(file, nullptr, false);
}

SelftestOptions smallOptions() {
  SelftestOptions options;
  options.model = selftestShape("tiny");
  options.depths = {0, 300};
  options.prefillTokens = 16;
  options.secondsEach = 0.0;
  options.workingSetBytes = 100'000;
  options.extent = kernels::checks::CheckExtent::kQuick;
  return options;
}

std::set<std::string> wrongOperations(const json& report) {
  std::set<std::string> wrong;
  for (const json& row : report["kernels"]) {
    if (!row["is_right"].get<bool>()) wrong.insert(row["operation"]);
  }
  return wrong;
}

}  // namespace

class SelftestTest : public QObject {
  Q_OBJECT

 private slots:
  void init() { folder_ = std::make_unique<QTemporaryDir>(); }

  void theCpuPassesAndIsMeasured();
  void theEmulatedDevicePassesAndIsMeasured();
  void aWrongKernelIsReported_data();
  void aWrongKernelIsReported();
  void aBrokenDeviceIsReported();
  void whatDoesNotFitTheMemoryIsLeftOut();
  void aPromptMayBeLongerThanTheDeepestDepth();
  void whatDoesNotFitTheBudgetIsLeftOut();
  void aStoppedTestLeavesWhatItHas();
  void aFileThatCannotBeWrittenIsRefusedAtOnce();
  void theProgramSaysWhyThereIsNoDevice();

 private:
  Outcome run(kernels::Backend& backend, SelftestOptions options,
              const std::stop_token& stop = {}) const {
    options.jsonFile = folder_->filePath("report.json").toStdString();
    std::ostringstream table;
    std::ostringstream progress;
    Outcome outcome;
    outcome.isGood = runSelftest(backend, options, table, progress, stop);
    outcome.report = readJson(options.jsonFile);
    outcome.table = table.str();
    outcome.progress = progress.str();
    return outcome;
  }
  static void checkWhole(const Outcome& outcome);

  std::unique_ptr<QTemporaryDir> folder_;
};

/// Of all parts with smallOptions().
void SelftestTest::checkWhole(const Outcome& outcome) {
  const json& report = outcome.report;
  QVERIFY2(outcome.isGood, outcome.table.c_str());
  QVERIFY(report["is_complete"].get<bool>());
  QVERIFY(!report.contains("left_out"));
  QVERIFY(report["kernels"].size() > 60);
  for (const json& row : report["kernels"]) {
    QVERIFY(row["cases"].get<int>() > 0);
    QVERIFY(row["error_of_tolerance"].get<double>() <= 1.0);
  }
  std::set<std::string> stages;
  for (const json& row : report["stages"]) {
    stages.insert(row["stage"]);
    QVERIFY(row["seconds"]["median"].get<double>() > 0.0);
    QVERIFY(row["bytes"].get<double>() > 0.0);
  }
  const std::set<std::string> expected = {
      "copy",    "matmul",           "norm + matmul each", "norm + gate + up", "decode attention",
      "packing", "prefill attention"};
  QVERIFY(stages == expected);
  QCOMPARE(report["decode"].size(), std::size_t{10});  // (4 with NF4 + 1 with F16) x 2 depths
  for (const json& row : report["decode"]) QVERIFY(row["tokens_per_second"].get<double>() > 0.0);
  QCOMPARE(report["prefill"].size(), std::size_t{5});  // 2 + 2, and the longest prompt
  QCOMPARE(report["memory"].size(), std::size_t{2});
  QVERIFY(report["targets"].size() >= 9);
  QVERIFY(outcome.table.find("All that was checked is right.") != std::string::npos);
}

void SelftestTest::theCpuPassesAndIsMeasured() {
  const auto backend = kernels::createCpuBackend({.threads = 2});
  checkWhole(run(*backend, smallOptions()));
}

void SelftestTest::theEmulatedDevicePassesAndIsMeasured() {
#ifdef LONGHAND_EMULATED_PLUGIN
  const cuda_on_cpu::EmulatedPlugin plugin(LONGHAND_EMULATED_PLUGIN);
  BackendOptions options;
  options.backend = "cuda";
  options.cudaPlugin = plugin.file();
  auto chosen = createBackend(options);
  checkWhole(run(*chosen.backend, smallOptions()));
  chosen.backend.reset();
  QCOMPARE(plugin.counters().deviceBytes.load(), std::size_t{0});
#else
  QSKIP("CUDA's headers are missing");
#endif
}

void SelftestTest::aWrongKernelIsReported_data() {
  QTest::addColumn<QString>("operation");
  QTest::addColumn<QStringList>("reported");
  QTest::newRow("matmul") << "matmul"
                          << QStringList{"matmul", "norm + gate + up", "norm + matmul each"};
  QTest::newRow("rope") << "rope" << QStringList{"rope", "rope + store"};
  QTest::newRow("store") << "storeExact" << QStringList{"rope + store", "store exact"};
  QTest::newRow("pack") << "packPage" << QStringList{"pack page"};
  QTest::newRow("attend") << "attend" << QStringList{"decode attention"};
  QTest::newRow("argmax") << "argmax" << QStringList{"argmax"};
}

void SelftestTest::aWrongKernelIsReported() {
  QFETCH(QString, operation);
  QFETCH(QStringList, reported);
  const auto right = kernels::createCpuBackend({1, kernels::CpuPath::kPortable});
  tests::WrongBackend backend(*right, operation.toStdString());
  SelftestOptions options = smallOptions();
  options.parts = "a";
  const Outcome outcome = run(backend, options);
  QCOMPARE(outcome.isGood, reported.isEmpty());
  QCOMPARE(outcome.report["has_failed"].get<bool>(), !reported.isEmpty());
  std::set<std::string> expected;
  for (const QString& each : reported) expected.insert(each.toStdString());
  QVERIFY2(wrongOperations(outcome.report) == expected, outcome.table.c_str());
  QCOMPARE(outcome.table.find("WRONG") != std::string::npos, !reported.isEmpty());
}

void SelftestTest::aBrokenDeviceIsReported() {
#ifdef LONGHAND_EMULATED_PLUGIN
  const cuda_on_cpu::EmulatedPlugin plugin(LONGHAND_EMULATED_PLUGIN);
  BackendOptions options;
  options.backend = "cuda";
  options.cudaPlugin = plugin.file();
  const auto chosen = createBackend(options);
  plugin.failures().launch = 20;
  const Outcome outcome = run(*chosen.backend, smallOptions());
  QVERIFY(!outcome.isGood);
  QVERIFY(outcome.report["has_failed"].get<bool>());
  QVERIFY(outcome.report["is_complete"].get<bool>());
  QVERIFY(outcome.table.find("FAILED") != std::string::npos);
  QVERIFY(outcome.progress.find("the device failed") != std::string::npos);
#else
  QSKIP("CUDA's headers are missing");
#endif
}

void SelftestTest::whatDoesNotFitTheMemoryIsLeftOut() {
  const auto backend = kernels::createCpuBackend({.threads = 2});
  SelftestOptions options = smallOptions();
  options.parts = "c";
  options.depths = {0, 1'000'000'000};
  options.prefillTokens = 0;
  const Outcome outcome = run(*backend, options);
  QVERIFY(outcome.isGood);
  QVERIFY(outcome.report["decode"].size() >= 5);
  QVERIFY(outcome.report["left_out"].size() >= 1);
  QVERIFY(outcome.table.find("Left out") != std::string::npos);
}

void SelftestTest::aPromptMayBeLongerThanTheDeepestDepth() {
  const auto backend = kernels::createCpuBackend({.threads = 2});
  SelftestOptions options = smallOptions();
  options.parts = "c";
  options.depths = {0};
  options.prefillTokens = 100;
  const Outcome outcome = run(*backend, options);
  QVERIFY(outcome.isGood);
  QVERIFY(outcome.report["is_complete"].get<bool>());
  QVERIFY(!outcome.report["prefill"].empty());
}

void SelftestTest::whatDoesNotFitTheBudgetIsLeftOut() {
  const auto backend = kernels::createCpuBackend({.threads = 2});
  SelftestOptions options = smallOptions();
  options.parts = "bc";
  options.budgetSeconds = 0.2;
  options.secondsEach = 0.05;
  const Outcome outcome = run(*backend, options);
  QVERIFY(outcome.isGood);
  QVERIFY(outcome.report["is_complete"].get<bool>());
  QVERIFY(outcome.report["left_out"].size() >= 10);
  QVERIFY(!outcome.report.contains("decode"));
}

void SelftestTest::aStoppedTestLeavesWhatItHas() {
  const auto backend = kernels::createCpuBackend({.threads = 2});
  std::stop_source source;
  source.request_stop();
  QVERIFY_THROWS_EXCEPTION(Error, run(*backend, smallOptions(), source.get_token()));
  const json report = readJson(folder_->filePath("report.json").toStdString());
  QCOMPARE(report["kernels"].size(), std::size_t{1});
  QCOMPARE(report["is_complete"].get<bool>(), false);
}

void SelftestTest::aFileThatCannotBeWrittenIsRefusedAtOnce() {
  const auto backend = kernels::createCpuBackend({.threads = 1});
  SelftestOptions options = smallOptions();
  const std::filesystem::path folder = folder_->path().toStdString();
  std::filesystem::create_symlink("/dev/null", folder / "link");  // a device must stay one
  for (const std::filesystem::path& file : {folder / "none" / "report.json", folder / "link"}) {
    options.jsonFile = file;
    std::ostringstream table;
    try {
      runSelftest(*backend, options, table, table, {});
      QFAIL("was not refused");
    } catch (const Error& error) {
      QCOMPARE(error.code(), ErrorCode::kFileUnwritable);
    }
    QVERIFY(table.str().empty());
  }
  QVERIFY(std::filesystem::is_character_file(folder / "link"));
}

void SelftestTest::theProgramSaysWhyThereIsNoDevice() {
  QProcess process;
  process.start(LONGHAND_SELFTEST, {"--cuda-plugin", "/nonexistent/liblonghand_cuda.so"});
  QVERIFY(process.waitForFinished());
  QCOMPARE(process.exitStatus(), QProcess::NormalExit);
  QCOMPARE(process.exitCode(), 1);
  const QByteArray said = process.readAllStandardError();
  QCOMPARE(said.count('\n'), 1);
  QVERIFY2(said.contains("There is no CUDA plug-in"), said.constData());
  QVERIFY(process.readAllStandardOutput().isEmpty());
}

QTEST_GUILESS_MAIN(SelftestTest)
#include "selftest_test.moc"
