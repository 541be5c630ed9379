// What the window says about the graphics card: why there is none, and that it has failed.

#include <memory>

#include <QLabel>
#include <QSpinBox>
#include <QTemporaryDir>
#include <QtTest>

#include "tests/cuda_on_cpu/emulated_plugin.h"
#include "tests/ui/window/window_harness.h"
#include "ui/style/format.h"

using namespace longhand;
using namespace Qt::StringLiterals;

class MainWindowDeviceTest : public QObject {
  Q_OBJECT
 private slots:
  void saysOnWhatItComputes();
  void saysWhyItDoesNotComputeOnAGraphicsCard();
  void saysInOneSentenceThatTheCardHasFailed();
  void theSettingsCountWhatTheCardsBackendHolds();
};

void MainWindowDeviceTest::saysOnWhatItComputes() {
  const cuda_on_cpu::EmulatedPlugin plugin(LONGHAND_EMULATED_PLUGIN);
  const QTemporaryDir folder;
  tests::WindowHarness window(folder.path(), QString::fromStdString(plugin.file()));
  QVERIFY(window.start());
  const auto& device = window.find<QLabel>(u"statusDevice"_s);
  QCOMPARE(device.text(), u"CPU emulation, CUDA, compute capability 8.6"_s);
  QCOMPARE(device.toolTip(), QString());
  QVERIFY(!window.isShown(u"statusWhyNotDevice"_s));
  QCOMPARE(window.find<QLabel>(u"settingsDevice"_s).text(), device.text() + u'.');
}

void MainWindowDeviceTest::saysWhyItDoesNotComputeOnAGraphicsCard() {
  const cuda_on_cpu::EmulatedPlugin plugin(LONGHAND_EMULATED_PLUGIN);
  plugin.settings().hasDriver = false;
  const QTemporaryDir folder;
  tests::WindowHarness window(folder.path(), QString::fromStdString(plugin.file()));
  QVERIFY(window.start());
  const auto& device = window.find<QLabel>(u"statusDevice"_s);
  QVERIFY(device.text().startsWith(u"CPU"_s));
  QCOMPARE(device.toolTip(), u"No NVIDIA driver is installed."_s);
  QCOMPARE(device.accessibleDescription(), device.toolTip());

  QVERIFY(!window.isShown(u"settingsPanel"_s));
  QVERIFY(window.isShown(u"statusWhyNotDevice"_s));
  window.click(u"statusWhyNotDevice"_s);
  QVERIFY(window.isShown(u"settingsPanel"_s));
  const auto& reason = window.find<QLabel>(u"settingsDevice"_s);
  QCOMPARE(reason.text(), device.text() +
                              u".\nNo graphics card is used: No NVIDIA driver is "
                              "installed."_s);
  // In sight, not only somewhere on the page.
  QTRY_COMPARE(reason.visibleRegion().boundingRect(), reason.rect());
}

void MainWindowDeviceTest::saysInOneSentenceThatTheCardHasFailed() {
  const cuda_on_cpu::EmulatedPlugin plugin(LONGHAND_EMULATED_PLUGIN);
  const QTemporaryDir folder;
  tests::WindowHarness window(folder.path(), QString::fromStdString(plugin.file()));
  QVERIFY(window.start());
  plugin.settings().nDevices = 1;
  plugin.settings().staysBrokenAfterReset = true;
  plugin.failures().launch = 100;
  QVERIFY(!window.answerTo(u"Who keeps the green ledger?"_s).isEmpty());
  QVERIFY(window.isShown(u"noticeBar"_s));
  QVERIFY(!window.isShown(u"errorBar"_s));
  const auto& device = window.find<QLabel>(u"statusDevice"_s);
  QVERIFY2(device.toolTip().endsWith(u": the CPU goes on."_s), qPrintable(device.toolTip()));
  QVERIFY(!device.text().startsWith(u"CPU emulation"_s));
  const auto& bar = window.find<QWidget>(u"noticeBar"_s);
  QStringList texts;
  for (const QLabel* label : bar.findChildren<QLabel*>()) texts.append(label->text());
  QVERIFY2(texts.join(u' ').contains(device.toolTip()), qPrintable(texts.join(u' ')));
}

void MainWindowDeviceTest::theSettingsCountWhatTheCardsBackendHolds() {
  const cuda_on_cpu::EmulatedPlugin plugin(LONGHAND_EMULATED_PLUGIN);
  const QTemporaryDir folder;
  tests::WindowHarness window(folder.path(), QString::fromStdString(plugin.file()));
  QVERIFY(window.start());
  app::ChatController& controller = window.controller();
  QTRY_VERIFY(controller.memory().backend.deviceBytes > 0);
  window.click(u"settingsButton"_s);
  window.find<QSpinBox>(u"maxTokensField"_s).setValue(100);  // asks for a forecast
  const qint64 context = controller.contextState().contextLength;
  for (const app::PresetForecast& forecast : controller.forecast(context)) {
    if (forecast.preset.id != controller.currentPreset()) continue;
    const QString need = u"This needs %1 of "_s.arg(ui::formatBytes(forecast.use.total()));
    const auto& label = window.find<QLabel>(u"settingsForecast"_s);
    QTRY_VERIFY2(label.text().startsWith(need), qPrintable(label.text() + u" not "_s + need));
  }
}

QTEST_MAIN(MainWindowDeviceTest)
#include "main_window_device_test.moc"
