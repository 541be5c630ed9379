#include "ui/settings/settings_presenter.h"

#include <QThread>

#include "app/chat_controller.h"
#include "ui/settings/settings_panel.h"
#include "ui/style/format.h"

using namespace Qt::StringLiterals;

namespace longhand::ui {

using app::ChatController;

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

void SettingsPresenter::showValues() {
  const app::Settings& settings = controller_.settings();
  SettingsValues values;
  values.cache = controller_.currentCacheConfig();
  values.sampler = settings.sampler;
  values.contextLength = settings.contextLength;
  values.maxTokens = settings.maxAnswerTokens;
  values.threads = settings.threads;
  values.keepsSessions = settings.keepsSessions;
  values.sessionQuotaBytes = settings.sessionQuotaBytes;
  panel_.followValues(values);
}

void SettingsPresenter::showForecast() {
  const SettingsValues values = panel_.values();
  const std::vector<app::PresetForecast> known = controller_.forecast(values.contextLength);
  const std::optional<app::ModelInfo> model = controller_.model();
  if (known.empty() || !model) {
    panel_.setForecast(tr("Load a model to see what this needs."), true);
    return;
  }
  app::ForecastRequest request;
  request.model = model->config;
  request.weights = model->weights;
  request.weightBytes = model->weightBytes;
  request.contextTokens = values.contextLength;
  request.budgetBytes = known.front().budgetBytes;
  app::PresetInfo preset;
  preset.cache = values.cache;
  const app::PresetForecast forecast = app::forecastPresets(request, {preset}).front();

  QString line = tr("This needs %1 of %2.")
                     .arg(formatBytes(forecast.use.total()), formatBytes(forecast.budgetBytes));
  if (!forecast.fits) {
    line += u' ' + (forecast.largestContext > 0 ? tr("A context of %1 is the largest that fits.")
                                                      .arg(formatTokens(forecast.largestContext))
                                                : tr("Not even the weights fit."));
  }
  const qint64 cachedTokens = controller_.memory().cachedTokens;
  const bool changesCache = values.cache != controller_.currentCacheConfig();
  if (forecast.fits && changesCache && cachedTokens > 0) {
    line += u' ' + tr("Applying reads %1 again; the chat is kept.").arg(formatTokens(cachedTokens));
  }
  panel_.setForecast(line, forecast.fits);
}

void SettingsPresenter::apply() {
  showValues();  // a preset that is just being switched to is not undone by values of the old one
  const SettingsValues values = panel_.values();
  const app::Settings settings = controller_.settings();
  if (values.sampler != settings.sampler || values.maxTokens != settings.maxAnswerTokens) {
    controller_.applySampling(values.sampler, values.maxTokens);
  }
  if (values.threads != settings.threads) controller_.setThreads(values.threads);
  if (values.keepsSessions != settings.keepsSessions ||
      values.sessionQuotaBytes != settings.sessionQuotaBytes) {
    controller_.applySessionSettings(values.keepsSessions, values.sessionQuotaBytes,
                                     settings.keptMinTokens);
  }
  const std::optional<app::ModelInfo> model = controller_.model();
  const qint64 contextInUse = settings.contextLength > 0 ? settings.contextLength
                              : model                    ? model->config.trainedLength
                                                         : 0;
  const bool changesContext = values.contextLength != contextInUse;
  if (values.cache != controller_.currentCacheConfig() || changesContext) {
    controller_.applyCacheConfig(values.cache,
                                 changesContext ? values.contextLength : settings.contextLength);
  }
  showValues();  // what was accepted is in use and no longer an edit
  emit applied();
}

}  // namespace longhand::ui
