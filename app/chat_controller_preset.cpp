// Presets: what the open conversation wants of the cache, and switching it.
#include <utility>

#include "app/chat_controller_impl.h"

namespace longhand::app {

using engine::ErrorCode;

namespace {

PresetInfo customPreset(const engine::KvCacheConfig& custom) {
  return {QString::fromUtf16(kCustomPresetId), QStringLiteral("Custom"),
          QStringLiteral("Your own values: %1.").arg(cacheConfigSummary(custom)), custom, false};
}

std::int64_t contextOf(const ModelInfo& model, std::int64_t contextLength) {
  return contextLength > 0 ? contextLength : model.config.trainedLength;
}

}  // namespace

std::vector<PresetInfo> ChatController::Impl::presets() const {
  std::vector<PresetInfo> result = presetStore.presets();
  result.push_back(customPreset(settings.customCache));
  return result;
}

std::optional<PresetInfo> ChatController::Impl::preset(const QString& id) const {
  if (id == QString::fromUtf16(kCustomPresetId)) return customPreset(settings.customCache);
  return presetStore.preset(id);
}

CacheChoice ChatController::Impl::wantedCache() const {
  const std::optional<PresetInfo> chosen = preset(presetId);
  return {chosen ? chosen->cache : engine::KvCacheConfig(), settings.contextLength};
}

std::int64_t ChatController::Impl::allowedContext() const {
  if (settings.contextLength > 0) return settings.contextLength;
  return model ? model->config.trainedLength : 0;
}

void ChatController::Impl::switchTo(const QString& newPresetId, const Settings& newSettings) {
  settingsStore.save(newSettings);
  Switch started;
  started.previousSettings = std::exchange(settings, newSettings);
  started.previousPresetId = std::exchange(presetId, newPresetId);
  started.previousCache = cache.choice();
  started.conversationId = conversationId;
  storeCacheChoice();

  const CacheChoice wanted = wantedCache();
  if (!model || load.isUnderWay() || wanted == cache.choice()) {
    emit owner.presetSwitched(presetId);
    emit owner.settingsChanged();
    refreshPendingDocument();
    return;
  }
  started.readAgain = conversationId != 0 && (cache.isOf(conversationId) || reading || answer);
  started.readOn = reading.has_value();
  if (reading) owner.cancelReading();
  stopQualityCheck(QStringLiteral("The check was stopped: the preset is being switched."));
  cache.stopSaving(conversationId);
  // Behind a running answer in the queue: that one ends with the settings it began with. Another
  // chat's tokens are not converted: this chat would begin with what they have lost.
  const auto onDone = [this](const Outcome<ConfiguredCache>& done) {
    guarded([&] { onSwitched(done); });
  };
  started.configure = started.readAgain
                          ? worker->convertCache(
                                wanted.config, allowedContext(),
                                [this](std::uint64_t doneBytes, std::uint64_t totalBytes) {
                                  emit owner.convertProgress(doneBytes, totalBytes);
                                },
                                onDone)
                          : worker->configureCache(wanted.config, allowedContext(), onDone);
  cache.setChoice(wanted);
  if (presetSwitch) presetSwitch->configure.detach();
  presetSwitch = std::move(started);
  updateActivity();
}

void ChatController::Impl::undoSwitch() {
  const Switch failed = *std::exchange(presetSwitch, std::nullopt);
  updateActivity();
  cache.setChoice(failed.previousCache);
  settings.presetId = failed.previousSettings.presetId;
  if (failed.conversationId == conversationId) {
    presetId = failed.previousPresetId;
    settings.customCache = failed.previousSettings.customCache;
    settings.contextLength = failed.previousSettings.contextLength;
    storeCacheChoice();
  } else if (failed.conversationId != 0) {
    conversationStore.setPreset(failed.conversationId, failed.previousPresetId);
    conversationStore.setContextLength(failed.conversationId,
                                       failed.previousSettings.contextLength);
  }
  settingsStore.save(settings);
  emit owner.presetSwitched(presetId);
  emit owner.settingsChanged();
}

void ChatController::Impl::onSwitched(const Outcome<ConfiguredCache>& configured) {
  if (!configured) {
    undoSwitch();
    if (configured.isCancelled()) {
      emit owner.notice(QStringLiteral("The preset was not switched: you have cancelled it."),
                        configured.error().hint);
    } else {
      reportError(configured.error());
    }
    return;
  }
  if (model) model->contextLength = configured->contextLength;
  const Switch done = *std::exchange(presetSwitch, std::nullopt);
  updateActivity();
  const bool isKept = configured->conversion.isInPlace;
  if (isKept) {
    cache.converted(configured->conversion.tokensKept);  // the kept file has the old settings
  } else {
    cache.belongsTo(0);
  }
  cache.forgetRefusal();
  emit owner.presetSwitched(presetId);
  emit owner.settingsChanged();
  setUsedTokens(usedTokens);  // the context length may be another
  refreshPendingDocument();
  const bool reads = isKept ? done.readOn : done.readAgain;
  if (reads && done.conversationId == conversationId && !answer) beginReading();
}

// --- Slots and queries --------------------------------------------------------------------------

std::optional<PresetForecast> ChatController::forecastFor(const engine::KvCacheConfig& config,
                                                          std::int64_t contextLength) const {
  std::optional<PresetForecast> result;
  if (!impl_->model) return result;
  impl_->guarded([&] {
    PresetInfo asked;
    asked.cache = config;
    result =
        forecastPresets(impl_->forecastRequest(contextOf(*impl_->model, contextLength)), {asked})
            .front();
  });
  return result;
}

std::optional<SwitchCost> ChatController::switchCost(const QString& presetId) const {
  std::optional<PresetInfo> chosen;
  impl_->guarded([&] { chosen = impl_->preset(presetId); });
  return chosen ? switchCost(chosen->cache, impl_->settings.contextLength) : std::nullopt;
}

std::optional<SwitchCost> ChatController::switchCost(const engine::KvCacheConfig& config,
                                                     std::int64_t contextLength) const {
  if (!impl_->model) return std::nullopt;
  const std::int64_t context = contextOf(*impl_->model, contextLength);
  SwitchCost cost;
  impl_->guarded([&] {
    // Another chat's tokens are not converted.
    if (!impl_->contents || !impl_->cache.isOf(impl_->conversationId)) return;
    const engine::ConvertCost change =
        engine::convertCost(*impl_->contents, impl_->model->config, config, context);
    cost.kvBytesBefore = change.bytesBefore;
    cost.kvBytesAfter = change.bytesAfter;
    if (config == impl_->cache.choice().config && change.isInPlace) return;
    cost.tokensToRead = change.tokensToRead;
    cost.pagesToConvert = change.pagesToConvert;
    cost.tokensBelowBits = change.tokensBelowBits;
    if (impl_->lastPrefillTokensPerSecond > 0.0) {
      const std::int64_t tokens =
          cost.tokensBelowBits > 0 ? impl_->contents->tokens : cost.tokensToRead;
      cost.seconds = static_cast<double>(tokens) / impl_->lastPrefillTokensPerSecond;
    }
  });
  if (const std::optional<PresetForecast> whole = forecastFor(config, context)) {
    cost.fits = whole->fits;
  }
  return cost;
}

void ChatController::switchPreset(const QString& presetId) {
  impl_->guarded([&] {
    if (!impl_->preset(presetId)) {
      throwError(ErrorCode::kInvalidArgument,
                 QStringLiteral("There is no preset \"%1\".").arg(presetId));
    }
    Settings changed = impl_->settings;
    changed.presetId = presetId;
    impl_->switchTo(presetId, changed);
  });
}

void ChatController::applyCacheConfig(const engine::KvCacheConfig& config, qint64 contextLength) {
  impl_->guarded([&] {
    config.validate();
    Settings changed = impl_->settings;
    // The trained length is no choice: another model has another one.
    const bool isTrained = impl_->model && contextLength == impl_->model->config.trainedLength;
    changed.contextLength = isTrained ? 0 : contextLength;
    const std::optional<PresetInfo> current = impl_->preset(impl_->presetId);
    QString presetId = impl_->presetId;
    if (!current || current->cache != config) {
      const std::optional<PresetInfo> same = PresetStore::builtInWith(config);
      presetId = same ? same->id : QString::fromUtf16(kCustomPresetId);
      if (!same) changed.customCache = config;
      changed.presetId = presetId;
    }
    impl_->switchTo(presetId, changed);
  });
}

void ChatController::cancelSwitch() {
  if (impl_->presetSwitch) impl_->presetSwitch->configure.cancel();
}

void ChatController::saveUserPreset(const QString& name, const engine::KvCacheConfig& config) {
  impl_->guarded([&] {
    impl_->presetStore.addUserPreset(name, config);
    emit presetsChanged();
  });
}

void ChatController::removeUserPreset(const QString& presetId) {
  impl_->guarded([&] {
    // Chats that used it go on with the same values, as "custom".
    if (presetId == impl_->presetId) {
      applyCacheConfig(currentCacheConfig(), impl_->settings.contextLength);
    }
    impl_->presetStore.removeUserPreset(presetId);
    emit presetsChanged();
  });
}

}  // namespace longhand::app
