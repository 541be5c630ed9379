#pragma once
// The object the window talks to: everything a user can do, and everything there is to show.
//
//   ChatController controller(paths);   // throws engine::Error when the database does not open
//   connect(...);
//   controller.start();                 // loads the model, opens the last conversation
//
// GUI thread only. No slot waits for the engine and none throws: what goes wrong arrives as
// errorOccurred, and leaves everything as it was. Ids are those of the database; 0 means none.

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <QObject>
#include <QString>
#include <QStringList>

#include "app/conversation_store.h"
#include "app/document_reader.h"
#include "app/document_store.h"
#include "app/engine_replies.h"
#include "app/forecast.h"
#include "app/model_catalog.h"
#include "app/preset_store.h"
#include "app/quality_check.h"
#include "app/settings.h"

namespace longhand::app {

struct ControllerPaths {
  QString dataFolder;    // holds longhand.sqlite; made when missing
  QString modelsFolder;  // the user's models; need not exist
  QString demoFolder;    // the bundled model, empty when there is none
  QString cudaPlugin;    // of the graphics card; empty: where the program is installed
};

/// What the engine is busy with.
enum class Activity {
  kIdle,
  kLoadingModel,
  kReading,          // prefill: a document read ahead, or the context after a switch of the preset
  kAnswering,        // from send() to the end of the answer, its prefill included
  kSwitchingPreset,  // what is in the cache is converted, or the cache made anew
  kRestoring,        // the cache of the open conversation comes from disk
  kCheckingQuality,
};

/// A document before it is used. Nothing has been computed yet.
struct DocumentPreview {
  DocumentContent content;
  std::int64_t tokenCount = 0;  // -1: no model is loaded that could count
  std::int64_t contextLength = 0;
  std::int64_t trainedLength = 0;
  std::int64_t tokensInUse = 0;           // of the conversation it would be attached to
  bool fitsContext = false;               // tokensInUse + tokenCount + room for a question
  std::vector<PresetForecast> forecasts;  // for the context with the document; empty without model
};

/// What switching the cache's settings would mean for the open conversation.
struct SwitchCost {
  std::uint64_t kvBytesBefore = 0;   // of its tokens in the cache now
  std::uint64_t kvBytesAfter = 0;    // of the same tokens with the new settings
  std::int64_t tokensToRead = 0;     // that must be computed again: none where they are converted
  std::int64_t pagesToConvert = 0;   // to fewer bits, in place; what is lost comes back by reading
  std::int64_t tokensBelowBits = 0;  // that keep fewer bits than the new ones, unless read again
  double seconds = 0.0;              // of reading these tokens, at the rate of the last; 0: unknown
  bool fits = true;                  // the whole context with them fits the memory
};

/// What the window shows about the context of the open conversation.
struct ContextState {
  std::int64_t usedTokens = 0;
  std::int64_t contextLength = 0;
  std::int64_t trainedLength = 0;
  std::int64_t forgottenTokens = 0;  // behind the sliding window, no longer read

  bool isBeyondTraining() const { return trainedLength > 0 && usedTokens > trainedLength; }
};

class ChatController final : public QObject {
  Q_OBJECT
  Q_DISABLE_COPY_MOVE(ChatController)

 public:
  class Impl;  // for the parts it is made of

  /// Opens the database. Throws engine::Error as Database does.
  explicit ChatController(const ControllerPaths& paths, QObject* parent = nullptr);
  /// Stops the engine; what has streamed is stored.
  ~ChatController() override;

  /// The database file of a data folder: for Database::moveAside after a kFileDamaged.
  static QString databasePath(const ControllerPaths& paths);

  // --- What there is to show (never waits) ----------------------------------------------------

  std::vector<Conversation> conversations() const;
  std::int64_t currentConversation() const;  // 0: a new one that has nothing stored yet
  std::vector<Message> messages() const;     // of the open conversation, active branch
  std::vector<Document> documents() const;   // of the open conversation, with text
  std::vector<SearchHit> searchResults(const QString& text) const;
  std::vector<PresetInfo> presets() const;  // built-in, the user's own, and "custom" last
  QString currentPreset() const;            // of the open conversation
  QString draft() const;                    // what stood in its composer
  engine::KvCacheConfig currentCacheConfig() const;
  const Settings& settings() const;
  std::optional<ModelInfo> model() const;  // nothing while none is loaded
  std::optional<DemoModel> demo() const;   // the bundled model, where there is one
  std::vector<ModelEntry> availableModels() const;
  Activity activity() const;
  ContextState contextState() const;
  /// The open conversation's documents and messages are in the cache: an answer starts at once.
  bool isContextRead() const;
  const engine::MemoryReport& memory() const;  // the last report
  /// For every preset, with `contextTokens` in the cache; empty while no model is loaded.
  std::vector<PresetForecast> forecast(std::int64_t contextTokens) const;
  /// The same for settings that need not be a preset's, and a context length (0: the trained one).
  std::optional<PresetForecast> forecastFor(const engine::KvCacheConfig& config,
                                            std::int64_t contextLength) const;
  /// Nothing while no model is loaded, or for an unknown preset.
  std::optional<SwitchCost> switchCost(const QString& presetId) const;
  std::optional<SwitchCost> switchCost(const engine::KvCacheConfig& config,
                                       std::int64_t contextLength) const;
  std::optional<DocumentPreview> pendingDocument() const;
  quint64 sessionBytes() const;  // of the caches on disk

 public slots:
  /// Loads the model of the settings (else the bundled one) and opens the last conversation.
  void start();

  // --- Conversations --------------------------------------------------------------------------

  void newConversation();  // stored with its first message or document
  void selectConversation(qint64 id);
  void renameConversation(qint64 id, const QString& title);
  void setPinned(qint64 id, bool pinned);
  void deleteConversation(qint64 id);  // undoDelete() brings back the last deleted one,
  void undoDelete();                   // then the one before
  void search(const QString& text);    // -> searchFinished
  /// Keeps what stands in the composer across restarts.
  void saveDraft(const QString& text);

  // --- Chat -----------------------------------------------------------------------------------

  /// -> messageAdded for the question and the answer, then messageChanged...; or sendRefused, with
  /// nothing stored and nothing computed: no model, busy, empty, or the context does not hold it.
  void send(const QString& text);
  /// Ends the running answer or reading at once; what has streamed stays.
  void stop();
  void regenerate();  // another answer to the last question
  /// The question is asked again in other words, as a new branch.
  void editMessage(qint64 messageId, const QString& text);
  void selectBranch(qint64 messageId);

  // --- Preset and settings --------------------------------------------------------------------

  /// Switches the open conversation. What of it is in the cache is converted in place where that is
  /// possible (switchCost says so) -> presetSwitched; else it is read again with the new settings
  /// -> presetSwitched, prefillProgress..., prefillFinished.
  void switchPreset(const QString& presetId);
  /// The preset "custom" with these values (a built-in one that has just these), and the context
  /// length (0, or as many tokens: the trained length), both of the open conversation: others keep
  /// theirs, new ones begin with the trained length.
  void applyCacheConfig(const longhand::engine::KvCacheConfig& config, qint64 contextLength);
  /// Gives up the switch that is under way: the old preset stays in use, and the chat is whole ->
  /// presetSwitched with the old one, notice.
  void cancelSwitch();
  void saveUserPreset(const QString& name, const longhand::engine::KvCacheConfig& config);
  void removeUserPreset(const QString& presetId);
  void applySampling(const longhand::engine::SamplerConfig& sampler, qint64 maxAnswerTokens);
  void setThreads(int threads);
  /// Whether caches of long chats are kept on disk, in at most `quotaBytes`, from how many tokens
  /// on. Turned off, those on disk are removed.
  void applySessionSettings(bool keepsSessions, qint64 quotaBytes, qint64 keptMinTokens);
  void saveWindowLayout(const QByteArray& geometry, const QByteArray& state);

  // --- Model ----------------------------------------------------------------------------------

  /// -> modelLoading..., modelLoaded or modelFailed. An empty folder: the bundled model.
  void loadModel(const QString& folder, longhand::engine::WeightFormat weights);
  void cancelLoading();

  // --- Documents ------------------------------------------------------------------------------

  /// -> documentReadProgress..., documentCountProgress..., documentPreviewReady or errorOccurred.
  void openDocument(const QString& path);
  void discardDocument();  // the pending one, also while it is being opened
  /// Attaches the pending document to the open conversation -> documentsChanged. Does not read it.
  void attachDocument();
  void detachDocument(qint64 documentId);
  /// Reads the conversation's context ahead -> prefillProgress..., prefillFinished.
  void readDocument();
  /// The same from the first token on, whatever is in the cache: with all the bits of a preset that
  /// has more than the one before.
  void readAgain();
  void cancelReading();
  /// The cache that is being read from disk is given up: the context is computed again when it is
  /// needed.
  void cancelRestoring();

  // --- Quality --------------------------------------------------------------------------------

  /// Measures what every preset loses, on a sample of the pending document, else of the open
  /// conversation's documents, else of its messages -> qualityProgress..., then qualityChecked or
  /// qualityFailed. The chat's cache is not touched. Whatever else is begun meanwhile goes first:
  /// it ends the check.
  void checkQuality();
  void cancelQualityCheck();

 signals:
  void conversationListChanged();
  /// The open conversation is another one, or its branch has changed: show messages() anew.
  void conversationOpened(qint64 conversationId);
  void documentsChanged();
  void searchFinished(const QString& text, const std::vector<longhand::app::SearchHit>& hits);

  void messageAdded(const longhand::app::Message& message);
  /// The whole text so far, about 30 times a second while it streams.
  void messageChanged(qint64 messageId, const QString& text, longhand::app::MessageState state);
  void generationStarted(qint64 messageId);
  void generationFinished(qint64 messageId, const longhand::app::MessageStatistics& statistics,
                          const QString& stopReason);
  /// The composer keeps the text; errorOccurred says why.
  void sendRefused(const QString& text);

  void prefillProgress(const longhand::engine::PrefillProgress& progress);
  /// Of a reading, not of an answer.
  void prefillFinished(bool cancelled);
  /// The cache of a chat is on disk; it has come back from there, and is not read again.
  void sessionSaved(qint64 conversationId);
  void sessionRestored(qint64 conversationId, qint64 tokens);
  void restoreProgress(quint64 doneBytes, quint64 totalBytes);
  /// What is in the cache is being converted to another preset.
  void convertProgress(quint64 doneBytes, quint64 totalBytes);
  /// Something went another way, and nothing is lost but time: a cache could not be kept or
  /// restored, a switch was cancelled, a graphics card has failed. Not worth a dialog.
  void notice(const QString& message, const QString& hint);
  void qualityProgress(const longhand::app::QualityCheckProgress& progress);
  void qualityChecked(const longhand::app::QualityCheckResult& result);
  /// Also when it was stopped; the message then says by what.
  void qualityFailed(const QString& message, const QString& hint);
  void contextStateChanged(const longhand::app::ContextState& state);
  void memoryChanged(const longhand::engine::MemoryReport& report);
  void activityChanged(longhand::app::Activity activity);

  /// model() now computes on something else, or on the same anew.
  void deviceChanged();
  void modelLoading(quint64 doneBytes, quint64 totalBytes);
  void modelLoaded(const longhand::app::ModelInfo& model);
  void modelFailed(const QString& message, const QString& hint);
  void presetSwitched(const QString& presetId);
  void presetsChanged();
  void settingsChanged();

  void documentReadProgress(double share);
  void documentCountProgress(double share);  // of its tokens, after it was read
  /// Again when its numbers have changed: another chat is open, an answer has taken room, ...
  void documentPreviewReady(const longhand::app::DocumentPreview& preview);
  void documentDiscarded();

  void errorOccurred(const QString& message, const QString& hint);

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace longhand::app

Q_DECLARE_METATYPE(longhand::app::Message)
Q_DECLARE_METATYPE(longhand::app::DocumentPreview)
Q_DECLARE_METATYPE(longhand::app::ContextState)
Q_DECLARE_METATYPE(longhand::engine::PrefillProgress)
Q_DECLARE_METATYPE(longhand::engine::MemoryReport)
