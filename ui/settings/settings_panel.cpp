#include "ui/settings/settings_panel.h"

#include <algorithm>

#include <QCheckBox>
#include <QComboBox>
#include <QDoubleSpinBox>
#include <QHBoxLayout>
#include <QLabel>
#include <QLineEdit>
#include <QLocale>
#include <QPushButton>
#include <QRegularExpressionValidator>
#include <QScrollArea>
#include <QSpinBox>
#include <QTimer>
#include <QVBoxLayout>

#include "ui/settings/setting_row.h"
#include "ui/style/format.h"
#include "ui/style/named.h"
#include "ui/style/plain_widgets.h"

using namespace Qt::StringLiterals;

namespace longhand::ui {

namespace {

constexpr int kEditPauseMs = 150;
constexpr int kMaxSlidingWindow = 1 << 30;     // KvCacheConfig::validate
constexpr int kMaxExactTokens = 4096;          // of residual and sink: KvCacheConfig::validate
constexpr int kMaxContextLength = 10'000'000;  // as the settings allow (app/settings.cpp)
constexpr int kMinContextLength = 64;
constexpr int kMaxQuotaGiB = 1 << 14;
// Once greedy is switched off there must be a temperature to sample with.
constexpr double kUsualTemperature = 0.7;

// The texts are English, so are the numbers (as in format.cpp).
QLocale numberLocale() { return QLocale(QLocale::English, QLocale::UnitedStates); }

QComboBox* makeChoice(const char* objectName, std::initializer_list<int> choices,
                      const QString& unit) {
  auto* box = new QComboBox;
  box->setObjectName(QLatin1StringView(objectName));
  for (const int choice : choices) box->addItem(u"%1 %2"_s.arg(choice).arg(unit), choice);
  return box;
}

QSpinBox* makeCount(const char* objectName, int low, int high, int step, const QString& atLow) {
  auto* box = new QSpinBox;
  box->setObjectName(QLatin1StringView(objectName));
  box->setRange(low, high);
  box->setSingleStep(step);
  box->setLocale(numberLocale());
  box->setGroupSeparatorShown(true);
  box->setSpecialValueText(atLow);
  return box;
}

QDoubleSpinBox* makeNumber(const char* objectName, double low, double high, double step,
                           const QString& atLow) {
  auto* box = new QDoubleSpinBox;
  box->setObjectName(QLatin1StringView(objectName));
  box->setRange(low, high);
  box->setSingleStep(step);
  box->setLocale(numberLocale());
  box->setDecimals(2);
  box->setSpecialValueText(atLow);
  return box;
}

void choose(QComboBox* box, int value) {
  const int index = box->findData(value);
  if (index >= 0) box->setCurrentIndex(index);
}

int chosen(const QComboBox* box) { return box->currentData().toInt(); }

/// `now` with those values of `edited` that differ from `before`.
SettingsValues withEdits(SettingsValues now, const SettingsValues& before,
                         const SettingsValues& edited) {
  const auto keep = [](auto& value, const auto& old, const auto& shown) {
    if (shown != old) value = shown;
  };
  keep(now.cache.keyNbits, before.cache.keyNbits, edited.cache.keyNbits);
  keep(now.cache.valueNbits, before.cache.valueNbits, edited.cache.valueNbits);
  keep(now.cache.groupSize, before.cache.groupSize, edited.cache.groupSize);
  keep(now.cache.firstLayers, before.cache.firstLayers, edited.cache.firstLayers);
  keep(now.cache.residualLength, before.cache.residualLength, edited.cache.residualLength);
  keep(now.cache.sinkLength, before.cache.sinkLength, edited.cache.sinkLength);
  keep(now.contextLength, before.contextLength, edited.contextLength);
  keep(now.sampler.temperature, before.sampler.temperature, edited.sampler.temperature);
  keep(now.sampler.topK, before.sampler.topK, edited.sampler.topK);
  keep(now.sampler.topP, before.sampler.topP, edited.sampler.topP);
  keep(now.sampler.minP, before.sampler.minP, edited.sampler.minP);
  keep(now.sampler.repetitionPenalty, before.sampler.repetitionPenalty,
       edited.sampler.repetitionPenalty);
  keep(now.sampler.seed, before.sampler.seed, edited.sampler.seed);
  keep(now.maxTokens, before.maxTokens, edited.maxTokens);
  keep(now.threads, before.threads, edited.threads);
  keep(now.keepsSessions, before.keepsSessions, edited.keepsSessions);
  keep(now.sessionQuotaBytes, before.sessionQuotaBytes, edited.sessionQuotaBytes);
  return now;
}

}  // namespace

SettingsPanel::SettingsPanel(QWidget* parent)
    : QWidget(parent),
      editTimer_(new QTimer(this)),
      keyNbits_(makeChoice("keyNbitsChoice", {16, 8, 4, 2}, tr("bits"))),
      valueNbits_(makeChoice("valueNbitsChoice", {16, 8, 4, 2}, tr("bits"))),
      firstLayers_(makeCount("firstLayersField", 0, 0, 1, tr("none"))),
      groupSize_(makeChoice("groupSizeChoice", {32, 64, 128}, tr("values"))),
      residualLength_(makeCount("residualLengthField", 0, kMaxExactTokens, 64, tr("none"))),
      sinkLength_(makeCount("sinkLengthField", 0, kMaxExactTokens, 1, tr("none"))),
      slidingWindow_(makeCount("slidingWindowField", 0, kMaxSlidingWindow, 256, tr("off"))),
      contextLength_(
          makeCount("contextLengthField", kMinContextLength, kMaxContextLength, 1024, QString())),
      greedy_(new QCheckBox(tr("Greedy"))),
      temperature_(makeNumber("temperatureField", 0.05, 2.0, 0.05, QString())),
      topK_(makeCount("topKField", 0, 1000, 5, tr("off"))),
      topP_(makeNumber("topPField", 0.05, 1.0, 0.01, QString())),
      minP_(makeNumber("minPField", 0.0, 0.5, 0.01, tr("off"))),
      repetitionPenalty_(makeNumber("repetitionPenaltyField", 1.0, 2.0, 0.05, tr("off"))),
      seed_(new QLineEdit),
      maxTokens_(makeCount("maxTokensField", 0, kMaxContextLength, 64, tr("no limit"))),
      threads_(makeCount("threadsField", 0, 1, 1, tr("all cores"))),
      keepsSessions_(new QCheckBox(tr("Keep long chats ready"))),
      sessionQuota_(makeCount("sessionQuotaField", 1, kMaxQuotaGiB, 5, QString())),
      forecast_(named(new QLabel, u"settingsForecast"_s, tr("Memory forecast"))),
      apply_(named(new QPushButton(tr("Apply")), u"settingsApplyButton"_s, tr("Apply settings"))),
      reset_(named(new QPushButton(tr("Reset")), u"settingsResetButton"_s,
                   tr("Go back to the settings in use"))) {
  setObjectName(u"settingsPanel"_s);
  setAccessibleName(tr("Settings"));
  greedy_->setObjectName(u"greedyCheck"_s);
  keepsSessions_->setObjectName(u"keepsSessionsCheck"_s);
  sessionQuota_->setSuffix(tr(" GiB"));
  seed_->setObjectName(u"seedField"_s);
  seed_->setValidator(new QRegularExpressionValidator(QRegularExpression(u"[0-9]{1,18}"_s), seed_));
  seed_->setAlignment(Qt::AlignRight);

  auto* content = new QWidget;
  content->setObjectName(u"settingsContent"_s);
  auto* sections = new QVBoxLayout(content);
  sections->setContentsMargins(16, 12, 16, 12);
  sections->setSpacing(14);
  sections->addWidget(makeCacheSection());
  sections->addWidget(makeContextSection());
  sections->addWidget(makeSamplingSection());
  sections->addWidget(makeDiskSection());
  sections->addStretch(1);
  scroll_ = makeScroll(content, u"settingsScroll"_s, tr("Settings"), this);

  auto* layout = new QVBoxLayout(this);
  layout->setContentsMargins(0, 0, 0, 0);
  layout->setSpacing(0);
  layout->addWidget(scroll_, 1);
  layout->addWidget(makeFooter());

  editTimer_->setSingleShot(true);
  editTimer_->setInterval(kEditPauseMs);
  connect(editTimer_, &QTimer::timeout, this, &SettingsPanel::edited);
  watchControls();
  setValues({});
}

QWidget* SettingsPanel::makeCacheSection() {
  auto* section = new SettingSection(tr("KV cache"), this);
  section->addRow(tr("Key bits"), keyNbits_,
                  tr("Precision of stored keys. Fewer bits: less memory, less exact attention."));
  section->addRow(tr("Value bits"), valueNbits_,
                  tr("Precision of stored values. They bear fewer bits better than keys."));
  section->addRow(tr("First layers at 4 bits"), firstLayers_,
                  tr("Keeps the most sensitive layers finer than the rest."));
  section->addRow(tr("Group size"), groupSize_,
                  tr("Numbers that share a scale. Smaller is more exact and needs more memory."));
  section->addRow(tr("Residual length"), residualLength_,
                  tr("The newest tokens are kept exactly, at least this many."));
  section->addRow(tr("Sinks"), sinkLength_, tr("The first tokens are kept exactly, for ever."));
  section->addRow(tr("Sliding window"), slidingWindow_,
                  tr("Only the newest tokens and the sinks are read; older ones are forgotten, and "
                     "memory stops growing."));
  return section;
}

QWidget* SettingsPanel::makeContextSection() {
  auto* section = new SettingSection(tr("Context and speed"), this);
  contextHint_ = section->addRow(tr("Context"), contextLength_, QString());
  contextHint_->setObjectName(u"contextHint"_s);
  section->addRow(tr("Longest answer"), maxTokens_,
                  tr("An answer stops after this many tokens, or when the context is full."));
  section->addRow(tr("Threads"), threads_, tr("Processor cores that compute."));
  device_ = section->addNote(tr("Computing on"));
  device_->setObjectName(u"settingsDevice"_s);
  return section;
}

QWidget* SettingsPanel::makeSamplingSection() {
  auto* section = new SettingSection(tr("Sampling"), this);
  greedyHint_ = section->addRow(tr("Greedy"), greedy_, QString());
  greedyHint_->setObjectName(u"greedyHint"_s);
  section->addRow(tr("Temperature"), temperature_,
                  tr("Low is sober, high is varied. 0.7 is usual."));
  section->addRow(tr("Top k"), topK_, tr("Chooses among the k likeliest tokens only."));
  section->addRow(tr("Top p"), topP_,
                  tr("Chooses among the likeliest tokens that make up this share; 1 is off."));
  section->addRow(tr("Min p"), minP_,
                  tr("Drops tokens less likely than this share of the likeliest."));
  section->addRow(tr("Repetition penalty"), repetitionPenalty_,
                  tr("Makes tokens of the recent text less likely."));
  section->addRow(tr("Seed"), seed_, tr("Same seed, same question: same answer."));
  return section;
}

QWidget* SettingsPanel::makeDiskSection() {
  auto* section = new SettingSection(tr("Disk"), this);
  section->addRow(tr("Long chats"), keepsSessions_,
                  tr("What was read stays on disk, so that no document is read twice."));
  section->addRow(tr("At most"), sessionQuota_,
                  tr("The chats that were not used for the longest time go first."));
  return section;
}

QWidget* SettingsPanel::makeFooter() {
  auto* footer = new QWidget(this);
  footer->setObjectName(u"settingsFooter"_s);
  forecast_->setWordWrap(true);
  forecast_->setMinimumWidth(1);
  apply_->setProperty("buttonRole", u"primary"_s);
  auto* buttons = new QHBoxLayout;
  buttons->setSpacing(8);
  buttons->addStretch(1);
  buttons->addWidget(reset_);
  buttons->addWidget(apply_);
  auto* layout = new QVBoxLayout(footer);
  layout->setContentsMargins(16, 10, 16, 12);
  layout->setSpacing(8);
  layout->addWidget(forecast_);
  layout->addLayout(buttons);
  connect(apply_, &QPushButton::clicked, this, [this] { emit applyRequested(values()); });
  connect(reset_, &QPushButton::clicked, this, [this] { setValues(inUse_); });
  return footer;
}

void SettingsPanel::watchControls() {
  for (const QComboBox* box : {keyNbits_, valueNbits_, groupSize_}) {
    connect(box, &QComboBox::currentIndexChanged, this, &SettingsPanel::onChanged);
  }
  for (const QSpinBox* box : {firstLayers_, residualLength_, sinkLength_, slidingWindow_,
                              contextLength_, topK_, maxTokens_, threads_, sessionQuota_}) {
    connect(box, &QSpinBox::valueChanged, this, &SettingsPanel::onChanged);
  }
  for (const QDoubleSpinBox* box : {temperature_, topP_, minP_, repetitionPenalty_}) {
    connect(box, &QDoubleSpinBox::valueChanged, this, &SettingsPanel::onChanged);
  }
  connect(greedy_, &QCheckBox::toggled, this, &SettingsPanel::onChanged);
  connect(keepsSessions_, &QCheckBox::toggled, this, &SettingsPanel::onChanged);
  connect(seed_, &QLineEdit::textChanged, this, &SettingsPanel::onChanged);
}

void SettingsPanel::setLimits(const SettingsLimits& limits) {
  const SettingsValues edited = shownValues();
  const SettingsValues before = inUse_;
  limits_ = limits;
  isFilling_ = true;
  threads_->setMaximum(std::max(1, limits.nCores));
  firstLayers_->setMaximum(std::max(0, limits.nLayers));
  isFilling_ = false;
  fill(inUse_);
  inUse_ = values();
  fill(withEdits(inUse_, before, edited));
  onChanged();
}

void SettingsPanel::setValues(const SettingsValues& newValues) {
  fill(newValues);
  // The controls round (two decimals); what they show is what is in use, or Apply would stay lit.
  inUse_ = newValues;
  inUse_ = values();
  onChanged();
}

void SettingsPanel::followValues(const SettingsValues& newValues) {
  const SettingsValues edited = shownValues();
  const SettingsValues before = inUse_;
  setValues(newValues);
  fill(withEdits(inUse_, before, edited));
  onChanged();
}

void SettingsPanel::setDevice(const QString& description, const QString& whyNotDevice) {
  QString text = description.isEmpty() ? tr("No model is loaded.") : description + u'.';
  if (!whyNotDevice.isEmpty()) text += u'\n' + tr("No graphics card is used: %1").arg(whyNotDevice);
  device_->setText(text);
}

void SettingsPanel::showDevice() { scroll_->ensureWidgetVisible(device_); }

void SettingsPanel::fill(const SettingsValues& shown) {
  const bool usesTrainedLength = shown.contextLength <= 0 && limits_.trainedLength > 0;
  const qint64 context = usesTrainedLength ? limits_.trainedLength : shown.contextLength;
  isFilling_ = true;
  choose(keyNbits_, shown.cache.keyNbits);
  choose(valueNbits_, shown.cache.valueNbits);
  choose(groupSize_, shown.cache.groupSize);
  firstLayers_->setValue(shown.cache.firstLayers);
  residualLength_->setValue(static_cast<int>(shown.cache.residualLength));
  sinkLength_->setValue(static_cast<int>(shown.cache.sinkLength));
  slidingWindow_->setValue(static_cast<int>(shown.cache.slidingWindow));
  contextLength_->setValue(static_cast<int>(context));
  greedy_->setChecked(limits_.alwaysGreedy || shown.sampler.isGreedy());
  temperature_->setValue(shown.sampler.isGreedy() ? kUsualTemperature : shown.sampler.temperature);
  topK_->setValue(shown.sampler.topK);
  topP_->setValue(shown.sampler.topP);
  minP_->setValue(shown.sampler.minP);
  repetitionPenalty_->setValue(shown.sampler.repetitionPenalty);
  seed_->setText(QString::number(shown.sampler.seed));
  maxTokens_->setValue(static_cast<int>(shown.maxTokens));
  threads_->setValue(shown.threads);
  keepsSessions_->setChecked(shown.keepsSessions);
  sessionQuota_->setValue(static_cast<int>(shown.sessionQuotaBytes >> 30));
  isFilling_ = false;
}

SettingsValues SettingsPanel::values() const {
  SettingsValues result = shownValues();
  const bool hasCoarseLayers = result.cache.keyNbits < 4 || result.cache.valueNbits < 4;
  if (!hasCoarseLayers) result.cache.firstLayers = 0;
  if (result.cache.firstLayers > 0) {
    result.cache.firstLayersKeyNbits = std::max(4, result.cache.keyNbits);
    result.cache.firstLayersValueNbits = std::max(4, result.cache.valueNbits);
  }
  return result;
}

SettingsValues SettingsPanel::shownValues() const {
  SettingsValues result = inUse_;
  result.cache.keyNbits = chosen(keyNbits_);
  result.cache.valueNbits = chosen(valueNbits_);
  result.cache.groupSize = chosen(groupSize_);
  result.cache.firstLayers = firstLayers_->value();
  result.cache.residualLength = residualLength_->value();
  result.cache.sinkLength = sinkLength_->value();
  result.cache.slidingWindow = slidingWindow_->value();
  result.contextLength = contextLength_->value();
  if (!limits_.alwaysGreedy) {  // else what is set waits for another model
    result.sampler.temperature = greedy_->isChecked() ? 0.0 : temperature_->value();
  }
  result.sampler.topK = topK_->value();
  result.sampler.topP = topP_->value();
  result.sampler.minP = minP_->value();
  result.sampler.repetitionPenalty = repetitionPenalty_->value();
  result.sampler.seed = seed_->text().toULongLong();
  result.maxTokens = maxTokens_->value();
  result.threads = threads_->value();
  result.keepsSessions = keepsSessions_->isChecked();
  result.sessionQuotaBytes = qint64{sessionQuota_->value()} << 30;
  return result;
}

bool SettingsPanel::isEdited() const { return values() != inUse_; }

void SettingsPanel::setForecast(const QString& line, bool fits) {
  forecast_->setText(line);
  setStyleProperty(*forecast_, "textRole", fits ? u"plain"_s : u"warning"_s);
  fits_ = fits;
  apply_->setEnabled(isEdited() && fits_);
}

void SettingsPanel::onChanged() {
  if (isFilling_) return;
  updateDependentControls();
  editTimer_->start();
}

void SettingsPanel::updateDependentControls() {
  const bool isQuantized = chosen(keyNbits_) < 16 || chosen(valueNbits_) < 16;
  groupSize_->setEnabled(isQuantized);
  residualLength_->setEnabled(isQuantized);
  sinkLength_->setEnabled(isQuantized);
  const bool hasCoarseLayers = chosen(keyNbits_) < 4 || chosen(valueNbits_) < 4;
  firstLayers_->setEnabled(hasCoarseLayers);

  const bool isGreedy = greedy_->isChecked();
  greedy_->setEnabled(!limits_.alwaysGreedy);
  greedyHint_->setText(
      limits_.alwaysGreedy
          ? tr("The demonstration model always takes the likeliest token. What is set below is "
               "kept for other models.")
          : tr("Always takes the likeliest token: same question, same answer."));
  greedy_->setAccessibleDescription(greedyHint_->text());
  for (QWidget* control :
       std::initializer_list<QWidget*>{temperature_, topK_, topP_, minP_, seed_}) {
    control->setEnabled(!isGreedy);
  }

  sessionQuota_->setEnabled(keepsSessions_->isChecked());

  const qint64 context = contextLength_->value();
  const bool isBeyond = limits_.trainedLength > 0 && context > limits_.trainedLength;
  contextHint_->setText(
      limits_.trainedLength == 0 ? tr("Tokens of document and chat that fit.")
      : isBeyond                 ? tr("Beyond the %1 the model was trained for: answers get worse.")
                       .arg(formatTokens(limits_.trainedLength))
                 : tr("Tokens of document and chat that fit. The model was trained for %1.")
                       .arg(formatCount(limits_.trainedLength)));
  setStyleProperty(*contextHint_, "textRole", isBeyond ? u"warning"_s : u"secondary"_s);
  contextLength_->setAccessibleDescription(contextHint_->text());

  apply_->setEnabled(isEdited() && fits_);
  reset_->setEnabled(isEdited());
}

}  // namespace longhand::ui
