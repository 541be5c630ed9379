#include "ui/document/document_presenter.h"

#include <algorithm>

#include <QFileInfo>

#include "ui/document/document_fit.h"
#include "ui/document/document_panel.h"
#include "ui/style/format.h"

using namespace Qt::StringLiterals;

namespace longhand::ui {

namespace {

DocumentSummary summaryOf(const app::DocumentPreview& preview) {
  DocumentSummary summary;
  summary.name = preview.content.fileName;
  summary.encoding = preview.content.encoding;
  summary.characters = preview.content.text.size();
  summary.tokens = preview.tokenCount;
  summary.losses = preview.content.notes;
  summary.text = preview.content.text;
  return summary;
}

DocumentSummary summaryOf(const app::Document& document) {
  return {document.fileName,   document.encoding, document.text.size(),
          document.tokenCount, document.notes,    document.text};
}

/// The largest context of the preset in use, and of the best preset.
std::pair<qint64, qint64> largestContexts(const app::DocumentPreview& preview,
                                          const QString& presetId) {
  qint64 current = 0;
  qint64 best = 0;
  for (const app::PresetForecast& forecast : preview.forecasts) {
    best = std::max<qint64>(best, forecast.largestContext);
    if (forecast.preset.id == presetId) current = forecast.largestContext;
  }
  return {current, best};
}

QString trainingWarning(const app::DocumentPreview& preview) {
  if (preview.trainedLength <= 0 || neededContext(preview) <= preview.trainedLength) return {};
  return DocumentPresenter::tr("The model was trained for %1: beyond, answers get worse.")
      .arg(formatTokens(preview.trainedLength));
}

DocumentAdvice adviceFor(const app::DocumentPreview& preview, const QString& presetId) {
  DocumentAdvice advice;
  if (preview.tokenCount < 0) {
    advice.canUse = false;
    advice.text = DocumentPresenter::tr("Load a model to see what this document needs.");
    return advice;
  }
  advice.canUse = preview.fitsContext;
  if (preview.fitsContext) {
    advice.text = trainingWarning(preview);
    return advice;
  }
  const qint64 needed = roundedContext(neededContext(preview));
  const auto [largest, best] = largestContexts(preview, presetId);
  advice.text = DocumentPresenter::tr("It needs a context of %1; %2 are set. Nothing is cut.")
                    .arg(formatTokens(needed), formatCount(preview.contextLength));
  if (needed <= largest) {
    advice.contextToOffer = needed;
    advice.text += u' ' + trainingWarning(preview);
  } else if (needed <= best) {
    advice.text += u' ' + DocumentPresenter::tr("Choose a preset that fits, as the table says.");
  } else {
    advice.text += u' ' + DocumentPresenter::tr(
                              "No preset fits this machine's memory: use a "
                              "shorter document.");
  }
  return advice;
}

}  // namespace

using app::Activity;
using app::ChatController;

DocumentPresenter::DocumentPresenter(ChatController& controller, DocumentPanel& panel,
                                     QObject* parent)
    : QObject(parent), controller_(controller), panel_(panel) {
  connect(&panel_, &DocumentPanel::openRequested, this, &DocumentPresenter::openDialogRequested);
  connect(&panel_, &DocumentPanel::qualityCheckRequested, this,
          &DocumentPresenter::qualityCheckRequested);
  connect(&panel_, &DocumentPanel::readRequested, this, &DocumentPresenter::readNow);
  connect(&panel_, &DocumentPanel::useRequested, this, [this] {
    controller_.attachDocument();
    emit composerWanted();
  });
  connect(&panel_, &DocumentPanel::discardRequested, &controller_,
          &ChatController::discardDocument);
  connect(&panel_, &DocumentPanel::cancelWorkRequested, this, &DocumentPresenter::cancelWork);
  connect(&panel_, &DocumentPanel::removeRequested, this, [this] {
    controller_.detachDocument(shownDocument_);
    emit composerWanted();
  });
  connect(&panel_, &DocumentPanel::raiseContextRequested, this, &DocumentPresenter::raiseContext);

  connect(&controller_, &ChatController::documentReadProgress, &panel_,
          &DocumentPanel::setExaminingProgress);
  connect(&controller_, &ChatController::documentCountProgress, &panel_,
          &DocumentPanel::setCountingProgress);
  connect(&controller_, &ChatController::documentPreviewReady, this, [this] {
    isOpening_ = false;
    showCurrent();  // it may be part of the chat by now: a sample question does that
  });
  connect(&controller_, &ChatController::documentDiscarded, this, [this] {
    isOpening_ = false;
    showCurrent();
  });
  connect(&controller_, &ChatController::documentsChanged, this, &DocumentPresenter::showCurrent);
  connect(&controller_, &ChatController::conversationOpened, this, [this] {
    shownDocument_ = 0;
    showCurrent();
  });
  connect(&controller_, &ChatController::prefillFinished, this, &DocumentPresenter::endReading);
  connect(&controller_, &ChatController::memoryChanged, this, [this] {
    const bool isQuiet = controller_.activity() == Activity::kIdle && !isOpening_;
    if (isQuiet && showsAsRead_ != controller_.isContextRead()) showCurrent();
  });
  connect(&controller_, &ChatController::settingsChanged, this, &DocumentPresenter::refresh);
  connect(&controller_, &ChatController::presetSwitched, this, &DocumentPresenter::refresh);
  connect(&controller_, &ChatController::prefillProgress, this, &DocumentPresenter::showReading);
  connect(&controller_, &ChatController::activityChanged, this, [this] {
    if (!isOpening_) showCurrent();
  });
  connect(&controller_, &ChatController::errorOccurred, this, [this] {
    if (isReading_ && controller_.activity() != Activity::kReading) endReading();
    if (isOpening_) {
      isOpening_ = false;
      showCurrent();
    }
  });
  showCurrent();
}

void DocumentPresenter::open(const QString& path) {
  isOpening_ = true;
  panel_.beginExamining(QFileInfo(path).fileName());
  emit panelWanted();
  emit openingStarted();
  controller_.openDocument(path);
}

void DocumentPresenter::openSample() {
  if (const std::optional<app::DemoModel> demo = controller_.demo()) open(demo->documentPath);
}

void DocumentPresenter::show(qint64 documentId) {
  shownDocument_ = documentId;
  if (!controller_.pendingDocument()) showCurrent();
  emit panelWanted();
}

void DocumentPresenter::showCandidate(const app::DocumentPreview& preview) {
  panel_.showCandidate(summaryOf(preview), adviceFor(preview, controller_.currentPreset()));
  panel_.setForecasts(preview.forecasts,
                      {preview.contextLength, neededContext(preview), controller_.currentPreset()});
}

void DocumentPresenter::refresh() {
  if (controller_.pendingDocument()) showCurrent();
}

void DocumentPresenter::showCurrent() {
  if (const std::optional<app::DocumentPreview> pending = pendingDocument(controller_)) {
    showCandidate(*pending);
    return;
  }
  const std::vector<app::Document> documents = controller_.documents();
  if (documents.empty()) {
    panel_.showEmpty();
    return;
  }
  auto shown = std::find_if(documents.begin(), documents.end(),
                            [this](const auto& d) { return d.id == shownDocument_; });
  if (shown == documents.end()) shown = documents.end() - 1;
  const bool isIdle = controller_.activity() == Activity::kIdle && controller_.model().has_value();
  showsAsRead_ = controller_.isContextRead();
  panel_.showInUse(summaryOf(*shown),
                   showsAsRead_ ? tr("Part of this chat, and read: questions start at once.")
                                : tr("Part of this chat. It is read with the next question."),
                   isIdle && !showsAsRead_);
  shownDocument_ = shown->id;
  if (isReading_ && controller_.activity() == Activity::kReading) {
    panel_.beginReading(shown->fileName);
  }
}

void DocumentPresenter::showReading(const engine::PrefillProgress& progress) {
  if (!isReading_ || controller_.activity() != Activity::kReading) return;
  panel_.setReadingProgress(progress);
}

void DocumentPresenter::readNow() {
  if (controller_.pendingDocument()) controller_.attachDocument();
  isReading_ = true;
  emit readingHere(true);
  controller_.readDocument();
  emit composerWanted();
}

void DocumentPresenter::endReading() {
  isReading_ = false;
  emit readingHere(false);
  showCurrent();
}

void DocumentPresenter::cancelWork() {
  if (controller_.activity() == Activity::kReading) {
    controller_.cancelReading();
  } else {
    controller_.discardDocument();
  }
}

void DocumentPresenter::raiseContext(qint64 contextLength) {
  controller_.applyCacheConfig(controller_.currentCacheConfig(), contextLength);
}

}  // namespace longhand::ui
