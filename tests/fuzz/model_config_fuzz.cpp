// Feeds text to the reader of config.json: it gives a config within the bounds, or an Error.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "engine/base/error.h"
#include "engine/model/model_config.h"
#include "engine/model/weight_format.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace longhand::engine;
  try {
    const std::string text(reinterpret_cast<const char*>(data), size);
    const ModelConfig config = parseModelConfig(text, "config.json");
    const bool isSound = config.nHeads > 0 && config.nKvHeads > 0 &&
                         config.nHeads % config.nKvHeads == 0 && config.headDim > 0 &&
                         config.headDim <= 256 && config.headDim % 2 == 0 &&
                         config.rope.factor >= 1.0 && config.rope.theta >= 1.0;
    if (!isSound) std::abort();
    // The sizes of the largest config must not overflow.
    const WeightLayout layout = weightLayout({}, config.vocabSize, config.hiddenSize);
    if (layout.totalBytes / 2 / static_cast<std::size_t>(config.vocabSize) !=
        static_cast<std::size_t>(config.hiddenSize)) {
      std::abort();
    }
  } catch (const Error& error) {
    if (error.message().find('\n') != std::string::npos) std::abort();
  }
  return 0;
}
