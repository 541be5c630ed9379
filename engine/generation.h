#pragma once
// The loop that makes text: prefill, then sample, detokenize, look for a reason to stop, step.

#include <cstdint>
#include <functional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "engine/sampler.h"
#include "engine/session/prefill_progress.h"
#include "engine/text/tokenizer.h"

namespace longhand::engine {

class Machine;

/// Why generation ended.
enum class StopReason { kEndOfText, kStopText, kTokenLimit, kCancelled, kContextFull };
/// "end_of_text", "stop_text", "token_limit", "cancelled", "context_full".
std::string_view stopReasonName(StopReason reason);

struct GenerateOptions {
  SamplerConfig sampler;
  std::int64_t maxTokens = 0;  // 0: until the context is full (whose memory is then reserved)
  std::vector<std::string> stopTexts;  // generation ends before the first of these
  bool ignoresEndOfText = false;       // for measurements: EOS is a token like any other
};

/// Callbacks of one generate(), called on its thread. Empty functions are allowed.
struct GenerateObserver {
  std::function<void(const PrefillProgress&)> prefill;  // at least 4 times a second
  /// Text that will not change any more (whole characters, nothing of a stop text), and the id that
  /// completed it.
  std::function<void(std::string_view text, std::int32_t token)> token;
};

struct GenerateResult {
  std::string text;
  /// Generated, without EOS. Before a stop text: as few as hold `text`, so that the last one may
  /// hold the beginning of the stop text, too.
  std::vector<std::int32_t> tokens;
  StopReason stopReason = StopReason::kEndOfText;
  std::int64_t promptTokens = 0;
  std::int64_t reusedTokens = 0;     // of the prompt
  std::int64_t forgottenTokens = 0;  // at the end: behind the sliding window, no longer read
  double prefillSeconds = 0.0;
  double firstTokenSeconds = 0.0;       // from the call to the first token
  double decodeSeconds = 0.0;           // of the tokens after the first
  double prefillTokensPerSecond = 0.0;  // over computed tokens
  double decodeTokensPerSecond = 0.0;
};

/// As Engine::generate(). `tokenizer` may be nullptr (random weights): the text is then empty.
/// The model's EOS tokens end the text. Afterwards the session holds the prompt and all generated
/// tokens, except the last where nothing had to be computed behind it.
GenerateResult generateText(Machine& machine, const Tokenizer* tokenizer,
                            std::span<const std::int32_t> prompt, const GenerateOptions& options,
                            const GenerateObserver& observer, const std::stop_token& stop);

}  // namespace longhand::engine
