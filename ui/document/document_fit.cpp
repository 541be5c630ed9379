#include "ui/document/document_fit.h"

#include <algorithm>

#include <QCoreApplication>

#include "ui/style/format.h"

namespace longhand::ui {

std::optional<app::DocumentPreview> pendingDocument(const app::ChatController& controller) {
  std::optional<app::DocumentPreview> preview = controller.pendingDocument();
  if (!preview) return std::nullopt;
  const app::ContextState context = controller.contextState();
  const qint64 neededThen = neededContext(*preview);
  const qint64 needed = neededThen > 0 ? neededThen - preview->tokensInUse + context.usedTokens : 0;
  preview->tokensInUse = context.usedTokens;
  preview->contextLength = context.contextLength;
  preview->fitsContext = needed > 0 && needed <= preview->contextLength;
  if (needed > 0) preview->forecasts = controller.forecast(needed);
  return preview;
}

qint64 neededContext(const app::DocumentPreview& preview) {
  return preview.forecasts.empty() ? 0 : preview.forecasts.front().contextTokens;
}

QString documentRefusal(const app::DocumentPreview& preview) {
  if (preview.fitsContext) return {};
  const QString& name = preview.content.fileName;
  if (preview.tokenCount < 0) {
    return QCoreApplication::translate("longhand::ui::DocumentFit",
                                       "The tokens of %1 are not counted yet.")
        .arg(name);
  }
  return QCoreApplication::translate(
             "longhand::ui::DocumentFit",
             "%1 needs a context of %2; %3 are set. Raise it, or put the document away.")
      .arg(name, formatTokens(neededContext(preview)), formatCount(preview.contextLength));
}

}  // namespace longhand::ui
