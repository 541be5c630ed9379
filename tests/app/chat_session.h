#pragma once
// A controller on the bundled model with spies on its signals, destroyed like a window that is
// closed; and questions about the sample document with the answers they get.

#include <memory>

#include <QSignalSpy>
#include <QString>

#include "app/chat_controller.h"
#include "engine/cache/presets.h"
#include "tests/app/plain_model.h"

namespace longhand::tests {

inline constexpr int kChatTimeoutMs = 60000;  // sanitizers are slow

inline const QString kQuestion1 = QStringLiteral("Who keeps the green ledger?");
inline const QString kAnswer1 = QStringLiteral("The keeper of the green ledger is Henry Moldak.");
inline const QString kQuestion2 = QStringLiteral("When was the old mill built?");
inline const QString kAnswer2 = QStringLiteral("The old mill was built in 1712.");

inline QString samplePath() { return demoFolder() + QStringLiteral("/sample-document.txt"); }

/// Data below `folder`, where no other models are.
inline app::ControllerPaths chatPaths(const QString& folder) {
  return {folder + QStringLiteral("/data"), folder, demoFolder(), {}};
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

/// A session whose model is loaded.
inline std::unique_ptr<ChatSession> startedSession(const QString& folder) {
  auto session = std::make_unique<ChatSession>(chatPaths(folder));
  if (!session->start()) qWarning("the model did not load");
  return session;
}

/// With the same model as a plain one whose answers do not come to an end.
inline std::unique_ptr<ChatSession> endlessSession(const QString& folder) {
  auto session = startedSession(folder);
  session->loaded.clear();
  session->controller.loadModel(makeEndlessModel(folder), engine::WeightFormat::kAuto);
  if (!session->waitFor(session->loaded)) qWarning("the plain model did not load");
  engine::SamplerConfig wild;
  wild.temperature = 2.0;
  wild.topK = 0;
  wild.topP = 1.0;
  wild.minP = 0.05;  // not the byte 0, which ends the answer: it came once in 700 tokens at 0.001
  session->controller.applySampling(wild, 0);
  session->controller.applyCacheConfig(engine::presetById("quality").cache, 100000);
  return session;
}

/// Sends and waits for the first words of an endless answer.
inline bool sendAndSeeWords(ChatSession& session) {
  session.changed.clear();
  session.controller.send(QStringLiteral("Tell me everything."));
  return session.changed.wait(kChatTimeoutMs);
}

}  // namespace longhand::tests
