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

std::int32_t sampleNext(Sampler& sampler, const Session& session,
                        std::span<const std::int32_t> sequence) {
  if (session.logits().empty()) return sampler.sampleBest(session.bestLogits(), sequence);
  return sampler.sample(session.logits(), sequence);
}

}  // namespace

GenerateResult generateText(Machine& machine, const Tokenizer* tokenizer,
                            std::span<const std::int32_t> prompt, const GenerateOptions& options,
                            const GenerateObserver& observer, const std::stop_token& stop) {
  if (options.maxTokens < 0) {
    throw Error(ErrorCode::kInvalidArgument, "The number of tokens to generate cannot be " +
                                                 std::to_string(options.maxTokens) + ".");
  }
  Sampler sampler(options.sampler);
  TextStream text(tokenizer, options.stopTexts);
  const Clock::time_point start = Clock::now();

  GenerateResult result;
  result.promptTokens = static_cast<std::int64_t>(prompt.size());
  const std::int64_t contextLength = machine.session().contextLength();
  const std::int64_t tokensReserved =
      tokensToReserve(prompt.size(), options.maxTokens, contextLength);
  const PrefillResult prefill = machine.recovering(stop, [&](Session& session) {
    session.bringBestLogits(sampler.nBestWanted());
    return session.prefill(prompt, true, tokensReserved, observer.prefill, stop);
  });
  result.reusedTokens = prefill.reusedTokens;
  result.prefillSeconds = prefill.seconds;
  result.prefillTokensPerSecond = rate(prefill.computedTokens, prefill.seconds);
  if (prefill.isCancelled) {
    result.stopReason = StopReason::kCancelled;
    return result;
  }

  std::vector<std::int32_t> sequence(prompt.begin(), prompt.end());
  Clock::time_point firstToken = start;
  const auto emit = [&](const std::string& piece, std::int32_t token) {
    result.text += piece;
    if (observer.token) observer.token(piece, token);
  };
  // Adds the last token of the sequence; with all before it where a new session lacks them.
  const auto step = [&](Session& session) {
    session.bringBestLogits(sampler.nBestWanted());
    if (session.length() + 1 == std::ssize(sequence)) {
      session.step(sequence.back());
      return true;
    }
    return !session.prefill(sequence, true, tokensReserved, observer.prefill, stop).isCancelled;
  };
  const std::vector<std::int32_t>& eosTokens = machine.config().eosTokens;
  while (true) {
    const std::int32_t token = sampleNext(sampler, machine.session(), sequence);
    if (result.tokens.empty()) {
      firstToken = Clock::now();
      result.firstTokenSeconds = secondsBetween(start, firstToken);
    }
    if (!options.ignoresEndOfText &&
        std::find(eosTokens.begin(), eosTokens.end(), token) != eosTokens.end()) {
      result.stopReason = StopReason::kEndOfText;
      break;
    }
    result.tokens.push_back(token);
    sequence.push_back(token);
    emit(text.append(token), token);
    const auto nGenerated = static_cast<std::int64_t>(result.tokens.size());
    if (text.isStopped()) {
      result.stopReason = StopReason::kStopText;
      break;
    }
    if (nGenerated == options.maxTokens) {
      result.stopReason = StopReason::kTokenLimit;
      break;
    }
    if (machine.session().length() == contextLength) {
      result.stopReason = StopReason::kContextFull;
      break;
    }
    if (stop.stop_requested()) {
      result.stopReason = StopReason::kCancelled;
      break;
    }
    if (!machine.recovering(stop, step)) {
      result.stopReason = StopReason::kCancelled;
      break;
    }
  }

  result.forgottenTokens = machine.session().forgottenTokens();
  const auto nGenerated = static_cast<std::int64_t>(result.tokens.size());
  if (result.stopReason == StopReason::kStopText && tokenizer != nullptr) {
    dropStopText(result, *tokenizer);
  }
  const std::string rest = text.finish();
  if (!rest.empty()) emit(rest, result.tokens.empty() ? -1 : result.tokens.back());
  result.decodeSeconds = secondsBetween(firstToken, Clock::now());
  result.decodeTokensPerSecond = rate(nGenerated - 1, result.decodeSeconds);
  return result;
}

}  // namespace longhand::engine
