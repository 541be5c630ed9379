#include "ui/opening_job.h"

#include "ui/main_window.h"
#include "ui/style/format.h"

using namespace Qt::StringLiterals;

namespace longhand::ui {

using app::ChatController;

OpeningJob::OpeningJob(ChatController& controller, MainWindow& window, const Task& task,
                       QObject* parent)
    : QObject(parent), controller_(controller), window_(window), task_(task) {}

void OpeningJob::start() {
  const auto describe = [](const QString& message, const QString& hint) {
    return hint.isEmpty() ? message : message + u' ' + hint;
  };
  connect(&controller_, &ChatController::modelLoaded, this, &OpeningJob::onModelLoaded);
  connect(&controller_, &ChatController::documentPreviewReady, this, &OpeningJob::onPreview);
  connect(&controller_, &ChatController::documentsChanged, this, &OpeningJob::onDocumentAttached);
  connect(&controller_, &ChatController::prefillFinished, this, [this](bool isCancelled) {
    if (step_ != Step::kRead) return;
    if (isCancelled) {
      fail(tr("Reading the document was cancelled."));
    } else {
      finish();
    }
  });
  connect(&controller_, &ChatController::messageAdded, this, [this] { isAsked_ = true; });
  connect(&controller_, &ChatController::generationFinished, this,
          [this](qint64, const app::MessageStatistics&, const QString& stopReason) {
            onAnswered(stopReason);
          });
  const auto failWith = [this, describe](const QString& message, const QString& hint) {
    fail(describe(message, hint));
  };
  connect(&controller_, &ChatController::modelFailed, this, failWith);
  connect(&controller_, &ChatController::errorOccurred, this, failWith);
  connect(&controller_, &ChatController::sendRefused, this,
          [this] { fail(tr("The question was not sent.")); });
}

void OpeningJob::onModelLoaded() {
  if (step_ != Step::kModel) return;
  if (!task_.documentPath.isEmpty() || !task_.question.isEmpty()) window_.newChat();
  if (!task_.documentPath.isEmpty()) {
    step_ = Step::kPreview;
    window_.openDocument(task_.documentPath);
  } else if (!task_.question.isEmpty()) {
    step_ = Step::kAnswer;
    controller_.send(task_.question);
  } else {
    finish();
  }
}

void OpeningJob::onPreview(const app::DocumentPreview& preview) {
  if (step_ != Step::kPreview) return;
  if (!preview.fitsContext) {
    fail(tr("%1 does not fit: %2 tokens, and the context is %3.")
             .arg(preview.content.fileName, formatCount(preview.tokenCount),
                  formatTokens(preview.contextLength)));
    return;
  }
  if (task_.question.isEmpty() && !task_.readsDocument) {
    finish();  // its forecast is what is to be seen
    return;
  }
  step_ = Step::kAttach;
  if (controller_.pendingDocument()) controller_.attachDocument();
}

void OpeningJob::onDocumentAttached() {
  if (step_ != Step::kAttach) return;
  if (task_.question.isEmpty()) {
    step_ = Step::kRead;
    controller_.readDocument();
  } else {
    step_ = Step::kAnswer;
    controller_.send(task_.question);
  }
}

void OpeningJob::onAnswered(const QString& stopReason) {
  if (step_ != Step::kAnswer) return;
  if (stopReason == "cancelled"_L1) {
    fail(tr("The answer was cancelled."));
  } else {
    finish();
  }
}

void OpeningJob::fail(const QString& line) {
  if (step_ == Step::kDone) return;
  if (!isAsked_ && !task_.question.isEmpty()) window_.writeQuestion(task_.question);
  step_ = Step::kDone;
  disconnect(&controller_, nullptr, this, nullptr);
  emit failed(line);
}

void OpeningJob::finish() {
  step_ = Step::kDone;
  disconnect(&controller_, nullptr, this, nullptr);
  emit finished();
}

}  // namespace longhand::ui
