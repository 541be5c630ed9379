// The rows of the settings panel: each control with its words, its range and its line of the table.
#include <algorithm>
#include <limits>

#include <QCheckBox>
#include <QComboBox>
#include <QLabel>
#include <QLineEdit>
#include <QRegularExpressionValidator>

#include "engine/cache/kv_cache_config.h"
#include "ui/settings/number_field.h"
#include "ui/settings/setting_row.h"
#include "ui/settings/setting_table.h"
#include "ui/settings/settings_panel.h"

using namespace Qt::StringLiterals;

namespace longhand::ui {

namespace {

constexpr int kMaxContextLength = static_cast<int>(engine::kMaxContextLength);
constexpr int kMaxExactTokens = static_cast<int>(engine::kMaxExactTokens);
constexpr int kMaxTopK = 1'000'000;  // more tokens than any vocabulary has
constexpr int kMaxQuotaGiB = 1 << 20;
constexpr int kBytesToGiB = 30;  // bits
// Once greedy is switched off there must be a temperature to sample with.
constexpr double kUsualTemperature = 0.7;

template <typename Box, typename Range>
NumberField<Box>* makeField(const QString& name, const Range& range) {
  auto* box = new NumberField<Box>;
  box->setObjectName(name);
  box->setRange(range.least, range.most);
  box->setSingleStep(range.step);
  box->setSpecialValueText(range.atLeast);
  return box;
}

/// Of a text of digits only: what is more than 64 bits hold becomes the most they hold.
std::uint64_t seedFrom(const QString& text) {
  bool isInRange = false;
  const qulonglong seed = text.toULongLong(&isInRange);
  return isInRange || text.isEmpty() ? seed : std::numeric_limits<std::uint64_t>::max();
}

}  // namespace

template <typename Access>
QComboBox* SettingsPanel::addChoice(SettingSection& section, const QString& name,
                                    const Words& words, const QList<int>& choices,
                                    const QString& unit, Access access) {
  auto* box = new QComboBox;
  box->setObjectName(name);
  for (const int choice : choices) box->addItem(u"%1 %2"_s.arg(choice).arg(unit), choice);
  section.addRow(words.label, box, words.hint);
  table_->add(
      words.label, box,
      [=](const SettingsValues& values) {
        const int index = box->findData(access(values));
        if (index >= 0) box->setCurrentIndex(index);
      },
      [=](SettingsValues& values) { access(values) = box->currentData().toInt(); });
  return box;
}

template <typename Box, typename Show, typename Store>
SettingHint* SettingsPanel::addField(SettingSection& section, NumberField<Box>* box,
                                     const Words& words, Show show, Store store) {
  SettingHint* const hint = section.addRow(words.label, box, words.hint);
  box->onCorrection([hint](const QString& sentence) { hint->setCorrection(sentence); });
  table_->add(words.label, box, show, store, [box](const QVariant& edit) { box->enter(edit); });
  return hint;
}

template <typename Access>
QSpinBox* SettingsPanel::addCount(SettingSection& section, const QString& name, const Words& words,
                                  const Range<int>& range, Access access) {
  auto* box = makeField<QSpinBox>(name, range);
  addField(
      section, box, words,
      [=](const SettingsValues& values) { box->setValue(static_cast<int>(access(values))); },
      [=](SettingsValues& values) { access(values) = box->value(); });
  return box;
}

template <typename Access>
QDoubleSpinBox* SettingsPanel::addNumber(SettingSection& section, const QString& name,
                                         const Words& words, const Range<double>& range,
                                         Access access) {
  auto* box = makeField<QDoubleSpinBox>(name, range);
  addField(
      section, box, words, [=](const SettingsValues& values) { box->setValue(access(values)); },
      [=](SettingsValues& values) { access(values) = box->value(); });
  return box;
}

QWidget* SettingsPanel::makeCacheSection() {
  auto* section = new SettingSection(tr("KV cache"), this);
  keyNbits_ = addChoice(
      *section, u"keyNbitsChoice"_s,
      {tr("Key bits"),
       tr("Precision of stored keys. Fewer bits: less memory, less exact attention.")},
      {16, 8, 4, 2}, tr("bits"), [](auto& values) -> auto& { return values.cache.keyNbits; });
  valueNbits_ = addChoice(
      *section, u"valueNbitsChoice"_s,
      {tr("Value bits"), tr("Precision of stored values. They bear fewer bits better than keys.")},
      {16, 8, 4, 2}, tr("bits"), [](auto& values) -> auto& { return values.cache.valueNbits; });
  firstLayers_ = addCount(
      *section, u"firstLayersField"_s,
      {tr("First layers at 4 bits"), tr("Keeps the most sensitive layers finer than the rest.")},
      {0, engine::kMaxFirstLayers, 1, tr("none")},
      [](auto& values) -> auto& { return values.cache.firstLayers; });
  groupSize_ = addChoice(
      *section, u"groupSizeChoice"_s,
      {tr("Group size"),
       tr("Numbers that share a scale. Smaller is more exact and needs more memory.")},
      {32, 64, 128}, tr("values"), [](auto& values) -> auto& { return values.cache.groupSize; });
  residualLength_ = addCount(
      *section, u"residualLengthField"_s,
      {tr("Residual length"), tr("The newest tokens are kept exactly, at least this many.")},
      {0, kMaxExactTokens, 64, tr("none")},
      [](auto& values) -> auto& { return values.cache.residualLength; });
  sinkLength_ = addCount(
      *section, u"sinkLengthField"_s,
      {tr("Sinks"), tr("The first tokens are kept exactly, for ever.")},
      {0, kMaxExactTokens, 1, tr("none")},
      [](auto& values) -> auto& { return values.cache.sinkLength; });
  slidingWindow_ = addCount(
      *section, u"slidingWindowField"_s,
      {tr("Sliding window"),
       tr("Only the newest tokens and the sinks are read; older ones are forgotten, and memory "
          "stops growing.")},
      {0, kMaxContextLength, 256, tr("off")},
      [](auto& values) -> auto& { return values.cache.slidingWindow; });
  return section;
}

QWidget* SettingsPanel::makeContextSection() {
  auto* section = new SettingSection(tr("Context and speed"), this);
  addContext(*section);
  addCount(
      *section, u"maxTokensField"_s,
      {tr("Longest answer"),
       tr("An answer stops after this many tokens, or when the context is full.")},
      {0, kMaxContextLength, 64, tr("no limit")},
      [](auto& values) -> auto& { return values.maxTokens; });
  threads_ = addCount(
      *section, u"threadsField"_s, {tr("Threads"), tr("Processor cores that compute.")},
      {0, 1, 1, tr("all cores")}, [](auto& values) -> auto& { return values.threads; });
  device_ = section->addNote(tr("Computing on"));
  device_->setObjectName(u"settingsDevice"_s);
  return section;
}

void SettingsPanel::addContext(SettingSection& section) {
  const Range<int> range{kMinContextLength, kMaxContextLength, 1024, QString()};
  auto* box = makeField<QSpinBox>(u"contextLengthField"_s, range);
  contextLength_ = box;
  contextHint_ = addField(
      section, box, {tr("Context"), QString()},
      [this, box](const SettingsValues& values) {
        box->setValue(static_cast<int>(asShown(values).contextLength));
      },
      [box](SettingsValues& values) { values.contextLength = box->value(); });
  contextHint_->setObjectName(u"contextHint"_s);
}

QWidget* SettingsPanel::makeSamplingSection() {
  auto* section = new SettingSection(tr("Sampling"), this);
  addGreedyAndTemperature(*section);
  randomControls_ = {
      temperature_,
      addCount(
          *section, u"topKField"_s, {tr("Top k"), tr("Chooses among the k likeliest tokens only.")},
          {0, kMaxTopK, 5, tr("off")}, [](auto& values) -> auto& { return values.sampler.topK; }),
      addNumber(
          *section, u"topPField"_s,
          {tr("Top p"),
           tr("Chooses among the likeliest tokens that make up this share; 1 is off.")},
          {0.01, 1.0, 0.01, QString()}, [](auto& values) -> auto& { return values.sampler.topP; }),
      addNumber(
          *section, u"minPField"_s,
          {tr("Min p"), tr("Drops tokens less likely than this share of the likeliest.")},
          {0.0, 1.0, 0.01, tr("off")}, [](auto& values) -> auto& { return values.sampler.minP; })};
  addNumber(
      *section, u"repetitionPenaltyField"_s,
      {tr("Repetition penalty"), tr("Makes tokens of the recent text less likely.")},
      {1.0, 10.0, 0.05, tr("off")},
      [](auto& values) -> auto& { return values.sampler.repetitionPenalty; });
  addSeed(*section);
  return section;
}

void SettingsPanel::addGreedyAndTemperature(SettingSection& section) {
  greedy_ = new QCheckBox(tr("Greedy"));
  greedy_->setObjectName(u"greedyCheck"_s);
  greedyHint_ = section.addRow(tr("Greedy"), greedy_, QString());
  greedyHint_->setObjectName(u"greedyHint"_s);
  const Range<double> range{0.01, 100.0, 0.05, QString()};
  auto* box = makeField<QDoubleSpinBox>(u"temperatureField"_s, range);
  temperature_ = box;
  // One value: greedy is the temperature 0. With a model that always is, what is set waits for
  // another one.
  const auto store = [this](SettingsValues& values) {
    const bool isGreedy = limits_.alwaysGreedy ? values.sampler.isGreedy() : greedy_->isChecked();
    values.sampler.temperature = isGreedy ? 0.0 : temperature_->value();
  };
  table_->add(
      tr("Greedy"), greedy_,
      [this](const SettingsValues& values) {
        greedy_->setChecked(limits_.alwaysGreedy || values.sampler.isGreedy());
      },
      store);
  addField(
      section, box, {tr("Temperature"), tr("Low is sober, high is varied. 0.7 is usual.")},
      [box](const SettingsValues& values) {
        const engine::SamplerConfig& sampler = values.sampler;
        box->setValue(sampler.isGreedy() ? kUsualTemperature : sampler.temperature);
      },
      store);
}

void SettingsPanel::addSeed(SettingSection& section) {
  auto* seed = new QLineEdit;
  seed->setObjectName(u"seedField"_s);
  seed->setValidator(new QRegularExpressionValidator(QRegularExpression(u"[0-9]*"_s), seed));
  seed->setAlignment(Qt::AlignRight);
  SettingHint* const hint =
      section.addRow(tr("Seed"), seed, tr("Same seed, same question: same answer."));
  const auto most = std::numeric_limits<std::uint64_t>::max();
  connect(seed, &QLineEdit::textEdited, hint, [=](const QString& text) {
    const bool isTooMuch = seedFrom(text) == most && text != QString::number(most);
    hint->setCorrection(
        isTooMuch
            ? tr("That is too much: %1 is the most.").arg(numberLocale().toString(qulonglong{most}))
            : QString());
  });
  connect(seed, &QLineEdit::editingFinished, seed,
          [seed] { seed->setText(QString::number(seedFrom(seed->text()))); });
  table_->add(
      tr("Seed"), seed,
      [=](const SettingsValues& values) {
        hint->setCorrection(QString());
        seed->setText(QString::number(values.sampler.seed));
      },
      [=](SettingsValues& values) { values.sampler.seed = seedFrom(seed->text()); });
  randomControls_.append(seed);
}

QWidget* SettingsPanel::makeDiskSection() {
  auto* section = new SettingSection(tr("Disk"), this);
  keepsSessions_ = new QCheckBox(tr("Keep long chats ready"));
  keepsSessions_->setObjectName(u"keepsSessionsCheck"_s);
  section->addRow(tr("Long chats"), keepsSessions_,
                  tr("What was read stays on disk, so that no document is read twice."));
  table_->add(
      tr("Long chats"), keepsSessions_,
      [this](const SettingsValues& values) { keepsSessions_->setChecked(values.keepsSessions); },
      [this](SettingsValues& values) { values.keepsSessions = keepsSessions_->isChecked(); });

  const Range<int> range{1, kMaxQuotaGiB, 5, QString()};
  auto* quota = makeField<QSpinBox>(u"sessionQuotaField"_s, range);
  quota->setSuffix(tr(" GiB"));
  sessionQuota_ = quota;
  addField(
      *section, quota,
      {tr("At most"), tr("The chats that were not used for the longest time go first.")},
      [quota](const SettingsValues& values) {
        quota->setValue(static_cast<int>(values.sessionQuotaBytes >> kBytesToGiB));
      },
      [quota](SettingsValues& values) {
        values.sessionQuotaBytes = qint64{quota->value()} << kBytesToGiB;
      });
  return section;
}

}  // namespace longhand::ui
