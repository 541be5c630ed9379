#include "ui/settings/settings_presenter.h"

#include <QThread>

#include "app/chat_controller.h"
#include "engine/cache/presets.h"
#include "ui/settings/settings_panel.h"
#include "ui/settings/switch_words.h"
#include "ui/style/format.h"

using namespace Qt::StringLiterals;

namespace longhand::ui {

using app::ChatController;

namespace {

SettingsValues valuesOf(const engine::KvCacheConfig& cache, const app::Settings& settings) {
  SettingsValues values;
  values.cache = cache;
  values.sampler = settings.sampler;
  values.contextLength = settings.contextLength;
  values.maxTokens = settings.maxAnswerTokens;
  values.threads = settings.threads;
  values.keepsSessions = settings.keepsSessions;
  values.sessionQuotaBytes = settings.sessionQuotaBytes;
  return values;
}

/// Those of a program that was never set up otherwise.
SettingsValues defaultValues() {
  const app::Settings settings;
  return valuesOf(engine::presetById(settings.presetId.toStdString()).cache, settings);
}

}  // namespace

SettingsPresenter::SettingsPresenter(ChatController& controller, SettingsPanel& panel,
                                     QObject* parent)
    : QObject(parent), controller_(controller), panel_(panel) {
  connect(&panel_, &SettingsPanel::edited, this, &SettingsPresenter::showForecast);
  connect(&panel_, &SettingsPanel::applyRequested, this, &SettingsPresenter::apply);
  connect(&controller_, &ChatController::modelLoaded, this, &SettingsPresenter::showModel);
  connect(&controller_, &ChatController::modelFailed, this, &SettingsPresenter::showDevice);
  connect(&controller_, &ChatController::deviceChanged, this, &SettingsPresenter::showDevice);
  connect(&controller_, &ChatController::settingsChanged, this, &SettingsPresenter::showValues);
  connect(&controller_, &ChatController::presetSwitched, this, &SettingsPresenter::showValues);
  connect(&controller_, &ChatController::conversationOpened, this, &SettingsPresenter::showValues);
  // What is in the cache, and what is free, has changed.
  connect(&controller_, &ChatController::memoryChanged, &panel_, &SettingsPanel::askForForecast);
  panel_.setDefaults(defaultValues());
  showModel();
}

void SettingsPresenter::showModel() {
  SettingsLimits limits;
  limits.nCores = QThread::idealThreadCount();
  if (const std::optional<app::ModelInfo> model = controller_.model()) {
    limits.trainedLength = model->config.trainedLength;
    limits.nLayers = static_cast<int>(model->config.nLayers);
    limits.alwaysGreedy = model->isDemo;
  }
  panel_.setLimits(limits);
  showDevice();
  showValues();
}

void SettingsPresenter::showDevice() {
  const std::optional<app::ModelInfo> model = controller_.model();
  panel_.setDevice(model ? model->backendDescription : QString(),
                   model ? model->whyNotDevice : QString());
}

SettingsValues SettingsPresenter::inUse() const {
  return valuesOf(controller_.currentCacheConfig(), controller_.settings());
}

void SettingsPresenter::showValues() { panel_.followValues(inUse()); }

void SettingsPresenter::showForecast() {
  const SettingsValues values = panel_.values();
  const std::optional<app::PresetForecast> forecast =
      controller_.forecastFor(values.cache, values.contextLength);
  const std::optional<app::SwitchCost> cost =
      controller_.switchCost(values.cache, values.contextLength);
  if (!forecast || !cost) {
    panel_.setForecast(tr("Load a model to see what this needs."), true);
    return;
  }
  QString line = tr("This needs %1 of %2.")
                     .arg(formatBytes(forecast->use.total()), formatBytes(forecast->budgetBytes));
  if (!forecast->fits) {
    line += u' ' + (forecast->largestContext > 0 ? tr("A context of %1 is the largest that fits.")
                                                       .arg(formatTokens(forecast->largestContext))
                                                 : tr("Not even the weights fit."));
  } else if (hasCost(*cost)) {
    line += u' ' + costSentences(*cost);
  }
  panel_.setForecast(line, forecast->fits);
}

void SettingsPresenter::apply() {
  // On what is in use by now: a preset that is just being switched to is not undone by values of
  // the old one.
  const SettingsValues current = inUse();
  const SettingsValues wanted = panel_.withEdits(current);
  if (wanted.sampler != current.sampler || wanted.maxTokens != current.maxTokens) {
    controller_.applySampling(wanted.sampler, wanted.maxTokens);
  }
  if (wanted.threads != current.threads) controller_.setThreads(wanted.threads);
  if (wanted.keepsSessions != current.keepsSessions ||
      wanted.sessionQuotaBytes != current.sessionQuotaBytes) {
    controller_.applySessionSettings(wanted.keepsSessions, wanted.sessionQuotaBytes,
                                     controller_.settings().keptMinTokens);
  }
  if (wanted.cache != current.cache || wanted.contextLength != current.contextLength) {
    controller_.applyCacheConfig(wanted.cache, wanted.contextLength);
  }
  showValues();  // what was accepted is in use and no longer an edit
  emit applied();
}

}  // namespace longhand::ui
