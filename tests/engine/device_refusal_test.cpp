// Each reason why there is no graphics card to compute on: one sentence, and the CPU instead.

#include <dlfcn.h>
#include <elf.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <string>

#include <QFile>
#include <QProcess>
#include <QTemporaryDir>
#include <QtTest>

#include "engine/backend_factory.h"
#include "engine/cache/presets.h"
#include "engine/engine.h"
#include "tests/cuda_on_cpu/emulated_plugin.h"
#include "tests/cuda_on_cpu/nvml_stub.h"
#include "tests/engine/engine_harness.h"
#include "tests/support/paths.h"

using namespace longhand;
using namespace longhand::engine;

namespace {

constexpr std::size_t kGiB = std::size_t{1} << 30U;

using Prepare = std::function<void(cuda_on_cpu::EmulatedDevice&)>;

/// Bytes of a library that the loader maps; what is behind them are symbols for a debugger.
qsizetype mappedBytes(const QByteArray& library) {
  Elf64_Ehdr header{};
  std::memcpy(&header, library.constData(), sizeof header);
  qsizetype end = 0;
  for (int i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment{};
    const qsizetype offset = static_cast<qsizetype>(header.e_phoff) + i * qsizetype{sizeof segment};
    std::memcpy(&segment, library.constData() + offset, sizeof segment);
    if (segment.p_type != PT_LOAD) continue;
    end = std::max(end, static_cast<qsizetype>(segment.p_offset + segment.p_filesz));
  }
  return end;
}

/// Why `auto` takes the CPU; empty when it does not.
QString reasonWith(const std::string& plugin) {
  const ChosenBackend chosen = createBackend({1, "auto", "auto", plugin});
  if (!chosen.backend->usesHostMemory()) return {};
  return QString::fromStdString(chosen.whyNotDevice);
}

}  // namespace

Q_DECLARE_METATYPE(Prepare)

class DeviceRefusalTest : public QObject {
  Q_OBJECT
 private slots:
  void aDeviceThatWorksIsTaken();
  void anEmulatedDeviceNeverMeetsTheRealCublas();
  void anInstallationWithoutThePluginSaysSo();
  void aPluginThatIsNotThereIsNamed();
  void aFileThatIsNoPluginIsNamed();
  void aPluginThatWasCutShortIsNamed();
  void aPluginOfAnotherVersionIsRefused();
  void everyDeviceThatWillNotDoHasItsSentence_data();
  void everyDeviceThatWillNotDoHasItsSentence();
  void theDriverAddsWhatItKnows_data();
  void theDriverAddsWhatItKnows();
  void whatOthersHoldIsSaidWhereItIsKnown();
  void whoAsksForTheDeviceAloneGetsTheSentenceAsAnError();
  void aRefusedDeviceKeepsNoMemory();
  void aModelThatTheDeviceCannotHoldGoesToTheCpu();
  void theGaugeCountsTheDriversShareAsOurs();
};

void DeviceRefusalTest::aDeviceThatWorksIsTaken() {
  const cuda_on_cpu::EmulatedPlugin plugin(LONGHAND_EMULATED_PLUGIN);
  QCOMPARE(reasonWith(plugin.file()), QString());
}

void DeviceRefusalTest::anEmulatedDeviceNeverMeetsTheRealCublas() {
  const cuda_on_cpu::EmulatedPlugin plugin(LONGHAND_EMULATED_PLUGIN);
  for (const char* file : {"libcublas.so.12", "libcublas.so.13"}) {
    void* const library = dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    QVERIFY2(library != nullptr, file);
    QVERIFY2(dlsym(library, "longhandCublasState") != nullptr, file);
    dlclose(library);
  }
}

void DeviceRefusalTest::anInstallationWithoutThePluginSaysSo() {
  const QTemporaryDir folder;
  const QString program = folder.filePath(QStringLiteral("longhand-cli"));
  QVERIFY(QFile::copy(QStringLiteral(LONGHAND_CLI), program));
  QProcess process;
  process.start(program, {QStringLiteral("generate"), QStringLiteral("--model"),
                          QString::fromStdString(tests::resourcePath("longhand-demo").string()),
                          QStringLiteral("--backend"), QStringLiteral("cuda"),
                          QStringLiteral("--prompt"), QStringLiteral("Hello")});
  QVERIFY(process.waitForFinished(60000));
  const QString output = QString::fromUtf8(process.readAllStandardError());
  QVERIFY2(output.contains(
               QStringLiteral("This installation has no CUDA plug-in (liblonghand_cuda.so).")),
           qPrintable(output));
}

void DeviceRefusalTest::aPluginThatIsNotThereIsNamed() {
  QCOMPARE(reasonWith("/nowhere/plugin.so"),
           QStringLiteral("There is no CUDA plug-in /nowhere/plugin.so."));
}

void DeviceRefusalTest::aFileThatIsNoPluginIsNamed() {
  QCOMPARE(reasonWith(LONGHAND_NVML_STUB),
           QStringLiteral(LONGHAND_NVML_STUB " is no CUDA plug-in of Longhand."));
  const QTemporaryDir folder;
  QFile file(folder.filePath(QStringLiteral("text.so")));
  QVERIFY(file.open(QIODevice::WriteOnly));
  file.write("no library");
  file.close();
  const QString reason = reasonWith(file.fileName().toStdString());
  QVERIFY2(reason.startsWith(QStringLiteral("The CUDA plug-in cannot be loaded: ")),
           qPrintable(reason));
}

void DeviceRefusalTest::aPluginThatWasCutShortIsNamed() {
  QFile whole(QStringLiteral(LONGHAND_EMULATED_PLUGIN));
  QVERIFY(whole.open(QIODevice::ReadOnly));
  const QByteArray bytes = whole.readAll();
  const QTemporaryDir folder;
  // Inside of the header, of the table of segments, and of the segments.
  for (const qsizetype length :
       {qsizetype{40}, qsizetype{100}, qsizetype{5000}, mappedBytes(bytes) - 1}) {
    QFile file(folder.filePath(QStringLiteral("plugin%1.so").arg(length)));
    QVERIFY(file.open(QIODevice::WriteOnly));
    file.write(bytes.first(length));
    file.close();
    const QString reason = reasonWith(file.fileName().toStdString());
    QVERIFY2(reason.startsWith(QStringLiteral("The CUDA plug-in ")), qPrintable(reason));
    if (length < qsizetype{sizeof(Elf64_Ehdr)}) continue;  // the loader itself sees that
    QCOMPARE(
        reason,
        QStringLiteral("The CUDA plug-in %1 is damaged: its end is missing.").arg(file.fileName()));
  }
}

void DeviceRefusalTest::aPluginOfAnotherVersionIsRefused() {
  const QString reason = reasonWith(LONGHAND_STALE_PLUGIN);
  QVERIFY2(reason.startsWith(QStringLiteral(LONGHAND_STALE_PLUGIN " belongs to another version of "
                                                                  "Longhand (")),
           qPrintable(reason));
  QVERIFY2(reason.contains(QStringLiteral("compiler of last year")), qPrintable(reason));
}

void DeviceRefusalTest::everyDeviceThatWillNotDoHasItsSentence_data() {
  using cuda_on_cpu::EmulatedDevice;
  QTest::addColumn<Prepare>("prepare");
  QTest::addColumn<QString>("sentence");
  const auto row = [](const char* name, const Prepare& prepare, const char* sentence) {
    QTest::newRow(name) << prepare << QString::fromLatin1(sentence);
  };
  row(
      "no driver", [](EmulatedDevice& d) { d.settings.hasDriver = false; },
      "No NVIDIA driver is installed.");
  row(
      "driver too old", [](EmulatedDevice& d) { d.settings.driverVersion = 11040; },
      "The NVIDIA driver is too old: it supports CUDA 11.4, and Longhand needs ");
  row(
      "no device", [](EmulatedDevice& d) { d.settings.nDevices = 0; },
      "There is no NVIDIA graphics card.");
  row(
      "device too old",
      [](EmulatedDevice& d) {
        d.settings.major = 7;
        d.settings.minor = 0;
      },
      "CPU emulation is too old (compute capability 7.0): Longhand needs 7.5 or newer.");
  row(
      "too little memory", [](EmulatedDevice& d) { d.settings.otherBytes = 8 * kGiB - kGiB / 2; },
      "CPU emulation has too little memory: 0.5 GiB of 8.0 GiB are free, and Longhand needs at "
      "least 1.0 GiB.");
  row(
      "plug-in without code for it", [](EmulatedDevice& d) { d.settings.hasKernels = false; },
      "This installation's CUDA plug-in has no code for CPU emulation (compute capability 8.6).");
  row(
      "wrong results", [](EmulatedDevice& d) { d.settings.computesWrongly = true; },
      "CPU emulation failed in a first computation: its results are wrong.");
  row(
      "first kernel faults", [](EmulatedDevice& d) { d.failures.launch = 1; },
      "CPU emulation failed in a first computation: an illegal memory access was encountered.");
  row(
      "broken already",
      [](EmulatedDevice& d) {
        d.failures.isBroken = true;
        d.settings.staysBrokenAfterReset = true;
      },
      "The NVIDIA graphics card cannot be used: an illegal memory access was encountered.");
  row(
      "no room for scratch", [](EmulatedDevice& d) { d.failures.allocation = 3; },
      "CPU emulation has no memory left.");
}

void DeviceRefusalTest::everyDeviceThatWillNotDoHasItsSentence() {
  QFETCH(Prepare, prepare);
  QFETCH(QString, sentence);
  const cuda_on_cpu::EmulatedPlugin plugin(LONGHAND_EMULATED_PLUGIN);
  prepare(plugin.device());
  const QString reason = reasonWith(plugin.file());
  QVERIFY2(sentence.endsWith(' ') ? reason.startsWith(sentence) : reason == sentence,
           qPrintable(reason));
}

void DeviceRefusalTest::theDriverAddsWhatItKnows_data() {
  QTest::addColumn<int>("driverVersion");  // 0: none that CUDA knows
  QTest::addColumn<QString>("beginning");
  QTest::newRow("without its CUDA library")
      << 0 << "The NVIDIA driver 470.57.02 is installed without its CUDA library, libcuda.so.1.";
  QTest::newRow("too old") << 11040
                           << "The NVIDIA driver 470.57.02 is too old: it supports CUDA 11.4, and";
}

void DeviceRefusalTest::theDriverAddsWhatItKnows() {
  QFETCH(int, driverVersion);
  QFETCH(QString, beginning);
  const cuda_on_cpu::EmulatedPlugin plugin(LONGHAND_EMULATED_PLUGIN);
  const cuda_on_cpu::NvmlStub nvml(LONGHAND_NVML_STUB);
  plugin.settings().hasDriver = driverVersion != 0;
  plugin.settings().driverVersion = driverVersion;
  const QString reason = reasonWith(plugin.file());
  QVERIFY2(reason.startsWith(beginning), qPrintable(reason));
  QCOMPARE(nvml.state().nStarts.load(), 0);  // ended again
}

void DeviceRefusalTest::whatOthersHoldIsSaidWhereItIsKnown() {
  const cuda_on_cpu::EmulatedPlugin plugin(LONGHAND_EMULATED_PLUGIN);
  const cuda_on_cpu::NvmlStub nvml(LONGHAND_NVML_STUB);
  plugin.settings().otherBytes = 8 * kGiB - kGiB / 2;
  nvml.state().usedBytes = 7 * kGiB;
  nvml.state().ownBytes = kGiB / 2;
  QCOMPARE(reasonWith(plugin.file()),
           QStringLiteral("CPU emulation has too little memory: 0.5 GiB of 8.0 GiB are free, other "
                          "programs hold 6.5 GiB, and Longhand needs at least 1.0 GiB."));
}

void DeviceRefusalTest::whoAsksForTheDeviceAloneGetsTheSentenceAsAnError() {
  const cuda_on_cpu::EmulatedPlugin plugin(LONGHAND_EMULATED_PLUGIN);
  plugin.settings().nDevices = 0;
  try {
    createBackend({1, "auto", "cuda", plugin.file()});
    QFAIL("no error");
  } catch (const Error& error) {
    QCOMPARE(error.code(), ErrorCode::kDevice);
    QCOMPARE(QString::fromStdString(error.line()),
             QStringLiteral("There is no NVIDIA graphics card. Use the backend auto or cpu."));
  }
}

void DeviceRefusalTest::aRefusedDeviceKeepsNoMemory() {
  const cuda_on_cpu::EmulatedPlugin plugin(LONGHAND_EMULATED_PLUGIN);
  const int resets = plugin.counters().nResets;
  plugin.settings().major = 6;
  QVERIFY(!reasonWith(plugin.file()).isEmpty());
  QCOMPARE(plugin.counters().nResets.load(), resets + 1);  // the driver's share has gone, too
  QCOMPARE(plugin.counters().deviceBytes.load(), std::size_t{0});
}

void DeviceRefusalTest::aModelThatTheDeviceCannotHoldGoesToTheCpu() {
  const cuda_on_cpu::EmulatedPlugin plugin(LONGHAND_EMULATED_PLUGIN);
  EngineOptions options;
  options.backend = "auto";
  options.cudaPlugin = plugin.file();
  options.contextLength = 1 << 20;  // of 1.5 KiB a token
  plugin.settings().totalBytes = kGiB + kGiB / 4;
  const KvCacheConfig cache = presetById("throughput").cache;
  const auto engine = tests::loadEngine(tests::resourcePath("longhand-demo"), cache, options);
  QVERIFY2(QString::fromStdString(engine->whyNotDevice())
               .startsWith(QStringLiteral("CPU emulation, CUDA, compute capability 8.6: Not enough "
                                          "memory: ")),
           engine->whyNotDevice().c_str());
  QCOMPARE(plugin.counters().deviceBytes.load(), std::size_t{0});
}

void DeviceRefusalTest::theGaugeCountsTheDriversShareAsOurs() {
  const cuda_on_cpu::EmulatedPlugin plugin(LONGHAND_EMULATED_PLUGIN);
  {
    const ChosenBackend plain = createBackend({1, "auto", "cuda", plugin.file()});
    QCOMPARE(plain.backend->memoryInfo().processBytes,
             std::uint64_t{plugin.counters().deviceBytes});
  }
  const cuda_on_cpu::NvmlStub nvml(LONGHAND_NVML_STUB);
  nvml.state().ownBytes = kGiB;
  const ChosenBackend chosen = createBackend({1, "auto", "cuda", plugin.file()});
  QCOMPARE(chosen.backend->memoryInfo().processBytes, std::uint64_t{kGiB});
  nvml.state().ownBytes = 0;  // in a container: our process is not in the list
  QCOMPARE(chosen.backend->memoryInfo().processBytes, std::uint64_t{plugin.counters().deviceBytes});
}

QTEST_GUILESS_MAIN(DeviceRefusalTest)
#include "device_refusal_test.moc"
