// Presets and settings in the real window.
#include <QComboBox>
#include <QLabel>
#include <QPushButton>
#include <QSignalSpy>
#include <QSpinBox>

#include "ui/memory/memory_strip.h"
#include "window_harness.h"

using namespace Qt::StringLiterals;
using namespace longhand;
using namespace longhand::tests;

class MainWindowPresetTest final : public WindowTest {
  Q_OBJECT

 private:
  QComboBox& chooser() { return harness_->find<QComboBox>(u"presetChooser"_s); }
  QString label(const QString& name) { return harness_->find<QLabel>(name).text(); }
  quint64 kvBytesShown() {
    const engine::MemoryUse& use = harness_->find<ui::MemoryStrip>(u"memoryStrip"_s).data().use;
    return use[engine::MemoryCategory::kKvCodes] + use[engine::MemoryCategory::kKvScales] +
           use[engine::MemoryCategory::kKvExact];
  }
  void choosePreset(const QString& id) {
    chooser().setCurrentIndex(chooser().findData(id));
    emit chooser().activated(chooser().currentIndex());
  }
  void startChat() {
    QVERIFY(harness_->useSampleDocument());
    QCOMPARE(harness_->answerTo(questions_[0].question), questions_[0].answer);
  }

 private slots:
  void everyPresetIsOfferedWithItsDescription() {
    const std::vector<app::PresetInfo> presets = harness_->controller().presets();
    QCOMPARE(chooser().count(), static_cast<int>(presets.size()));
    for (int i = 0; i < chooser().count(); ++i) {
      const app::PresetInfo& preset = presets[static_cast<std::size_t>(i)];
      QCOMPARE(chooser().itemText(i), preset.name);
      QVERIFY(chooser().itemData(i, Qt::ToolTipRole).toString().contains(preset.description));
    }
    QCOMPARE(chooser().currentText(), u"Quality"_s);
    QCOMPARE(chooser().itemText(chooser().count() - 1), u"Custom"_s);
  }

  void anEmptyChatSwitchesAtOnce() {
    choosePreset(u"balanced"_s);
    QTRY_COMPARE(harness_->controller().currentPreset(), u"balanced"_s);
    QVERIFY(!harness_->isShown(u"presetBar"_s));
    QTRY_COMPARE(chooser().currentText(), u"Balanced"_s);
  }

  void switchingStatesItsCostFirstAndKeepsTheChat() {
    startChat();
    choosePreset(u"memory-limit"_s);
    QVERIFY(harness_->isShown(u"presetBar"_s));
    const QString cost = label(u"presetBarHint"_s);
    QVERIFY2(cost.contains(u" now, "_s) && cost.contains(u"converted in place"_s),
             qPrintable(cost));
    QCOMPARE(harness_->controller().currentPreset(), u"quality"_s);  // nothing has happened yet

    QSignalSpy switched(&harness_->controller(), &app::ChatController::presetSwitched);
    harness_->click(u"presetBarAction"_s);
    QVERIFY(switched.count() == 1 || switched.wait(kPatienceMs));
    QVERIFY(!harness_->isShown(u"presetBar"_s));
    QVERIFY(harness_->waitUntilIdle());
    QCOMPARE(harness_->controller().currentPreset(), u"memory-limit"_s);
    QCOMPARE(chooser().currentText(), u"Memory limit"_s);
    QCOMPARE(harness_->controller().messages().size(), std::size_t{2});
    QCOMPARE(harness_->answerTo(questions_[1].question), questions_[1].answer);
    QCOMPARE(harness_->controller().messages().size(), std::size_t{4});
  }

  void fewerBitsNeedLessMemory() {
    startChat();
    QSignalSpy read(&harness_->controller(), &app::ChatController::prefillFinished);
    choosePreset(u"exact"_s);
    harness_->click(u"presetBarAction"_s);
    // What was read with fewer bits keeps them, until it is read again.
    QTRY_COMPARE_WITH_TIMEOUT(harness_->find<QAbstractButton>(u"presetBarAction"_s).text(),
                              u"Read again"_s, kPatienceMs);
    QCOMPARE(harness_->controller().currentPreset(), u"exact"_s);
    harness_->click(u"presetBarAction"_s);
    QTRY_COMPARE_WITH_TIMEOUT(read.size(), 1, kPatienceMs);
    QTRY_VERIFY_WITH_TIMEOUT(harness_->controller().memory().cachedTokens > 1200, kPatienceMs);
    QVERIFY(harness_->waitUntilIdle());
    QTRY_VERIFY(kvBytesShown() > 0);
    const quint64 exact = kvBytesShown();

    choosePreset(u"memory-limit"_s);
    harness_->click(u"presetBarAction"_s);
    QTRY_COMPARE_WITH_TIMEOUT(harness_->controller().currentPreset(), u"memory-limit"_s,
                              kPatienceMs);
    QVERIFY(harness_->waitUntilIdle());
    QTRY_VERIFY_WITH_TIMEOUT(harness_->controller().memory().cachedTokens > 1200, kPatienceMs);
    QTRY_VERIFY2_WITH_TIMEOUT(kvBytesShown() * 2 < exact,
                              qPrintable(u"%1 of %2"_s.arg(kvBytesShown()).arg(exact)),
                              kPatienceMs);
  }

  void theQuestionCanBeDeclined() {
    startChat();
    QTest::keyClick(&harness_->window(), Qt::Key_5, Qt::AltModifier);
    QVERIFY(harness_->isShown(u"presetBar"_s));
    QTest::keyClick(&harness_->find<QWidget>(u"presetBarAction"_s), Qt::Key_Escape);
    QVERIFY(!harness_->isShown(u"presetBar"_s));
    QCOMPARE(harness_->controller().currentPreset(), u"quality"_s);
    QCOMPARE(chooser().currentText(), u"Quality"_s);
  }

  void altAndANumberChooseAPreset() {
    QTest::keyClick(&harness_->window(), Qt::Key_2, Qt::AltModifier);
    QTRY_COMPARE(chooser().currentText(), u"Throughput"_s);
  }

  void customOpensTheSettings() {
    choosePreset(u"custom"_s);
    QVERIFY(harness_->isShown(u"settingsPanel"_s));
    QCOMPARE(chooser().currentText(), u"Quality"_s);
  }

  void appliedSettingsMakeThePresetCustomAndTheNextAnswerIsRight() {
    startChat();
    QTest::keyClick(&harness_->window(), Qt::Key_Comma, Qt::ControlModifier);
    QVERIFY(harness_->isShown(u"settingsPanel"_s));
    harness_->find<QComboBox>(u"keyNbitsChoice"_s).setCurrentText(u"8 bits"_s);
    harness_->find<QComboBox>(u"groupSizeChoice"_s).setCurrentText(u"32 values"_s);
    harness_->find<QSpinBox>(u"residualLengthField"_s).setValue(64);
    // More bits cost no reading; what was read keeps the fewer it has.
    QTRY_VERIFY(label(u"settingsForecast"_s).contains(u"keep the fewer bits they have"_s));
    QVERIFY2(label(u"settingsForecast"_s).startsWith(u"This needs "_s),
             qPrintable(label(u"settingsForecast"_s)));

    harness_->click(u"settingsApplyButton"_s);
    QTRY_COMPARE_WITH_TIMEOUT(harness_->controller().currentPreset(), u"custom"_s, kPatienceMs);
    QVERIFY(harness_->waitUntilIdle());
    QTRY_COMPARE(chooser().currentText(), u"Custom"_s);
    const engine::KvCacheConfig config = harness_->controller().currentCacheConfig();
    QCOMPARE(config.keyNbits, 8);
    QCOMPARE(config.valueNbits, 4);
    QCOMPARE(config.groupSize, 32);
    QCOMPARE(config.residualLength, 64);
    QCOMPARE(harness_->answerTo(questions_[1].question), questions_[1].answer);
  }

  void applyKeepsThePresetThatWasSwitchedToMeanwhile() {
    harness_->click(u"settingsButton"_s);
    harness_->find<QSpinBox>(u"maxTokensField"_s).setValue(40);
    choosePreset(u"throughput"_s);
    QTRY_COMPARE(harness_->controller().currentPreset(), u"throughput"_s);
    QTRY_VERIFY(harness_->find<QPushButton>(u"settingsApplyButton"_s).isEnabled());
    harness_->click(u"settingsApplyButton"_s);
    QVERIFY(harness_->waitUntilIdle());
    QCOMPARE(harness_->controller().currentPreset(), u"throughput"_s);
    QCOMPARE(harness_->controller().settings().maxAnswerTokens, 40);
    QVERIFY(harness_->composerField().hasFocus());
  }

  void customComesBackAfterAnotherPreset() {
    harness_->click(u"settingsButton"_s);
    harness_->find<QSpinBox>(u"sinkLengthField"_s).setValue(8);
    QTRY_VERIFY(harness_->find<QPushButton>(u"settingsApplyButton"_s).isEnabled());
    harness_->click(u"settingsApplyButton"_s);
    QTRY_COMPARE(harness_->controller().currentPreset(), u"custom"_s);
    choosePreset(u"balanced"_s);
    QTRY_COMPARE(harness_->controller().currentPreset(), u"balanced"_s);
    choosePreset(u"custom"_s);
    QTRY_COMPARE(harness_->controller().currentPreset(), u"custom"_s);
    QCOMPARE(harness_->controller().currentCacheConfig().sinkLength, 8);
  }

  void aContextThatNoMemoryHoldsCannotBeApplied() {
    harness_->click(u"settingsButton"_s);
    auto& context = harness_->find<QSpinBox>(u"contextLengthField"_s);
    context.setValue(context.maximum());
    harness_->find<QComboBox>(u"keyNbitsChoice"_s).setCurrentText(u"16 bits"_s);
    harness_->find<QComboBox>(u"valueNbitsChoice"_s).setCurrentText(u"16 bits"_s);
    QTRY_VERIFY(label(u"settingsForecast"_s).startsWith(u"This needs "_s));
    const bool fits = harness_->controller().forecast(context.value()).front().fits;
    QCOMPARE(harness_->find<QPushButton>(u"settingsApplyButton"_s).isEnabled(), fits);
  }
};

QTEST_MAIN(MainWindowPresetTest)
#include "main_window_preset_test.moc"
