#include "engine/generation.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/machine.h"
#include "engine/text/stop_text.h"

namespace longhand::engine {
std::string_view stopReasonName(StopReason reason) {
  switch (reason) {
    case StopReason::kEndOfText:
      return "end_of_text";
    case StopReason::kStopText:
      return "stop_text";
    case StopReason::kTokenLimit:
      return "token_limit";
    case StopReason::kCancelled:
      return "cancelled";
    case StopReason::kContextFull:
      break;
  }
  return "context_full";
}

namespace {

using Clock = std::chrono::steady_clock;

double secondsBetween(Clock::time_point start, Clock::time_point end) {
  return std::chrono::duration<double>(end - start).count();
}

double rate(std::int64_t count, double seconds) {
  return count > 0 && seconds > 0.0 ? static_cast<double>(count) / seconds : 0.0;
}

/// Ids to text that is final: whole characters, nothing that may become a stop text.
class TextStream {
 public:
  TextStream(const Tokenizer* tokenizer, const std::vector<std::string>& stopTexts)
      : scanner_(stopTexts) {
    if (tokenizer != nullptr) detokenizer_.emplace(*tokenizer);
  }

  std::string append(std::int32_t token) {
    return detokenizer_ ? scanner_.append(detokenizer_->append(token)) : std::string();
  }
  /// What was held back.
  std::string finish() {
    if (!detokenizer_ || scanner_.isHit()) return {};
    std::string rest = scanner_.append(detokenizer_->finish());
    if (!scanner_.isHit()) rest += scanner_.finish();
    return rest;
  }
  bool isStopped() const { return scanner_.isHit(); }

 private:
  std::optional<StreamDetokenizer> detokenizer_;
  StopTextScanner scanner_;
};

/// Leaves as few tokens as hold the text before the stop text; the last one may hold the beginning
/// of the stop text, too.
void dropStopText(GenerateResult& result, const Tokenizer& tokenizer) {
  while (!result.tokens.empty()) {
    const std::span<const std::int32_t> fewer(result.tokens.data(), result.tokens.size() - 1);
    if (!tokenizer.decode(fewer).starts_with(result.text)) return;
    result.tokens.pop_back();
  }
}

std::int64_t tokensToReserve(std::size_t promptTokens, std::int64_t maxTokens,
                             std::int64_t contextLength) {
  const auto prompt = static_cast<std::int64_t>(promptTokens);
  if (maxTokens == 0 || maxTokens > contextLength - prompt) return contextLength;
  return prompt + maxTokens;
}

/// One generateText(): what its steps share.
class Generation {
 public:
  Generation(Machine& machine, const Tokenizer* tokenizer, std::span<const std::int32_t> prompt,
             const GenerateOptions& options, const GenerateObserver& observer,
             const std::stop_token& stop)
      : machine_(machine),
        tokenizer_(tokenizer),
        options_(options),
        observer_(observer),
        stop_(stop),
        sampler_(options.sampler),
        text_(tokenizer, options.stopTexts),
        sequence_(prompt.begin(), prompt.end()),
        contextLength_(machine.session().contextLength()),
        tokensReserved_(tokensToReserve(prompt.size(), options.maxTokens, contextLength_)) {
    result_.promptTokens = static_cast<std::int64_t>(prompt.size());
  }

  GenerateResult run() {
    std::optional<StopReason> reason = readPrompt();
    if (reason) {
      result_.stopReason = *reason;
      return std::move(result_);
    }
    while (!reason) reason = stopAfter(nextToken());
    result_.stopReason = *reason;
    finish();
    return std::move(result_);
  }

 private:
  std::optional<StopReason> readPrompt() {
    const PrefillResult prefill = machine_.recovering(stop_, [this](Session& session) {
      session.bringBestLogits(sampler_.nBestWanted());
      return session.prefill(sequence_, true, tokensReserved_, observer_.prefill, stop_);
    });
    result_.reusedTokens = prefill.reusedTokens;
    result_.prefillSeconds = prefill.seconds;
    result_.prefillTokensPerSecond = rate(prefill.computedTokens, prefill.seconds);
    if (prefill.isCancelled) return StopReason::kCancelled;
    return {};
  }

  std::int32_t nextToken() {
    const Session& session = machine_.session();
    const std::int32_t token = session.logits().empty()
                                   ? sampler_.sampleBest(session.bestLogits(), sequence_)
                                   : sampler_.sample(session.logits(), sequence_);
    if (result_.tokens.empty()) {
      firstToken_ = Clock::now();
      result_.firstTokenSeconds = secondsBetween(start_, firstToken_);
    }
    return token;
  }

  /// Takes the token into the answer and into the cache; why the answer ends with it, if it does.
  std::optional<StopReason> stopAfter(std::int32_t token) {
    if (isEndOfText(token)) return StopReason::kEndOfText;
    result_.tokens.push_back(token);
    sequence_.push_back(token);
    emit(text_.append(token), token);
    if (text_.isStopped()) return StopReason::kStopText;
    if (std::ssize(result_.tokens) == options_.maxTokens) return StopReason::kTokenLimit;
    if (machine_.session().length() == contextLength_) return StopReason::kContextFull;
    const bool isAdded =
        !stop_.stop_requested() &&
        machine_.recovering(stop_, [this](Session& session) { return addLastToken(session); });
    if (!isAdded) return StopReason::kCancelled;
    return {};
  }

  bool isEndOfText(std::int32_t token) const {
    const std::vector<std::int32_t>& ends = machine_.config().eosTokens;
    return !options_.ignoresEndOfText && std::find(ends.begin(), ends.end(), token) != ends.end();
  }

  /// With all tokens before it where a new session lacks them. False when that is cancelled.
  bool addLastToken(Session& session) {
    session.bringBestLogits(sampler_.nBestWanted());
    if (session.length() + 1 == std::ssize(sequence_)) {
      session.step(sequence_.back());
      return true;
    }
    return !session.prefill(sequence_, true, tokensReserved_, observer_.prefill, stop_).isCancelled;
  }

  void emit(const std::string& piece, std::int32_t token) {
    result_.text += piece;
    if (observer_.token) observer_.token(piece, token);
  }

  void finish() {
    result_.forgottenTokens = machine_.session().forgottenTokens();
    const std::int64_t nGenerated = std::ssize(result_.tokens);
    if (result_.stopReason == StopReason::kStopText && tokenizer_ != nullptr) {
      dropStopText(result_, *tokenizer_);
    }
    const std::string rest = text_.finish();
    if (!rest.empty()) emit(rest, result_.tokens.empty() ? -1 : result_.tokens.back());
    result_.decodeSeconds = secondsBetween(firstToken_, Clock::now());
    result_.decodeTokensPerSecond = rate(nGenerated - 1, result_.decodeSeconds);
  }

  const Clock::time_point start_ = Clock::now();
  Machine& machine_;
  const Tokenizer* tokenizer_;
  const GenerateOptions& options_;
  const GenerateObserver& observer_;
  const std::stop_token& stop_;
  Sampler sampler_;
  TextStream text_;
  std::vector<std::int32_t> sequence_;  // the prompt and what follows
  std::int64_t contextLength_;
  std::int64_t tokensReserved_;
  Clock::time_point firstToken_ = start_;
  GenerateResult result_;
};

}  // namespace

GenerateResult generateText(Machine& machine, const Tokenizer* tokenizer,
                            std::span<const std::int32_t> prompt, const GenerateOptions& options,
                            const GenerateObserver& observer, const std::stop_token& stop) {
  if (options.maxTokens < 0) {
    throw Error(ErrorCode::kInvalidArgument, "The number of tokens to generate cannot be " +
                                                 std::to_string(options.maxTokens) + ".");
  }
  return Generation(machine, tokenizer, prompt, options, observer, stop).run();
}

}  // namespace longhand::engine
