#include "engine/cli/results.h"

#include <iomanip>
#include <sstream>

#include "engine/cli/output.h"

namespace longhand::engine::cli {

nlohmann::json resultJson(const GenerateResult& result) {
  return {{"text", result.text},
          {"tokens", result.tokens},
          {"stop_reason", stopReasonName(result.stopReason)},
          {"prompt_tokens", result.promptTokens},
          {"reused_tokens", result.reusedTokens},
          {"forgotten_tokens", result.forgottenTokens},
          {"prefill_seconds", result.prefillSeconds},
          {"first_token_seconds", result.firstTokenSeconds},
          {"decode_seconds", result.decodeSeconds},
          {"prefill_tokens_per_second", result.prefillTokensPerSecond},
          {"decode_tokens_per_second", result.decodeTokensPerSecond}};
}

std::string resultLine(const GenerateResult& result) {
  std::ostringstream line;
  line << std::fixed << std::setprecision(1);
  line << formatCount(static_cast<std::int64_t>(result.tokens.size())) << " tokens at "
       << result.decodeTokensPerSecond << " tokens/s, the first after " << result.firstTokenSeconds
       << " s (" << formatCount(result.promptTokens) << " prompt tokens, "
       << formatCount(result.reusedTokens) << " reused, " << result.prefillTokensPerSecond
       << " tokens/s); ended by: " << stopReasonName(result.stopReason);
  if (result.forgottenTokens > 0) {
    line << "; " << formatCount(result.forgottenTokens)
         << " tokens are behind the sliding window and no longer read";
  }
  return line.str();
}

}  // namespace longhand::engine::cli
