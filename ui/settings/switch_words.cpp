#include "ui/settings/switch_words.h"

#include <QCoreApplication>

#include "app/chat_controller.h"
#include "ui/style/format.h"

using namespace Qt::StringLiterals;

namespace longhand::ui {

namespace {

class SwitchWords {
  Q_DECLARE_TR_FUNCTIONS(SwitchWords)
};

}  // namespace

bool hasCost(const app::SwitchCost& cost) {
  return cost.tokensToRead > 0 || cost.pagesToConvert > 0 || cost.tokensBelowBits > 0 || !cost.fits;
}

QString aboutDuration(double seconds) {
  return seconds > 0.0 ? SwitchWords::tr(", about %1").arg(formatDuration(seconds)) : QString();
}

QString costSentences(const app::SwitchCost& cost) {
  QString text = SwitchWords::tr("KV cache of this chat: %1 now, %2 then.")
                     .arg(formatBytes(cost.kvBytesBefore), formatBytes(cost.kvBytesAfter));
  if (cost.tokensToRead > 0) {
    text += u' ' + SwitchWords::tr("%1 must be read again%2.")
                       .arg(formatTokens(cost.tokensToRead), aboutDuration(cost.seconds));
  } else if (cost.pagesToConvert > 0) {
    text += u' ' + SwitchWords::tr(
                       "It is converted in place; only reading again would bring the dropped "
                       "bits back.");
  }
  if (cost.tokensBelowBits > 0) {
    text += u' ' + SwitchWords::tr("%1 keep the fewer bits they have.")
                       .arg(formatTokens(cost.tokensBelowBits));
  }
  text += u' ' + SwitchWords::tr("The chat is kept.");
  if (!cost.fits) {
    text += u' ' + SwitchWords::tr("The whole context does not fit the memory with this preset.");
  }
  return text;
}

}  // namespace longhand::ui
