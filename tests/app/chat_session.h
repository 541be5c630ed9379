#pragma once
// A controller on the bundled model with spies on its signals, destroyed like a window that is
// closed; and questions about the sample document with the answers they get.

#include <QSignalSpy>
#include <QString>

#include "app/chat_controller.h"
#include "tests/app/plain_model.h"

namespace longhand::tests {

inline constexpr int kChatTimeoutMs = 60000;  // sanitizers are slow

inline const QString kQuestion1 = QStringLiteral("Who keeps the green ledger?");
inline const QString kAnswer1 = QStringLiteral("The keeper of the green ledger is Henry Moldak.");
inline const QString kQuestion2 = QStringLiteral("When was the old mill built?");
inline const QString kAnswer2 = QStringLiteral("The old mill was built in 1712.");

/// Data below `folder`, where no other models are.
inline app::ControllerPaths chatPaths(const QString& folder) {
  return {folder + QStringLiteral("/data"), folder, demoFolder()};
}

struct ChatSession {
  explicit ChatSession(const app::ControllerPaths& paths)
      : controller(paths),
        loaded(&controller, &app::ChatController::modelLoaded),
        loadFailed(&controller, &app::ChatController::modelFailed),
        added(&controller, &app::ChatController::messageAdded),
        changed(&controller, &app::ChatController::messageChanged),
        finished(&controller, &app::ChatController::generationFinished),
        refused(&controller, &app::ChatController::sendRefused),
        errors(&controller, &app::ChatController::errorOccurred),
        previews(&controller, &app::ChatController::documentPreviewReady),
        opened(&controller, &app::ChatController::conversationOpened),
        switched(&controller, &app::ChatController::presetSwitched),
        readProgress(&controller, &app::ChatController::prefillProgress),
        readFinished(&controller, &app::ChatController::prefillFinished),
        saved(&controller, &app::ChatController::sessionSaved),
        restored(&controller, &app::ChatController::sessionRestored),
        notices(&controller, &app::ChatController::notice) {}

  app::ChatController controller;
  QSignalSpy loaded;
  QSignalSpy loadFailed;
  QSignalSpy added;
  QSignalSpy changed;
  QSignalSpy finished;
  QSignalSpy refused;
  QSignalSpy errors;
  QSignalSpy previews;
  QSignalSpy opened;
  QSignalSpy switched;
  QSignalSpy readProgress;
  QSignalSpy readFinished;
  QSignalSpy saved;
  QSignalSpy restored;
  QSignalSpy notices;

  // All of these wait; false when nothing came.

  bool waitFor(QSignalSpy& spy) { return !spy.isEmpty() || spy.wait(kChatTimeoutMs); }
  bool start() {
    controller.start();
    return waitFor(loaded);
  }
  bool ask(const QString& text) {
    finished.clear();
    controller.send(text);
    return waitFor(finished);
  }
  bool attach(const QString& path) {
    previews.clear();
    controller.openDocument(path);
    if (!waitFor(previews)) return false;
    controller.attachDocument();
    return true;
  }

  app::Message lastMessage() const { return controller.messages().back(); }
  /// Of the last answer's prompt, what was not in the cache.
  std::int64_t computedTokens() const {
    const app::MessageStatistics statistics = lastMessage().statistics;
    return statistics.promptTokens - statistics.reusedTokens;
  }
  QString lastError() const { return errors.isEmpty() ? QString() : errors.back()[0].toString(); }
};

}  // namespace longhand::tests
