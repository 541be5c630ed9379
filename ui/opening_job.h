#pragma once
// What the command line asks for, done step by step in the real window: wait for the model, open
// the document, use it, ask. Ends with finished() or failed(), once.

#include <QObject>
#include <QTimer>

#include "app/chat_controller.h"

namespace longhand::ui {

class MainWindow;

class OpeningJob final : public QObject {
  Q_OBJECT
  Q_DISABLE_COPY_MOVE(OpeningJob)

 public:
  struct Task {
    QString documentPath;       // may be empty
    QString question;           // may be empty
    bool readsDocument = true;  // without a question: read the document at once
  };

  /// Controller and window must outlive the job. Starts with start(), before the controller's.
  OpeningJob(app::ChatController& controller, MainWindow& window, const Task& task,
             QObject* parent);
  void start();

 signals:
  void finished();
  void failed(const QString& line);

 private:
  void onModelLoaded();
  void onPreview(const app::DocumentPreview& preview);
  void onDocumentAttached();
  void onAnswered(const QString& stopReason);
  void fail(const QString& line);
  void finish();

  enum class Step { kModel, kPreview, kAttach, kRead, kAnswer, kDone };

  app::ChatController& controller_;
  MainWindow& window_;
  Task task_;
  Step step_ = Step::kModel;
  bool isAsked_ = false;  // the question is stored; before, a failure leaves it in the composer
};

}  // namespace longhand::ui
