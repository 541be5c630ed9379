// The settings panel alone: what it shows, what can be entered, when Apply is possible.
#include "ui/settings/settings_panel.h"

#include <QCheckBox>
#include <QComboBox>
#include <QDoubleSpinBox>
#include <QLabel>
#include <QLineEdit>
#include <QPushButton>
#include <QSignalSpy>
#include <QSpinBox>
#include <QTest>

using namespace Qt::StringLiterals;
using namespace longhand;
using ui::SettingsPanel;
using ui::SettingsValues;

namespace {

SettingsValues exampleValues() {
  SettingsValues values;
  values.cache.keyNbits = 4;
  values.cache.valueNbits = 2;
  values.cache.groupSize = 32;
  values.cache.residualLength = 128;
  values.cache.sinkLength = 8;
  values.sampler.temperature = 0.55;
  values.sampler.topK = 25;
  values.sampler.topP = 0.9;
  values.sampler.minP = 0.05;
  values.sampler.repetitionPenalty = 1.1;
  values.sampler.seed = 1234567890123456789ULL % 1000000000000000000ULL;
  values.contextLength = 1536;
  values.maxTokens = 200;
  values.threads = 2;
  values.keepsSessions = true;
  values.sessionQuotaBytes = qint64{20} << 30;
  return values;
}

}  // namespace

class SettingsPanelTest final : public QObject {
  Q_OBJECT

 private:
  template <typename Widget>
  Widget* child(const QString& name) {
    auto* widget = panel_->findChild<Widget*>(name);
    if (widget == nullptr) qFatal("no child named %s", qPrintable(name));
    return widget;
  }

  std::unique_ptr<SettingsPanel> panel_;

 private slots:
  void init() {
    panel_ = std::make_unique<SettingsPanel>(nullptr);
    panel_->setLimits({2048, 4, 2});
    panel_->setValues(exampleValues());
  }

  void whatIsSetIsShownAndComesBack() {
    const SettingsValues shown = panel_->values();
    QVERIFY(shown.cache == exampleValues().cache);
    QVERIFY(shown.sampler == exampleValues().sampler);
    QCOMPARE(shown.contextLength, exampleValues().contextLength);
    QCOMPARE(shown.maxTokens, exampleValues().maxTokens);
    QCOMPARE(shown.threads, exampleValues().threads);
    QVERIFY(!panel_->isEdited());
    QVERIFY(!child<QPushButton>(u"settingsApplyButton"_s)->isEnabled());
  }

  void anEditCanBeAppliedOrReset() {
    child<QSpinBox>(u"sinkLengthField"_s)->setValue(16);
    QVERIFY(panel_->isEdited());
    QSignalSpy applied(panel_.get(), &SettingsPanel::applyRequested);
    child<QPushButton>(u"settingsApplyButton"_s)->click();
    QCOMPARE(applied.count(), 1);

    child<QPushButton>(u"settingsResetButton"_s)->click();
    QVERIFY(panel_->values() == exampleValues());
  }

  void aForecastIsAskedForOnceAfterManyEdits() {
    QTest::qWait(250);  // the timer that setValues started
    QSignalSpy edited(panel_.get(), &SettingsPanel::edited);
    for (int i = 0; i < 20; ++i) child<QSpinBox>(u"topKField"_s)->setValue(i);
    QVERIFY(edited.wait(1000));
    QCOMPARE(edited.count(), 1);
  }

  void whatIsNotEditedFollowsThePresetInUse() {
    child<QSpinBox>(u"topKField"_s)->setValue(7);
    SettingsValues next = exampleValues();
    next.cache.keyNbits = 8;
    next.cache.valueNbits = 8;
    next.cache.residualLength = 64;
    panel_->followValues(next);  // the preset was switched meanwhile
    QCOMPARE(child<QComboBox>(u"keyNbitsChoice"_s)->currentText(), u"8 bits"_s);
    QCOMPARE(panel_->values().sampler.topK, 7);
    QVERIFY(panel_->values().cache == next.cache);
    QVERIFY(panel_->isEdited());
    child<QPushButton>(u"settingsResetButton"_s)->click();
    QVERIFY(panel_->values() == next);
  }

  void thousandsAreGroupedAsEverywhere() {
    QCOMPARE(child<QSpinBox>(u"contextLengthField"_s)->text(), u"1,536"_s);
  }

  void typingAContextLeavesTheLongestAnswerAlone() {
    auto* context = child<QSpinBox>(u"contextLengthField"_s);
    context->selectAll();
    QTest::keyClicks(context, u"8192"_s);
    QCOMPARE(panel_->values().contextLength, 8192);
    QCOMPARE(panel_->values().maxTokens, exampleValues().maxTokens);
  }

  void theDemonstrationModelIsShownAsGreedyAndKeepsTheSamplingOfOthers() {
    panel_->setLimits({2048, 4, 2, true});
    QVERIFY(child<QCheckBox>(u"greedyCheck"_s)->isChecked());
    QVERIFY(!child<QCheckBox>(u"greedyCheck"_s)->isEnabled());
    QVERIFY(!child<QDoubleSpinBox>(u"temperatureField"_s)->isEnabled());
    QVERIFY(child<QLabel>(u"greedyHint"_s)->text().contains(u"demonstration"_s));
    QVERIFY(!panel_->isEdited());
    QVERIFY(panel_->values().sampler == exampleValues().sampler);
  }

  void whatDoesNotFitCannotBeApplied() {
    child<QSpinBox>(u"contextLengthField"_s)->setValue(500000);
    panel_->setForecast(u"This needs 90 GiB of 16 GiB."_s, false);
    QVERIFY(!child<QPushButton>(u"settingsApplyButton"_s)->isEnabled());
    panel_->setForecast(u"This needs 9 GiB of 16 GiB."_s, true);
    QVERIFY(child<QPushButton>(u"settingsApplyButton"_s)->isEnabled());
    QCOMPARE(child<QLabel>(u"settingsForecast"_s)->text(), u"This needs 9 GiB of 16 GiB."_s);
  }

  void chatsAreKeptOnDiskInSoManyGibibytesOrNotAtAll() {
    auto* quota = child<QSpinBox>(u"sessionQuotaField"_s);
    QCOMPARE(quota->value(), 20);
    quota->setValue(50);
    QCOMPARE(panel_->values().sessionQuotaBytes, qint64{50} << 30);
    child<QCheckBox>(u"keepsSessionsCheck"_s)->setChecked(false);
    QVERIFY(!panel_->values().keepsSessions);
    QVERIFY(!quota->isEnabled());
    QVERIFY(panel_->isEdited());
  }

  void sixteenBitsHaveNoGroups() {
    child<QComboBox>(u"keyNbitsChoice"_s)->setCurrentText(u"16 bits"_s);
    QVERIFY(child<QComboBox>(u"groupSizeChoice"_s)->isEnabled());  // values still have 2 bits
    child<QComboBox>(u"valueNbitsChoice"_s)->setCurrentText(u"16 bits"_s);
    QVERIFY(!child<QComboBox>(u"groupSizeChoice"_s)->isEnabled());
    QVERIFY(!child<QSpinBox>(u"residualLengthField"_s)->isEnabled());
    panel_->values().cache.validate();
  }

  void finerFirstLayersNeedCoarserOthers() {
    QVERIFY(child<QSpinBox>(u"firstLayersField"_s)->isEnabled());
    child<QSpinBox>(u"firstLayersField"_s)->setValue(3);
    QCOMPARE(panel_->values().cache.firstLayers, 3);
    child<QComboBox>(u"valueNbitsChoice"_s)->setCurrentText(u"8 bits"_s);
    QVERIFY(!child<QSpinBox>(u"firstLayersField"_s)->isEnabled());
    QCOMPARE(panel_->values().cache.firstLayers, 0);
  }

  void greedyNeedsNoSampling() {
    child<QCheckBox>(u"greedyCheck"_s)->setChecked(true);
    QVERIFY(panel_->values().sampler.isGreedy());
    QVERIFY(!child<QDoubleSpinBox>(u"temperatureField"_s)->isEnabled());
    QVERIFY(!child<QLineEdit>(u"seedField"_s)->isEnabled());
    child<QCheckBox>(u"greedyCheck"_s)->setChecked(false);
    QVERIFY(panel_->values().sampler == exampleValues().sampler);
  }

  void aContextBeyondTrainingIsAWarning() {
    const auto* hint = child<QLabel>(u"contextHint"_s);
    QVERIFY(!hint->text().contains(u"worse"_s));
    child<QSpinBox>(u"contextLengthField"_s)->setValue(4096);
    QVERIFY2(hint->text().contains(u"2,048"_s) && hint->text().contains(u"worse"_s),
             qPrintable(hint->text()));
  }

  void everyCombinationThatCanBeEnteredIsValid() {
    for (const QString& key : {u"16 bits"_s, u"8 bits"_s, u"4 bits"_s, u"2 bits"_s}) {
      for (const QString& value : {u"16 bits"_s, u"8 bits"_s, u"4 bits"_s, u"2 bits"_s}) {
        for (int group = 0; group < 3; ++group) {
          for (const int extreme : {0, 1 << 30}) {  // the fields clip to their range
            child<QComboBox>(u"keyNbitsChoice"_s)->setCurrentText(key);
            child<QComboBox>(u"valueNbitsChoice"_s)->setCurrentText(value);
            child<QComboBox>(u"groupSizeChoice"_s)->setCurrentIndex(group);
            for (const QString& field : {u"residualLengthField"_s, u"sinkLengthField"_s,
                                         u"firstLayersField"_s, u"topKField"_s}) {
              child<QSpinBox>(field)->setValue(extreme);
            }
            for (const QString& field : {u"temperatureField"_s, u"topPField"_s, u"minPField"_s,
                                         u"repetitionPenaltyField"_s}) {
              child<QDoubleSpinBox>(field)->setValue(extreme);
            }
            panel_->values().cache.validate();  // throws for values out of range
            panel_->values().sampler.validate();
          }
        }
      }
    }
  }

  void everyControlSaysWhatItDoes() {
    int controls = 0;
    for (const QWidget* control : panel_->findChildren<QWidget*>()) {
      const bool isControl = qobject_cast<const QAbstractSpinBox*>(control) != nullptr ||
                             qobject_cast<const QComboBox*>(control) != nullptr ||
                             qobject_cast<const QCheckBox*>(control) != nullptr;
      if (!isControl) continue;
      ++controls;
      QVERIFY2(!control->accessibleName().isEmpty(), qPrintable(control->objectName()));
      QVERIFY2(!control->accessibleDescription().isEmpty(), qPrintable(control->objectName()));
      QVERIFY2(!control->objectName().isEmpty(), qPrintable(control->accessibleName()));
    }
    QCOMPARE(controls, 18);
  }
};

QTEST_MAIN(SettingsPanelTest)
#include "settings_panel_test.moc"
