#pragma once
// What switching the cache's settings costs, in sentences: the same above the chat and in the
// settings.

#include <QString>

namespace longhand::app {
struct SwitchCost;
}

namespace longhand::ui {

/// False where the switch has nothing to say: it loses, reads and converts nothing.
bool hasCost(const app::SwitchCost& cost);
QString costSentences(const app::SwitchCost& cost);
/// ", about 12 s"; empty where the time is not known.
QString aboutDuration(double seconds);

}  // namespace longhand::ui
