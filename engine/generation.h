#pragma once
// The loop that makes text: prefill, then sample, detokenize, look for a reason to stop, step.

#include <cstdint>
#include <span>
#include <stop_token>

#include "engine/engine.h"
#include "engine/machine.h"
#include "engine/text/tokenizer.h"

namespace longhand::engine {

/// As Engine::generate(). `tokenizer` may be nullptr (random weights): the text is then empty.
/// The model's EOS tokens end the text. Afterwards the session holds the prompt and all generated
/// tokens, except the last where nothing had to be computed behind it.
GenerateResult generateText(Machine& machine, const Tokenizer* tokenizer,
                            std::span<const std::int32_t> prompt, const GenerateOptions& options,
                            const GenerateObserver& observer, const std::stop_token& stop);

}  // namespace longhand::engine
