#include "ui/settings/preset_switcher.h"

#include <utility>

#include "app/chat_controller.h"
#include "ui/settings/switch_words.h"
#include "ui/style/notice_bar.h"

using namespace Qt::StringLiterals;

namespace longhand::ui {

namespace {

QString nameOf(const app::ChatController& controller, const QString& presetId) {
  for (const app::PresetInfo& preset : controller.presets()) {
    if (preset.id == presetId) return preset.name;
  }
  return presetId;
}

}  // namespace

PresetSwitcher::PresetSwitcher(app::ChatController& controller, NoticeBar& bar, QObject* parent)
    : QObject(parent), controller_(controller), bar_(bar) {
  connect(&bar_, &NoticeBar::actionTriggered, this, [this] {
    if (asked_.isEmpty()) {
      controller_.readAgain();
    } else {
      controller_.switchPreset(std::exchange(asked_, QString()));
    }
  });
  connect(&controller_, &app::ChatController::presetSwitched, this, [this](const QString& preset) {
    if (!offered_.isEmpty() && preset == offered_) offerReading();
    offered_.clear();
  });
  connect(&bar_, &NoticeBar::dismissed, this, &PresetSwitcher::cancelled);
  connect(&controller_, &app::ChatController::conversationOpened, &bar_, &NoticeBar::dismiss);
}

void PresetSwitcher::ask(const QString& presetId) {
  const bool isCustom = presetId == app::kCustomPresetId;
  // Until own values were applied there is nothing to switch to: they are entered in the settings.
  const bool hasCustom = controller_.settings().customCache != app::Settings().customCache;
  if (isCustom && (!hasCustom || presetId == controller_.currentPreset())) {
    emit cancelled();
    emit customWanted();
    return;
  }
  if (presetId == controller_.currentPreset()) {
    bar_.dismiss();
    return;
  }
  const std::optional<app::SwitchCost> cost = controller_.switchCost(presetId);
  offered_.clear();
  if (!cost || !hasCost(*cost)) {
    bar_.dismiss();
    controller_.switchPreset(presetId);
    return;
  }
  asked_ = presetId;
  const QString name = nameOf(controller_, presetId);
  if (cost->tokensBelowBits > 0) {
    offered_ = presetId;
    offer_ = tr("New tokens get the bits of %1. Reading again gives them to all%2.")
                 .arg(name, aboutDuration(cost->seconds));
  }
  bar_.showNotice(tr("Switch to %1?").arg(name), costSentences(*cost), tr("Switch"));
  bar_.focusAction();
}

void PresetSwitcher::offerReading() {
  bar_.showNotice(tr("What was read before keeps its fewer bits."), offer_, tr("Read again"));
}

void PresetSwitcher::askNumber(int index) {
  const std::vector<app::PresetInfo> presets = controller_.presets();
  if (index < 0 || index >= static_cast<int>(presets.size())) return;
  ask(presets[static_cast<std::size_t>(index)].id);
}

}  // namespace longhand::ui
