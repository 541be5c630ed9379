#include "ui/settings/settings_panel.h"

#include <algorithm>

#include <QCheckBox>
#include <QComboBox>
#include <QHBoxLayout>
#include <QLabel>
#include <QPushButton>
#include <QScrollArea>
#include <QSpinBox>
#include <QTimer>
#include <QVBoxLayout>

#include "ui/settings/setting_row.h"
#include "ui/settings/setting_table.h"
#include "ui/style/format.h"
#include "ui/style/named.h"
#include "ui/style/plain_widgets.h"

using namespace Qt::StringLiterals;

namespace longhand::ui {

namespace {

constexpr int kEditPauseMs = 150;
constexpr int kMostEditsNamed = 3;

/// What has no effect is stored as if it was never set: equal caches compare equal.
void normalize(engine::KvCacheConfig& cache) {
  const engine::KvCacheConfig usual;
  const bool hasCoarseLayers = cache.keyNbits < 4 || cache.valueNbits < 4;
  if (!hasCoarseLayers) cache.firstLayers = 0;
  const bool hasFirst = cache.firstLayers > 0;
  cache.firstLayersKeyNbits = hasFirst ? std::max(4, cache.keyNbits) : usual.firstLayersKeyNbits;
  cache.firstLayersValueNbits =
      hasFirst ? std::max(4, cache.valueNbits) : usual.firstLayersValueNbits;
}

}  // namespace

SettingsPanel::SettingsPanel(QWidget* parent)
    : QWidget(parent),
      table_(new SettingTable(this)),
      editTimer_(new QTimer(this)),
      forecast_(named(new QLabel, u"settingsForecast"_s, tr("Memory forecast"))),
      edits_(named(new QLabel, u"settingsEdits"_s, tr("Not applied yet"))),
      defaultsButton_(named(new QPushButton(tr("Defaults")), u"settingsDefaultsButton"_s,
                            tr("Show the settings Longhand begins with"))),
      undo_(named(new QPushButton(tr("Undo edits")), u"settingsUndoButton"_s,
                  tr("Go back to the settings in use"))),
      apply_(named(new QPushButton(tr("Apply")), u"settingsApplyButton"_s, tr("Apply settings"))) {
  setObjectName(u"settingsPanel"_s);
  setAccessibleName(tr("Settings"));
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
  connect(table_, &SettingTable::changed, this, &SettingsPanel::onChanged);
  table_->show(inUse_);
  setLimits({});
}

QWidget* SettingsPanel::makeFooter() {
  auto* footer = new QWidget(this);
  footer->setObjectName(u"settingsFooter"_s);
  for (QLabel* label : {edits_, forecast_}) {
    label->setWordWrap(true);
    label->setMinimumWidth(1);
  }
  edits_->setProperty("textRole", u"secondary"_s);
  apply_->setProperty("buttonRole", u"primary"_s);
  auto* buttons = new QHBoxLayout;
  buttons->setSpacing(8);
  buttons->addWidget(defaultsButton_);
  buttons->addStretch(1);
  buttons->addWidget(undo_);
  buttons->addWidget(apply_);
  auto* layout = new QVBoxLayout(footer);
  layout->setContentsMargins(16, 10, 16, 12);
  layout->setSpacing(8);
  layout->addWidget(edits_);
  layout->addWidget(forecast_);
  layout->addLayout(buttons);
  connect(apply_, &QPushButton::clicked, this, &SettingsPanel::applyRequested);
  connect(undo_, &QPushButton::clicked, this, [this] { setValues(inUse_); });
  connect(defaultsButton_, &QPushButton::clicked, this, [this] { table_->edit(defaults_); });
  return footer;
}

// --- Values -------------------------------------------------------------------------------------

void SettingsPanel::setLimits(const SettingsLimits& limits) {
  table_->follow(inUse_, [&] {
    limits_ = limits;
    threads_->setMaximum(std::max(1, limits.nCores));
    const bool hasModel = limits.trainedLength > 0;
    firstLayers_->setMaximum(hasModel ? std::min(limits.nLayers, engine::kMaxFirstLayers)
                                      : engine::kMaxFirstLayers);
    contextLength_->setMinimum(hasModel ? kMinContextLength : 0);
    contextLength_->setSpecialValueText(hasModel ? QString() : tr("as trained"));
  });
  onChanged();
}

void SettingsPanel::setDefaults(const SettingsValues& values) {
  defaults_ = values;
  updateFooter();
}

void SettingsPanel::setValues(const SettingsValues& values) {
  inUse_ = values;
  table_->show(inUse_);
  onChanged();
}

void SettingsPanel::followValues(const SettingsValues& values) {
  inUse_ = values;
  table_->follow(inUse_, {});
  onChanged();
}

SettingsValues SettingsPanel::withEdits(const SettingsValues& values) const {
  SettingsValues result = table_->withEdits(values);
  if (result.cache != values.cache) normalize(result.cache);
  return result;
}

SettingsValues SettingsPanel::asShown(SettingsValues values) const {
  if (values.contextLength <= 0) values.contextLength = limits_.trainedLength;
  return values;
}

void SettingsPanel::askForForecast() { editTimer_->start(); }

void SettingsPanel::setForecast(const QString& line, bool fits) {
  forecast_->setText(line);
  setStyleProperty(*forecast_, "textRole", fits ? u"plain"_s : u"warning"_s);
  fits_ = fits;
  updateFooter();
}

void SettingsPanel::setDevice(const QString& description, const QString& whyNotDevice) {
  QString text = description.isEmpty() ? tr("No model is loaded.") : description + u'.';
  if (!whyNotDevice.isEmpty()) text += u'\n' + tr("No graphics card is used: %1").arg(whyNotDevice);
  device_->setText(text);
}

void SettingsPanel::showDevice() { scroll_->ensureWidgetVisible(device_); }

// --- What depends on the values -----------------------------------------------------------------

void SettingsPanel::onChanged() {
  updateDependentControls();
  updateSamplingControls();
  updateContextHint();
  updateFooter();
  askForForecast();
}

void SettingsPanel::updateDependentControls() {
  const int keyNbits = keyNbits_->currentData().toInt();
  const int valueNbits = valueNbits_->currentData().toInt();
  const bool isQuantized = keyNbits < 16 || valueNbits < 16;
  groupSize_->setEnabled(isQuantized);
  residualLength_->setEnabled(isQuantized);
  sinkLength_->setEnabled(isQuantized || slidingWindow_->value() > 0);
  firstLayers_->setEnabled(keyNbits < 4 || valueNbits < 4);
  sessionQuota_->setEnabled(keepsSessions_->isChecked());
}

void SettingsPanel::updateSamplingControls() {
  greedy_->setEnabled(!limits_.alwaysGreedy);
  greedyHint_->setHint(
      limits_.alwaysGreedy
          ? tr("The demonstration model always takes the likeliest token. What is set below is "
               "kept for other models.")
          : tr("Always takes the likeliest token: same question, same answer."));
  for (QWidget* control : randomControls_) control->setEnabled(!greedy_->isChecked());
}

void SettingsPanel::updateContextHint() {
  const qint64 trained = limits_.trainedLength;
  const bool isBeyond = trained > 0 && contextLength_->value() > trained;
  contextHint_->setHint(
      trained == 0 ? tr("Tokens of document and chat that fit.")
      : isBeyond   ? tr("Beyond the %1 the model was trained for: answers get worse.")
                       .arg(formatTokens(trained))
                 : tr("Tokens of document and chat that fit. The model was trained for %1.")
                       .arg(formatCount(trained)),
      isBeyond ? SettingHint::Tone::kWarning : SettingHint::Tone::kPlain);
}

void SettingsPanel::updateFooter() {
  const QStringList labels = table_->edited();
  const auto nMore = labels.size() - kMostEditsNamed;
  const QString named = labels.mid(0, kMostEditsNamed).join(u", "_s);
  edits_->setText(nMore > 0 ? tr("Not applied yet: %1 and %2 more.").arg(named).arg(nMore)
                            : tr("Not applied yet: %1.").arg(named));
  edits_->setVisible(!labels.isEmpty());
  undo_->setEnabled(!labels.isEmpty());
  apply_->setEnabled(isEdited() && fits_);
  defaultsButton_->setEnabled(asShown(values()) != asShown(defaults_));
}

}  // namespace longhand::ui
