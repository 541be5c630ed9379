// The settings panel in the real window: every control is applied, in use, and still so after a
// restart; what applying costs; what becomes of edits; the way back to the defaults. The controls
// are found by walking the panel, so that none is forgotten.
#include <QCheckBox>
#include <QComboBox>
#include <QDoubleSpinBox>
#include <QLabel>
#include <QLineEdit>
#include <QMetaProperty>
#include <QPushButton>
#include <QSignalSpy>
#include <QSpinBox>

#include "engine/cache/presets.h"
#include "tests/app/plain_model.h"
#include "window_harness.h"

using namespace Qt::StringLiterals;
using namespace longhand;
using namespace longhand::tests;

namespace {

/// What a control stands for, asked of the controller and not by way of the panel; nothing for a
/// control that is not named here: give it its line.
QVariant inUse(const app::ChatController& controller, const QString& control) {
  const engine::KvCacheConfig cache = controller.currentCacheConfig();
  const app::Settings& settings = controller.settings();
  const engine::SamplerConfig& sampler = settings.sampler;
  const QHash<QString, QVariant> values = {
      {u"keyNbitsChoice"_s, u"%1 bits"_s.arg(cache.keyNbits)},
      {u"valueNbitsChoice"_s, u"%1 bits"_s.arg(cache.valueNbits)},
      {u"firstLayersField"_s, cache.firstLayers},
      {u"groupSizeChoice"_s, u"%1 values"_s.arg(cache.groupSize)},
      {u"residualLengthField"_s, qlonglong{cache.residualLength}},
      {u"sinkLengthField"_s, qlonglong{cache.sinkLength}},
      {u"slidingWindowField"_s, qlonglong{cache.slidingWindow}},
      {u"contextLengthField"_s, qlonglong{controller.contextState().contextLength}},
      {u"maxTokensField"_s, qlonglong{settings.maxAnswerTokens}},
      {u"threadsField"_s, settings.threads},
      {u"greedyCheck"_s, sampler.isGreedy()},
      {u"temperatureField"_s, sampler.temperature},
      {u"topKField"_s, sampler.topK},
      {u"topPField"_s, sampler.topP},
      {u"minPField"_s, sampler.minP},
      {u"repetitionPenaltyField"_s, sampler.repetitionPenalty},
      {u"seedField"_s, QString::number(sampler.seed)},
      {u"keepsSessionsCheck"_s, settings.keepsSessions},
      {u"sessionQuotaField"_s, qlonglong{settings.sessionQuotaBytes >> 30}},
  };
  return values.value(control);
}

bool isControl(const QWidget* widget) {
  const bool isPart = widget->objectName().startsWith(u"qt_"_s);
  return !isPart && (qobject_cast<const QAbstractSpinBox*>(widget) != nullptr ||
                     qobject_cast<const QComboBox*>(widget) != nullptr ||
                     qobject_cast<const QCheckBox*>(widget) != nullptr ||
                     qobject_cast<const QLineEdit*>(widget) != nullptr);
}

/// The value, text or state of any control.
QString content(const QWidget& control) {
  return control.metaObject()->userProperty().read(&control).toString();
}

/// Gives the control another value.
void change(QWidget& control) {
  const auto another = [](auto& box) {
    const bool isUp = box.value() + box.singleStep() <= box.maximum();
    box.setValue(isUp ? box.value() + box.singleStep() : box.value() - box.singleStep());
  };
  if (auto* count = qobject_cast<QSpinBox*>(&control)) another(*count);
  if (auto* number = qobject_cast<QDoubleSpinBox*>(&control)) another(*number);
  if (auto* check = qobject_cast<QCheckBox*>(&control)) check->toggle();
  if (auto* text = qobject_cast<QLineEdit*>(&control)) text->setText(u"4711"_s);
  if (auto* choice = qobject_cast<QComboBox*>(&control)) {
    // Fewest bits first: what depends on them can be set then.
    const int last = choice->count() - 1;
    choice->setCurrentIndex(choice->currentIndex() == last ? 0 : last);
  }
}

}  // namespace

class MainWindowSettingsTest final : public WindowTest {
  Q_OBJECT

 private:
  QString label(const QString& name) { return harness_->find<QLabel>(name).text(); }
  QSpinBox& count(const QString& name) { return harness_->find<QSpinBox>(name); }
  void choosePreset(const QString& id) {
    auto& chooser = harness_->find<QComboBox>(u"presetChooser"_s);
    chooser.setCurrentIndex(chooser.findData(id));
    emit chooser.activated(chooser.currentIndex());
  }
  void startChat() {
    QVERIFY(harness_->useSampleDocument());
    QCOMPARE(harness_->answerTo(questions_[0].question), questions_[0].answer);
  }
  /// The bundled model is always greedy: with it not every control can be changed.
  void loadPlainModel() {
    QSignalSpy loaded(&harness_->controller(), &app::ChatController::modelLoaded);
    harness_->controller().loadModel(makePlainModel(folder_->path()), engine::WeightFormat::kAuto);
    QVERIFY(loaded.count() > 0 || loaded.wait(kPatienceMs));
    QVERIFY(harness_->waitUntilIdle());
  }
  void restart() {
    harness_->quit();
    harness_ = std::make_unique<WindowHarness>(dataFolder());
    QVERIFY(harness_->start());
  }
  std::vector<QWidget*> controls() {
    std::vector<QWidget*> result;
    for (QWidget* widget : harness_->find<QWidget>(u"settingsPanel"_s).findChildren<QWidget*>()) {
      if (isControl(widget)) result.push_back(widget);
    }
    return result;
  }
  void apply() {
    auto& button = harness_->find<QPushButton>(u"settingsApplyButton"_s);
    QTRY_VERIFY(button.isEnabled());
    harness_->click(u"settingsApplyButton"_s);
    QVERIFY(harness_->waitUntilIdle());
    QTRY_VERIFY(!button.isEnabled());
  }
  /// Each control shows what the controller says, and that is what was applied.
  void checkInUse(const QHash<QString, QString>& applied) {
    for (const QWidget* control : controls()) {
      const QString name = control->objectName();
      if (!applied.contains(name)) continue;
      QVERIFY2(inUse(harness_->controller(), name).toString() == applied[name], qPrintable(name));
      QVERIFY2(content(*control) == applied[name], qPrintable(name));
    }
  }

 private slots:
  void everyControlIsAppliedAndIsStillSoAfterARestart() {
    loadPlainModel();
    harness_->click(u"settingsButton"_s);
    QHash<QString, QString> applied;
    for (QWidget* control : controls()) {
      const QString name = control->objectName();
      if (name == u"greedyCheck"_s) continue;  // below: the rest of the sampling needs it off
      const QString before = content(*control);
      QVERIFY2(inUse(harness_->controller(), name).isValid(), qPrintable(name));
      QVERIFY2(inUse(harness_->controller(), name).toString() == before, qPrintable(name));
      change(*control);
      QVERIFY2(content(*control) != before, qPrintable(name));
      applied.insert(name, content(*control));
    }
    QVERIFY(applied.size() >= 18);
    apply();
    QTRY_COMPARE(harness_->controller().currentPreset(), u"custom"_s);
    checkInUse(applied);
    restart();
    checkInUse(applied);

    harness_->find<QCheckBox>(u"greedyCheck"_s).toggle();
    apply();
    QVERIFY(harness_->controller().settings().sampler.isGreedy());
    restart();
    QVERIFY(harness_->controller().settings().sampler.isGreedy());
    QVERIFY(harness_->find<QCheckBox>(u"greedyCheck"_s).isChecked());
  }

  void theCostIsSaidInTheWordsOfThePresetBar() {
    startChat();
    harness_->click(u"settingsButton"_s);
    // The values of "Memory limit".
    harness_->find<QComboBox>(u"keyNbitsChoice"_s).setCurrentText(u"2 bits"_s);
    harness_->find<QComboBox>(u"valueNbitsChoice"_s).setCurrentText(u"2 bits"_s);
    count(u"residualLengthField"_s).setValue(64);
    count(u"firstLayersField"_s).setValue(3);
    QTRY_VERIFY2(label(u"settingsForecast"_s).contains(u"converted in place"_s),
                 qPrintable(label(u"settingsForecast"_s)));
    QTest::keyClick(&harness_->window(), Qt::Key_5, Qt::AltModifier);
    QVERIFY(harness_->isShown(u"presetBar"_s));
    QVERIFY2(label(u"settingsForecast"_s).endsWith(label(u"presetBarHint"_s)),
             qPrintable(label(u"settingsForecast"_s)));
  }

  void anEmptyChatIsNotToldOfAnotherChatsTokens() {
    startChat();
    harness_->click(u"settingsButton"_s);
    harness_->controller().newConversation();
    harness_->find<QComboBox>(u"keyNbitsChoice"_s).setCurrentText(u"2 bits"_s);
    QTest::qWait(400);  // longer than the pause before a forecast
    QVERIFY2(label(u"settingsForecast"_s).startsWith(u"This needs "_s) &&
                 !label(u"settingsForecast"_s).contains(u"token"_s) &&
                 !label(u"settingsForecast"_s).contains(u"chat"_s),
             qPrintable(label(u"settingsForecast"_s)));
  }

  void editsAreKeptAndNamedWhenPresetChatOrModelChange() {
    startChat();
    harness_->click(u"settingsButton"_s);
    count(u"residualLengthField"_s).setValue(300);
    count(u"slidingWindowField"_s).setValue(512);
    const auto checkKept = [&] {
      QCOMPARE(count(u"residualLengthField"_s).value(), 300);
      QCOMPARE(count(u"slidingWindowField"_s).value(), 512);
      QVERIFY(harness_->isShown(u"settingsEdits"_s));
      QCOMPARE(label(u"settingsEdits"_s), u"Not applied yet: Residual length, Sliding window."_s);
    };
    checkKept();
    harness_->controller().newConversation();
    checkKept();
    choosePreset(u"throughput"_s);
    QTRY_COMPARE(harness_->controller().currentPreset(), u"throughput"_s);
    QTRY_COMPARE(harness_->find<QComboBox>(u"keyNbitsChoice"_s).currentText(), u"8 bits"_s);
    checkKept();
    loadPlainModel();
    checkKept();
    harness_->click(u"settingsUndoButton"_s);
    QCOMPARE(count(u"residualLengthField"_s).value(), 128);
    QCOMPARE(count(u"slidingWindowField"_s).value(), 0);
    QVERIFY(!harness_->isShown(u"settingsEdits"_s));
  }

  void thereIsAWayBackToTheDefaults() {
    loadPlainModel();
    harness_->click(u"settingsButton"_s);
    for (QWidget* control : controls()) {
      if (control->objectName() != u"greedyCheck"_s) change(*control);
    }
    apply();
    QTRY_COMPARE(harness_->controller().currentPreset(), u"custom"_s);
    harness_->click(u"settingsDefaultsButton"_s);
    QCOMPARE(harness_->controller().currentPreset(), u"custom"_s);  // nothing before Apply
    apply();
    const app::Settings defaults;
    const app::Settings& settings = harness_->controller().settings();
    QTRY_COMPARE(harness_->controller().currentPreset(), defaults.presetId);
    QVERIFY(harness_->controller().currentCacheConfig() == engine::presetById("quality").cache);
    QVERIFY(settings.sampler == defaults.sampler);
    QCOMPARE(settings.contextLength, defaults.contextLength);
    QCOMPARE(settings.maxAnswerTokens, defaults.maxAnswerTokens);
    QCOMPARE(settings.threads, defaults.threads);
    QCOMPARE(settings.keepsSessions, defaults.keepsSessions);
    QCOMPARE(settings.sessionQuotaBytes, defaults.sessionQuotaBytes);
    QVERIFY(!harness_->find<QPushButton>(u"settingsDefaultsButton"_s).isEnabled());
  }
};

QTEST_MAIN(MainWindowSettingsTest)
#include "main_window_settings_test.moc"
