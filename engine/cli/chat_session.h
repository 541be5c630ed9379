#pragma once
// The conversation of `longhand-cli chat`: reads questions and slash commands from stdin, a line
// each, and streams the answers to stdout.

#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "engine/cli/interrupt.h"
#include "engine/cli/options.h"
#include "engine/cli/session_options.h"
#include "engine/engine.h"
#include "engine/text/chat_template.h"

namespace longhand::engine::cli {

struct ChatOptions {
  ModelOptions model;
  CacheOptions cache;
  SamplerOptions sampler;
  SessionOptions session;
  std::vector<std::string> documents;  // files
  std::string system;
  bool isJson = false;
};

class ChatSession {
 public:
  /// Loads the model, the documents and the session to go on with. Throws Error, also when the
  /// documents do not fit the context.
  ChatSession(const ChatOptions& options, Interrupt& interrupt);

  /// Until /quit or the end of stdin. Returns the exit status: a failure when a question could not
  /// be answered. Throws Error when the session cannot be saved.
  int run();

 private:
  void checkDocumentsFit(std::stop_token stop) const;
  void readDocuments();
  void saveSession();
  void greet() const;
  void handleCommand(const std::string& line);
  void beginAgain();
  void changePreset(const std::string& id);
  void printStats() const;
  void printMemory() const;
  void answer(const std::string& question);
  GenerateResult generateAnswer();
  void reportError(const std::string& text);

  const ChatOptions& options_;
  Interrupt& interrupt_;
  std::unique_ptr<Engine> engine_;
  std::vector<ChatDocument> documents_;
  std::vector<ChatTurn> turns_;
  std::optional<GenerateResult> lastResult_;
  bool isInteractive_ = false;  // stdin is a terminal
  bool isEnding_ = false;
  bool isInterrupted_ = false;  // an answer was stopped
  int status_ = 0;
};

}  // namespace longhand::engine::cli
