// The settings panel alone: what it shows, what can be entered, when Apply is possible.
#include "ui/settings/settings_panel.h"

#include <QCheckBox>
#include <QComboBox>
#include <QDoubleSpinBox>
#include <QLabel>
#include <QLineEdit>
#include <QMetaProperty>
#include <QPushButton>
#include <QSignalSpy>
#include <QSpinBox>
#include <QTest>

#include "engine/base/error.h"

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

/// A new setting does not compile here: give it a row in the panel, or leave it to the presets
/// like the last of the cache's.
[[maybe_unused]] void nameEverySetting(const SettingsValues& values) {
  [[maybe_unused]] const auto& [cache, sampler, contextLength, maxTokens, threads, keepsSessions,
                                sessionQuotaBytes] = values;
  [[maybe_unused]] const auto& [keyNbits, valueNbits, groupSize, residualLength, sinkLength,
                                slidingWindow, firstLayers, firstLayersKeyNbits,
                                firstLayersValueNbits, scheme, solver, exactType] = values.cache;
  [[maybe_unused]] const auto& [temperature, topK, topP, minP, repetitionPenalty, repetitionWindow,
                                seed] = values.sampler;
}

bool isControl(const QWidget* widget) {
  const bool isPart = widget->objectName().startsWith(u"qt_"_s);
  return !isPart && (qobject_cast<const QAbstractSpinBox*>(widget) != nullptr ||
                     qobject_cast<const QComboBox*>(widget) != nullptr ||
                     qobject_cast<const QCheckBox*>(widget) != nullptr ||
                     qobject_cast<const QLineEdit*>(widget) != nullptr);
}

QVariant content(const QWidget& control) {
  return control.metaObject()->userProperty().read(&control);
}

/// Gives the control another value.
void change(QWidget& control) {
  if (auto* number = qobject_cast<QAbstractSpinBox*>(&control)) {
    const QVariant before = content(control);
    number->stepUp();
    if (content(control) == before) number->stepDown();
  }
  if (auto* check = qobject_cast<QCheckBox*>(&control)) check->toggle();
  if (auto* text = qobject_cast<QLineEdit*>(&control)) text->setText(u"4711"_s);
  if (auto* choice = qobject_cast<QComboBox*>(&control)) {
    choice->setCurrentIndex((choice->currentIndex() + 1) % choice->count());
  }
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

  std::vector<QWidget*> controls() {
    std::vector<QWidget*> result;
    for (QWidget* widget : panel_->findChildren<QWidget*>()) {
      if (isControl(widget)) result.push_back(widget);
    }
    return result;
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

  void anEditCanBeAppliedOrUndone() {
    child<QSpinBox>(u"sinkLengthField"_s)->setValue(16);
    QVERIFY(panel_->isEdited());
    QSignalSpy applied(panel_.get(), &SettingsPanel::applyRequested);
    child<QPushButton>(u"settingsApplyButton"_s)->click();
    QCOMPARE(applied.count(), 1);

    child<QPushButton>(u"settingsUndoButton"_s)->click();
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
    child<QPushButton>(u"settingsUndoButton"_s)->click();
    QVERIFY(panel_->values() == next);
  }

  void everyEditIsKeptWhenAnotherPresetOrChatComes() {
    for (QWidget* control : controls()) {
      panel_->setValues(exampleValues());
      control->setEnabled(true);
      const QVariant before = content(*control);
      change(*control);
      const QVariant edited = content(*control);
      QVERIFY2(edited != before, qPrintable(control->objectName()));
      const SettingsValues values = panel_->values();
      QVERIFY2(values != exampleValues(), qPrintable(control->objectName()));
      QVERIFY2(panel_->isEdited(), qPrintable(control->objectName()));
      panel_->setLimits({4096, 8, 2});
      panel_->followValues(exampleValues());
      QVERIFY2(content(*control) == edited, qPrintable(control->objectName()));
      QVERIFY2(panel_->values() == values, qPrintable(control->objectName()));
      child<QPushButton>(u"settingsUndoButton"_s)->click();
      QVERIFY2(content(*control) == before, qPrintable(control->objectName()));
      QVERIFY2(panel_->values() == exampleValues(), qPrintable(control->objectName()));
    }
  }

  void whatCannotBeShownExactlyIsKeptAsItIs() {
    SettingsValues exact = exampleValues();
    exact.sampler.temperature = 0.123;
    exact.sessionQuotaBytes = 1000;
    exact.threads = 64;           // set on a larger machine
    exact.cache.firstLayers = 9;  // set for a deeper model
    exact.cache.firstLayersKeyNbits = 8;
    exact.contextLength = 0;
    panel_->setValues(exact);
    QVERIFY(!panel_->isEdited());
    QVERIFY(panel_->values() == exact);
    QCOMPARE(child<QSpinBox>(u"contextLengthField"_s)->value(), 2048);
    child<QSpinBox>(u"topKField"_s)->setValue(7);
    exact.sampler.topK = 7;
    QVERIFY(panel_->values() == exact);
  }

  void defaultsAreAnEditToo() {
    SettingsValues defaults;
    defaults.cache.residualLength = 256;
    panel_->setDefaults(defaults);
    auto* button = child<QPushButton>(u"settingsDefaultsButton"_s);
    QVERIFY(button->isEnabled());
    button->click();
    QVERIFY(panel_->isEdited());
    QCOMPARE(panel_->values().cache.residualLength, 256);
    QVERIFY(panel_->values().sampler == defaults.sampler);
    QVERIFY(!button->isEnabled());
    child<QPushButton>(u"settingsUndoButton"_s)->click();
    QVERIFY(panel_->values() == exampleValues());
    QVERIFY(button->isEnabled());
  }

  void aNumberOutOfRangeIsSaid_data() {
    QTest::addColumn<QString>("field");
    QTest::addColumn<QString>("typed");
    QTest::addColumn<QString>("becomes");
    QTest::addColumn<QString>("sentence");
    QTest::newRow("5000") << u"residualLengthField"_s << u"5000"_s << u"4,096"_s
                          << u"5,000 is too much: 4,096 is the most."_s;
    QTest::newRow("99999") << u"residualLengthField"_s << u"99999"_s << u"4,096"_s
                           << u"99,999 is too much: 4,096 is the most."_s;
    QTest::newRow("beyond an int") << u"sinkLengthField"_s << u"99999999999"_s << u"4,096"_s
                                   << u"99,999,999,999 is too much: 4,096 is the most."_s;
    QTest::newRow("with a unit") << u"sessionQuotaField"_s << u"9999999"_s << u"1,048,576 GiB"_s
                                 << u"9,999,999 is too much: 1,048,576 is the most."_s;
    QTest::newRow("a real") << u"minPField"_s << u"1.5"_s << u"1.00"_s
                            << u"1.50 is too much: 1.00 is the most."_s;
    QTest::newRow("too little") << u"contextLengthField"_s << u"5"_s << u"64"_s
                                << u"5 is too little: 64 is the least."_s;
    QTest::newRow("layers of the model")
        << u"firstLayersField"_s << u"12"_s << u"4"_s << u"12 is too much: 4 is the most."_s;
  }

  void aNumberOutOfRangeIsSaid() {
    QFETCH(const QString, field);
    QFETCH(const QString, typed);
    QFETCH(const QString, becomes);
    QFETCH(const QString, sentence);
    auto* box = child<QAbstractSpinBox>(field);
    const QString hint = box->accessibleDescription();
    box->selectAll();
    QTest::keyClicks(box, typed);
    QTest::keyClick(box, Qt::Key_Return);
    QCOMPARE(box->text(), becomes);
    QCOMPARE(box->accessibleDescription(), sentence);
    bool isShown = false;
    for (const QLabel* label : panel_->findChildren<QLabel*>()) {
      isShown = isShown || label->text() == sentence;
    }
    QVERIFY(isShown);
    child<QPushButton>(u"settingsUndoButton"_s)->click();
    QCOMPARE(box->accessibleDescription(), hint);
  }

  void aSeedHas64Bits() {
    auto* seed = child<QLineEdit>(u"seedField"_s);
    seed->selectAll();
    QTest::keyClicks(seed, u"18446744073709551615"_s);
    QCOMPARE(panel_->values().sampler.seed, ~std::uint64_t{0});
    QTest::keyClicks(seed, u"0"_s);
    QVERIFY(seed->accessibleDescription().contains(u"18,446,744,073,709,551,615 is the most"_s));
    QCOMPARE(panel_->values().sampler.seed, ~std::uint64_t{0});
    QTest::keyClick(seed, Qt::Key_Return);
    QCOMPARE(seed->text(), u"18446744073709551615"_s);
  }

  void theLimitsAreThoseOfTheEngine() {
    const auto isRefused = [](const auto& config) {
      try {
        config.validate();
        return false;
      } catch (const engine::Error&) {
        return true;
      }
    };
    for (const auto& [field, member] :
         {std::pair{u"residualLengthField"_s, &engine::KvCacheConfig::residualLength},
          std::pair{u"sinkLengthField"_s, &engine::KvCacheConfig::sinkLength},
          std::pair{u"slidingWindowField"_s, &engine::KvCacheConfig::slidingWindow}}) {
      engine::KvCacheConfig config;
      config.*member = child<QSpinBox>(field)->maximum();
      QVERIFY2(!isRefused(config), qPrintable(field));
      ++(config.*member);
      QVERIFY2(isRefused(config), qPrintable(field));
    }
    for (const auto& [field, member] :
         {std::pair{u"temperatureField"_s, &engine::SamplerConfig::temperature},
          std::pair{u"topPField"_s, &engine::SamplerConfig::topP},
          std::pair{u"minPField"_s, &engine::SamplerConfig::minP},
          std::pair{u"repetitionPenaltyField"_s, &engine::SamplerConfig::repetitionPenalty}}) {
      engine::SamplerConfig config;
      config.*member = child<QDoubleSpinBox>(field)->maximum();
      QVERIFY2(!isRefused(config), qPrintable(field));
      config.*member += 0.01;
      QVERIFY2(isRefused(config), qPrintable(field));
    }
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
    for (const QWidget* control : controls()) {
      QVERIFY2(!control->accessibleName().isEmpty(), qPrintable(control->objectName()));
      QVERIFY2(!control->accessibleDescription().isEmpty(), qPrintable(control->objectName()));
      QVERIFY2(!control->objectName().isEmpty(), qPrintable(control->accessibleName()));
    }
    QCOMPARE(controls().size(), std::size_t{19});
  }
};

QTEST_MAIN(SettingsPanelTest)
#include "settings_panel_test.moc"
