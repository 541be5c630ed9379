#include "ui/preset_switcher.h"

#include <utility>

#include "app/chat_controller.h"
#include "ui/format.h"
#include "ui/notice_bar.h"

using namespace Qt::StringLiterals;

namespace longhand::ui {

namespace {

QString costSentences(const app::SwitchCost& cost) {
  QString text = PresetSwitcher::tr(
                     "KV cache of this chat: %1 now, %2 then. %3 must be read again%4. The chat "
                     "is kept.")
                     .arg(formatBytes(cost.kvBytesBefore), formatBytes(cost.kvBytesAfter),
                          formatTokens(cost.tokensToRead),
                          cost.seconds > 0.0
                              ? PresetSwitcher::tr(", about %1").arg(formatDuration(cost.seconds))
                              : QString());
  if (!cost.fits) {
    text +=
        u' ' + PresetSwitcher::tr("The whole context does not fit the memory with this preset.");
  }
  return text;
}

}  // namespace

PresetSwitcher::PresetSwitcher(app::ChatController& controller, NoticeBar& bar, QObject* parent)
    : QObject(parent), controller_(controller), bar_(bar) {
  connect(&bar_, &NoticeBar::actionTriggered, this,
          [this] { controller_.switchPreset(std::exchange(asked_, QString())); });
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
  if (!cost || (cost->tokensToRead == 0 && cost->fits)) {
    bar_.dismiss();
    controller_.switchPreset(presetId);
    return;
  }
  asked_ = presetId;
  bar_.showNotice(tr("Switch to %1?").arg(cost->preset.name), costSentences(*cost), tr("Switch"));
  bar_.focusAction();
}

void PresetSwitcher::askNumber(int index) {
  const std::vector<app::PresetInfo> presets = controller_.presets();
  if (index < 0 || index >= static_cast<int>(presets.size())) return;
  ask(presets[static_cast<std::size_t>(index)].id);
}

}  // namespace longhand::ui
