#pragma once
// What is behind ChatController, in six files: chat_controller.cpp (conversations and queries),
// chat_controller_answer.cpp (sending, answers, branches), chat_controller_engine.cpp (model,
// context, reading ahead), chat_controller_preset.cpp, chat_controller_document.cpp
// and chat_controller_quality.cpp. What the cache is and whose, its CacheKeeper knows. Private to
// them.
//
// The worker carries out commands in order, so a cache that must be configured first is configured
// by the command in front. Each thing under way holds the jobs of its commands: when it is given
// up, they are cancelled, and nothing more is heard of them.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <QDateTime>
#include <QElapsedTimer>
#include <QTimer>

#include "app/cache_keeper.h"
#include "app/chat_controller.h"
#include "app/chat_prompt.h"
#include "app/database.h"
#include "app/engine_worker.h"

namespace longhand::app {

/// A prompt that leaves less room than this for its answer is refused.
inline constexpr std::int64_t kAnswerRoomTokens = 32;

class ChatController::Impl {
 public:
  Impl(ChatController& controller, const ControllerPaths& controllerPaths);
  ~Impl();

  // --- State ----------------------------------------------------------------------------------

  /// An answer, from send() to its end.
  struct Answer {
    std::int64_t conversationId = 0;
    std::int64_t parentId = 0;        // message above the question, or the question itself
    std::optional<QString> question;  // not stored yet; nothing: parentId is the question
    bool createsConversation = false;
    bool opensBranch = false;  // an edit or a regeneration: the window shows the branch anew
    Job encode;
    Job generate;
    bool stopRequested = false;  // before generate was given
    Message message;             // the answer, once stored
    bool isDirty = false;        // has text that is not stored
    QElapsedTimer sinceSend;
    double encodeSeconds = 0.0;
  };

  /// A reading ahead.
  struct Reading {
    Job encode;
    Job prefill;
    std::int64_t conversationId = 0;
  };

  /// A model that is being loaded.
  struct LoadChoice {
    QString folder;
    engine::WeightFormat weights = engine::WeightFormat::kAuto;
    CacheChoice cache;
    CacheChoice previousCache;
  };

  /// A change of preset or context that the engine has not confirmed.
  struct Switch {
    Job configure;
    CacheChoice previousCache;
    std::int64_t conversationId = 0;
    QString previousPresetId;
    Settings previousSettings;
    bool readAgain = false;  // where the cache cannot be kept
    bool readOn = false;     // a reading was under way
  };

  /// A check of the presets' quality.
  struct QualityCheck {
    Job job;
    QString stopReason;  // once it was stopped
  };

  /// A document that is being opened or shown.
  struct PendingDocument {
    DocumentPreview preview;
    Job count;
    bool isReady = false;
  };

  /// A document that is being counted again.
  struct Recount {
    Job job;
    std::int64_t documentId = 0;
    std::uint64_t tokenizerFingerprint = 0;
  };

  // --- Shared by the files --------------------------------------------------------------

  /// Runs a slot's work; what it throws becomes errorOccurred. False when it threw.
  bool guarded(const std::function<void()>& work);
  void reportError(const ErrorText& error);
  void updateActivity();
  std::vector<Message> currentBranch() const;
  std::vector<Document> currentDocuments() const;
  /// The open conversation's id; stores it first where it is new.
  std::int64_t ensureConversation();
  void openConversation(std::int64_t id);
  /// Stores the preset, custom values and context length with the open conversation.
  void storeCacheChoice();

  // --- chat_controller_answer.cpp -------------------------------------------------------------

  void connectStoreTimer();
  /// Throws when no answer can be begun now.
  void requireReadyToAnswer() const;
  /// Begins an answer: encodes the prompt; the rest follows with onAnswerEncoded.
  void beginAnswer(Answer started);
  void refuseAnswer(const ErrorText& error);
  void takeBackConversation(const Answer& refused);
  void onAnswerEncoded(const EncodedPrompt& prompt);
  void storeQuestionAndAnswer();
  void onAnswerGrew(const AnswerPiece& piece);
  void onAnswerFinished(const Outcome<engine::GenerateResult>& outcome);
  void endAnswer(MessageState state, const QString& stopReason);
  /// Of the context, with this answer at its end.
  std::int64_t tokensOf(const Message& message) const;
  /// For the destructor: keeps what has streamed.
  void storeInterruptedAnswer();
  engine::GenerateOptions generateOptions() const;

  // --- chat_controller_engine.cpp -------------------------------------------------------------

  void connectEngineEvents();
  void loadModel(const QString& folder, engine::WeightFormat weights);
  void onModelLoaded(const Outcome<ModelInfo>& loaded);
  void onDeviceRestarted(const DeviceRestart& restart);
  void onReadingEncoded(const Outcome<EncodedPrompt>& prompt);
  void onPrefillFinished(const Outcome<PrefillOutcome>& outcome);
  void failReading(const ErrorText& error);
  /// Of the command in front of an answer or a reading.
  void refuseWork(const ErrorText& error);
  void onMemoryReported(const MemoryNews& news);

  /// Throws when nothing can be read now.
  void beginReading();
  void endReading(bool isCancelled);
  /// Counts the tokens of the open conversation's context again.
  void measureContext();
  /// Of a chat in which nothing is left.
  void releaseEmptyCache();
  void setUsedTokens(std::int64_t tokens);
  /// The open conversation's tokens as far as they are known without encoding them.
  std::int64_t knownTokens() const;
  bool isAnsweringHere() const { return answer && answer->conversationId == conversationId; }
  /// Nothing when a prompt of this size fits the context, else the refusal with its numbers.
  std::optional<ErrorText> contextRefusal(std::int64_t promptTokens) const;
  ForecastRequest forecastRequest(std::int64_t contextTokens) const;

  // --- chat_controller_preset.cpp -------------------------------------------------------------

  std::vector<PresetInfo> presets() const;
  std::optional<PresetInfo> preset(const QString& id) const;
  /// What the open conversation wants of the cache.
  CacheChoice wantedCache() const;
  std::int64_t allowedContext() const;  // of the choice, as tokens
  void switchTo(const QString& newPresetId, const Settings& newSettings);
  void undoSwitch();
  void onSwitched(const Outcome<ConfiguredCache>& configured);

  // --- chat_controller_document.cpp -----------------------------------------------------------

  void connectDocumentEvents();
  void onRecounted(std::int64_t documentId, const Outcome<std::int64_t>& tokens);
  void countPendingDocument();
  void showPendingDocument();
  /// Shows it again where the room for it has changed.
  void refreshPendingDocument();
  /// Counts those of the open conversation that another model's tokenizer has counted.
  void recountDocuments();

  // --- chat_controller_quality.cpp ------------------------------------------------------------

  /// What is measured: a name for people, and the text. Throws when there is none.
  std::pair<QString, QString> textToCheck() const;
  /// Ends the check that is under way, if any: `reason` is what qualityFailed will say.
  void stopQualityCheck(const QString& reason);
  void onQualityChecked(const Outcome<QualityCheckResult>& outcome);

  // --- Data -----------------------------------------------------------------------------------

  ChatController& owner;
  ControllerPaths paths;
  std::unique_ptr<Database> database;
  ConversationStore conversationStore;
  DocumentStore documentStore;
  SettingsStore settingsStore;
  PresetStore presetStore;
  Settings settings;
  DocumentReader documentReader;
  QTimer storeTimer;  // stores a streaming answer

  std::int64_t conversationId = 0;       // open; 0: new, not stored
  QString presetId;                      // of the open conversation
  std::vector<std::int64_t> deletedIds;  // the last deleted at the end
  std::optional<DemoModel> demo;
  CacheKeeper cache;

  std::optional<ModelInfo> model;
  Job load;
  LoadChoice loadChoice;
  std::optional<Switch> presetSwitch;
  std::optional<Answer> answer;
  std::optional<Reading> reading;
  std::optional<PendingDocument> pending;
  std::vector<Recount> recounts;
  Job measure;
  std::optional<QualityCheck> qualityCheck;
  std::int64_t usedTokens = 0;
  double lastPrefillTokensPerSecond = 0.0;
  engine::MemoryReport memory;
  std::optional<engine::CacheContents> contents;  // of the cache, after the last command
  Activity activity = Activity::kIdle;

  std::unique_ptr<EngineWorker> worker;  // last: gone before what its events touch
};

}  // namespace longhand::app
