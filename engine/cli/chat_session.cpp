#include "engine/cli/chat_session.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/utf8.h"
#include "engine/cache/cache_fields.h"
#include "engine/cache/cache_json.h"
#include "engine/cache/presets.h"
#include "engine/cli/commands.h"
#include "engine/cli/engine_setup.h"
#include "engine/cli/output.h"
#include "engine/cli/results.h"

#include <nlohmann/json.hpp>

namespace longhand::engine::cli {
namespace {

constexpr const char* kHelp =
    "/help          this list\n"
    "/stats         speed of the last answer\n"
    "/memory        bytes in use, by category\n"
    "/preset NAME   other settings of the KV cache; the chat is converted in place\n"
    "/reread        forgets the cache, so that the chat is read again with the next question\n"
    "/new           begin a new chat about the same documents\n"
    "/quit          end (Ctrl+D, too); Ctrl+C stops an answer\n";

}  // namespace

ChatSession::ChatSession(const ChatOptions& options, Interrupt& interrupt)
    : options_(options), interrupt_(interrupt), isInteractive_(isTerminal(STDIN_FILENO)) {
  options_.session.requireTarget();
  for (const std::string& path : options_.documents) {
    documents_.push_back({std::filesystem::path(path).filename().string(), readDocument(path)});
  }
  const InterruptScope scope(interrupt_);
  engine_ = loadEngine(options_.model, options_.cache, scope.stop());
  checkDocumentsFit(scope.stop());
  options_.session.restore(*engine_, scope.stop());
  // What was saved serves a chat that begins with the same text; one without the document does not.
  if (documents_.empty() && !engine_->cachedTokens().empty() && !options_.isJson) {
    std::cerr << "The saved session holds " << formatCount(std::ssize(engine_->cachedTokens()))
              << " tokens. They count for questions about the same document: name it with "
                 "--document, too."
              << std::endl;
  }
}

/// Refuses documents that leave no room for a question, before anything is computed.
void ChatSession::checkDocumentsFit(std::stop_token stop) const {
  if (documents_.empty()) return;
  const ChatTurn turn{firstUserMessage(documents_, "?"), {}, {}};
  const auto nTokens =
      static_cast<std::int64_t>(encodeChat(engine_->tokenizer(), options_.system,
                                           std::span(&turn, 1), stoppedBy(std::move(stop)))
                                    .size());
  if (nTokens >= engine_->contextLength()) {
    throw Error(ErrorCode::kContextFull,
                "The documents have " + formatCount(nTokens) + " tokens, but the context holds " +
                    formatCount(engine_->contextLength()) + ".",
                "Give a larger --context or a shorter document.");
  }
  if (options_.isJson) return;
  std::cerr << documents_.front().fileName
            << (documents_.size() > 1 ? " and other documents: " : ": ") << formatCount(nTokens)
            << " tokens of a context of " << formatCount(engine_->contextLength()) << std::endl;
}

/// Reads the documents while the user thinks of a question: all questions begin with the same
/// tokens. Ctrl+C leaves the rest for later.
void ChatSession::readDocuments() {
  if (documents_.empty() || !isInteractive_) return;
  const InterruptScope scope(interrupt_);
  const auto promptOf = [&](const char* question) {
    const ChatTurn turn{firstUserMessage(documents_, question), {}, {}};
    return encodeChat(engine_->tokenizer(), options_.system, std::span(&turn, 1),
                      stoppedBy(scope.stop()));
  };
  std::vector<std::int32_t> common = promptOf("Who?");
  const std::vector<std::int32_t> other = promptOf("3");
  common.erase(std::mismatch(common.begin(), common.end(), other.begin(), other.end()).first,
               common.end());
  engine_->prefill(common, showPrefillProgress, scope.stop());
}

int ChatSession::run() {
  greet();
  try {
    readDocuments();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kCancelled) throw;
  }
  std::string line;
  while (!isEnding_) {
    if (isInteractive_ && !options_.isJson) std::cout << "> " << std::flush;
    if (!std::getline(std::cin, line)) break;
    const std::string_view text = stripWhiteSpace(line);
    if (text.empty()) continue;
    try {
      if (text.starts_with('/')) {
        handleCommand(std::string(text));
      } else {
        answer(std::string(text));
      }
    } catch (const Error& error) {
      reportError(error.line());
    }
  }
  if (isInteractive_ && !isEnding_) std::cout << std::endl;  // after Ctrl+D
  if (std::cin.bad() || std::ferror(stdin) != 0)
    reportError("The questions cannot be read: the standard input failed.");
  saveSession();
  if (isInteractive_) return kSuccess;
  return isInterrupted_ ? kInterrupted : status_;
}

void ChatSession::saveSession() {
  const InterruptScope scope(interrupt_);
  options_.session.save(*engine_, scope.stop());
}

void ChatSession::greet() const {
  if (!isInteractive_ || options_.isJson) return;
  std::cout << engine_->modelConfig().name << " (" << weightFormatName(engine_->weightFormat())
            << "), context " << formatCount(engine_->contextLength())
            << " tokens. /help lists the commands.\n";
  if (options_.model.model.empty()) {
    std::cout << "This is the bundled demonstration model: it finds facts in simple texts and "
                 "knows nothing else. Another model: --model DIR.\n";
  }
}

void ChatSession::handleCommand(const std::string& line) {
  const std::size_t blank = line.find_first_of(" \t");
  const std::string name = line.substr(0, blank);
  const std::string argument(
      blank == std::string::npos ? "" : stripWhiteSpace(std::string_view(line).substr(blank)));
  if (name == "/quit" || name == "/exit") {
    isEnding_ = true;
  } else if (name == "/help") {
    if (options_.isJson) {
      printJson({{"help", kHelp}});
    } else {
      std::cout << kHelp << std::flush;
    }
  } else if (name == "/stats") {
    printStats();
  } else if (name == "/memory") {
    printMemory();
  } else if (name == "/new") {
    beginAgain();
  } else if (name == "/preset") {
    changePreset(argument);
  } else if (name == "/reread") {
    engine_->clear();
    if (options_.isJson) {
      printJson({{"reread", true}});
    } else {
      std::cout << "The chat is read again with the next question.\n";
    }
  } else {
    reportError("There is no command " + name + ". /help lists them.");
  }
}

/// What both chats have in common stays in the cache: the documents.
void ChatSession::beginAgain() {
  turns_.clear();
  lastResult_.reset();
  if (options_.isJson) {
    printJson({{"new", true}});
  } else {
    std::cout << "A new chat begins.\n";
  }
}

/// Values given by options stay as they are; only the preset under them changes.
void ChatSession::changePreset(const std::string& id) {
  CacheOptions cache = options_.cache;
  cache.preset = presetById(id).id;
  const KvCacheConfig config = cache.config(options_.model.weightFormat());
  const ConvertCost cost = engine_->convertCost(config, engine_->contextLength());
  const InterruptScope scope(interrupt_);
  const CacheConversion done =
      engine_->convertCache(config, engine_->contextLength(), {}, scope.stop());
  if (options_.isJson) {
    nlohmann::json json = {{"preset", id},
                           {"in_place", done.isInPlace},
                           {"cancelled", done.isCancelled},
                           {"pages_converted", done.pagesConverted},
                           {"tokens_kept", done.tokensKept},
                           {"bytes_before", done.bytesBefore},
                           {"bytes_after", done.bytesAfter}};
    json.update(writeCacheConfig(engine_->cacheConfig()));
    printJson(json);
    return;
  }
  if (done.isCancelled) {
    std::cout << "Stopped: the preset is the old one, and no token is lost.\n";
    return;
  }
  std::cout << presetById(id).name << ": " << presetById(id).description;
  if (!done.isInPlace) {
    std::cout << " The chat is read again with the next question.";
  } else if (done.pagesConverted > 0 && done.freedBytes() > 0) {
    std::cout << " Converted " << formatCount(done.tokensKept) << " tokens in place, which freed "
              << formatBytes(static_cast<std::uint64_t>(done.freedBytes())) << '.';
  }
  if (cost.tokensBelowBits > 0) {
    std::cout << ' ' << formatCount(cost.tokensBelowBits)
              << " tokens keep their fewer bits; /reread reads the chat again.";
  }
  std::cout << '\n';
  const KvCacheConfig& used = engine_->cacheConfig();
  KvCacheConfig own = presetById(id).cache;
  own.exactType = used.exactType;
  if (used == own) return;
  std::cout << "Options of the command line change it: " << cacheDifferences(used, own) << ".\n";
}

void ChatSession::printStats() const {
  if (!lastResult_) {
    if (options_.isJson) {
      printJson({{"stats", nullptr}});
    } else {
      std::cout << "No answer yet.\n";
    }
  } else if (options_.isJson) {
    printJson(resultJson(*lastResult_));
  } else {
    std::cout << resultLine(*lastResult_) << '\n';
  }
}

void ChatSession::printMemory() const {
  const MemoryReport report = engine_->memory();
  if (options_.isJson) {
    printJson({{"bytes", memoryJson(report.use)},
               {"cached_tokens", report.cachedTokens},
               {"packed_tokens", report.packedTokens},
               {"exact_tokens", report.exactTokens},
               {"forgotten_tokens", report.forgottenTokens},
               {"device_free_bytes", report.device.freeBytes},
               {"device_total_bytes", report.device.totalBytes}});
    return;
  }
  std::cout << memoryTable(report.use) << "  " << formatCount(report.cachedTokens)
            << " tokens in the cache, " << formatCount(report.packedTokens) << " of them packed, "
            << formatCount(report.forgottenTokens) << " forgotten\n"
            << "  device: " << formatBytes(report.device.freeBytes) << " of "
            << formatBytes(report.device.totalBytes) << " free\n";
}

/// A question that fails is not part of the chat.
void ChatSession::answer(const std::string& question) {
  ChatTurn turn;
  turn.user = turns_.empty() ? firstUserMessage(documents_, question) : question;
  turns_.push_back(turn);
  GenerateResult result;
  try {
    result = generateAnswer();
  } catch (const Error& error) {
    turns_.pop_back();
    if (error.code() != ErrorCode::kCancelled) throw;
    isInterrupted_ = true;
    return;
  }
  if (options_.isJson) {
    nlohmann::json json = resultJson(result);
    json["question"] = question;
    json["bytes"] = memoryJson(engine_->memory().use);
    printJson(json);
  } else {
    std::cout << std::endl;
  }
  if (result.forgottenTokens > 0 && !options_.isJson) {
    std::cerr << formatCount(result.forgottenTokens)
              << " tokens are behind the sliding window and no longer read." << std::endl;
  }
  if (result.stopReason == StopReason::kContextFull) {
    reportError(
        "The context is full, so the answer ends here. Start again with a larger "
        "--context.");
  }
  if (result.stopReason == StopReason::kCancelled) isInterrupted_ = true;
  if (stripWhiteSpace(result.text).empty() && result.stopReason == StopReason::kCancelled) {
    turns_.pop_back();  // stopped before it was answered
  } else {
    turns_.back().answer = result.text;
    // Of an answer that ended at a stop text the last token may hold some of that text.
    if (result.stopReason != StopReason::kStopText) turns_.back().answerTokens = result.tokens;
  }
  lastResult_ = std::move(result);
}

/// To the last turn.
GenerateResult ChatSession::generateAnswer() {
  const InterruptScope scope(interrupt_);
  const std::vector<std::int32_t> prompt =
      encodeChat(engine_->tokenizer(), options_.system, turns_, stoppedBy(scope.stop()));
  GenerateObserver observer;
  observer.prefill = showPrefillProgress;
  if (!options_.isJson) {
    observer.token = [](std::string_view text, std::int32_t) { std::cout << text << std::flush; };
  }
  return engine_->generate(prompt, options_.sampler.generateOptions(options_.model.folder()),
                           observer, scope.stop());
}

void ChatSession::reportError(const std::string& text) {
  std::cerr << "longhand-cli: " << text << std::endl;
  status_ = kFailure;
}

}  // namespace longhand::engine::cli
