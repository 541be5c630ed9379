#include "ui/settings/preset_switcher.h"

#include <utility>

#include "app/chat_controller.h"
#include "ui/style/format.h"
#include "ui/style/notice_bar.h"

using namespace Qt::StringLiterals;

namespace longhand::ui {

namespace {

QString about(double seconds) {
  return seconds > 0.0 ? PresetSwitcher::tr(", about %1").arg(formatDuration(seconds)) : QString();
}

QString costSentences(const app::SwitchCost& cost) {
  QString text = PresetSwitcher::tr("KV cache of this chat: %1 now, %2 then.")
                     .arg(formatBytes(cost.kvBytesBefore), formatBytes(cost.kvBytesAfter));
  if (cost.tokensToRead > 0) {
    text += u' ' + PresetSwitcher::tr("%1 must be read again%2.")
                       .arg(formatTokens(cost.tokensToRead), about(cost.seconds));
  } else if (cost.pagesToConvert > 0) {
    text += u' ' + PresetSwitcher::tr(
                       "It is converted in place; only reading again would bring "
                       "the dropped bits back.");
  }
  if (cost.tokensBelowBits > 0) {
    text += u' ' + PresetSwitcher::tr("%1 keep the fewer bits they have.")
                       .arg(formatTokens(cost.tokensBelowBits));
  }
  text += u' ' + PresetSwitcher::tr("The chat is kept.");
  if (!cost.fits) {
    text +=
        u' ' + PresetSwitcher::tr("The whole context does not fit the memory with this preset.");
  }
  return text;
}

bool hasCost(const app::SwitchCost& cost) {
  return cost.tokensToRead > 0 || cost.pagesToConvert > 0 || cost.tokensBelowBits > 0 || !cost.fits;
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
  if (cost->tokensBelowBits > 0) {
    offered_ = presetId;
    offer_ = tr("New tokens get the bits of %1. Reading again gives them to all%2.")
                 .arg(cost->preset.name, about(cost->seconds));
  }
  bar_.showNotice(tr("Switch to %1?").arg(cost->preset.name), costSentences(*cost), tr("Switch"));
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
