#pragma once
// The engine as programs see it: load a model, ask for tokens, watch the memory.
//
//   auto engine = Engine::load("Llama-2-7b-chat-hf", options, {}, {});
//   auto prompt = encodeChat(engine->tokenizer(), "", {{{"Hello!", {}, {}}}});
//   auto result = engine->generate(prompt, {}, observer, {});
//
// One thread at a time uses an Engine, except where a function says "any thread".

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/memory_ledger.h"
#include "engine/cache/conversion_cost.h"
#include "engine/cache/kv_cache_config.h"
#include "engine/engine_options.h"
#include "engine/generation.h"
#include "engine/model/model.h"
#include "engine/quality.h"
#include "engine/session/prefill_progress.h"
#include "engine/session/session_file.h"
#include "engine/session/step_cost.h"
#include "engine/text/tokenizer.h"

namespace longhand::engine {

/// Ledger and device at one moment.
struct MemoryReport {
  MemoryUse use;
  MemoryUse peak;
  /// Of `use`: reserved for the cache, and no token stands there yet.
  MemoryUse unused;
  kernels::DeviceMemoryInfo device;
  kernels::OwnMemory backend;  // its device bytes are part of `use`
  std::int64_t cachedTokens = 0;
  std::int64_t packedTokens = 0;
  std::int64_t exactTokens = 0;
  std::int64_t forgottenTokens = 0;  // of the cached ones: a sliding window no longer reads them
};

class Engine {
 public:
  /// Throws Error. `progress` may be empty.
  static std::unique_ptr<Engine> load(const std::filesystem::path& modelFolder,
                                      const EngineOptions& options, const LoadProgress& progress,
                                      std::stop_token stop);
  /// The same on random weights of a shape (no tokenizer: tokenizer() throws kInvalidArgument).
  /// Making 13 GiB takes a while, so it can be stopped, too.
  static std::unique_ptr<Engine> loadRandom(const ModelConfig& config, const EngineOptions& options,
                                            std::uint64_t seed, std::stop_token stop = {});
  ~Engine();

  /// Any thread. bosToken is the tokenizer's, where it has one.
  const ModelConfig& modelConfig() const;
  const Tokenizer& tokenizer() const;      // any thread
  WeightFormat weightFormat() const;       // any thread
  std::uint64_t weightBytes() const;       // any thread
  std::string backendDescription() const;  // any thread
  /// One sentence why it is the CPU although a device was asked for; empty otherwise.
  std::string whyNotDevice() const;  // any thread
  MemoryReport memory() const;       // any thread
  /// When a device fails, the engine starts it again, or goes on with the CPU; generate() and
  /// prefill() then compute again what was lost and go on, convertCache() begins with an empty
  /// cache, and all others throw kDevice. The observer is told in one sentence, on the thread that
  /// uses the engine; backendDescription() and whyNotDevice() may have changed.
  void onDeviceRestart(std::function<void(const std::string& sentence)> observer);
  /// False after a restart that failed: the next command tries again.
  bool isReady() const;

  const KvCacheConfig& cacheConfig() const;
  std::int64_t contextLength() const;
  /// Replaces the cache; its tokens are forgotten and will be computed again by the next
  /// generate(). `contextLength` 0: the model's trained length. Throws (kInvalidArgument,
  /// kOutOfMemory) and keeps the old cache then.
  void configureCache(const KvCacheConfig& config, std::int64_t contextLength);
  /// The same without forgetting, where that is possible (convertCost says so before): existing
  /// pages get the bits of the new settings where those are fewer, and tokens to come get the new
  /// settings; see KvCache::convert. Where it is not possible (more tokens than the new context, or
  /// another exactType), as configureCache. `contextLength` 0: the model's trained length. A cancel
  /// keeps the old settings and all tokens. Throws as configureCache and keeps the old cache then.
  CacheConversion convertCache(const KvCacheConfig& config, std::int64_t contextLength,
                               const ConvertProgress& progress, std::stop_token stop);
  ConvertCost convertCost(const KvCacheConfig& config, std::int64_t contextLength) const;
  /// For longhand::engine::convertCost in another thread.
  CacheContents cacheContents() const;
  /// From the next computation on; 0: the cores this process may use. Throws kInvalidArgument.
  void setThreads(int threads);

  /// How many tokens of `prompt` are in the cache already and need not be computed again.
  std::int64_t reusableTokens(std::span<const std::int32_t> prompt) const;
  /// The tokens in the cache.
  std::span<const std::int32_t> cachedTokens() const;

  /// Computes what of `prompt` is not in the cache, then generates. Throws Error: kContextFull when
  /// the prompt does not fit (nothing is cut), kOutOfMemory. Cancelling is no error.
  GenerateResult generate(std::span<const std::int32_t> prompt, const GenerateOptions& options,
                          const GenerateObserver& observer, std::stop_token stop);

  /// Reads ahead: computes what of `prompt` is not in the cache, so that a later generate() on it
  /// starts at once. Throws as generate() does; cancelling is no error and keeps whole chunks.
  PrefillResult prefill(std::span<const std::int32_t> prompt,
                        const std::function<void(const PrefillProgress&)>& onProgress,
                        std::stop_token stop);

  /// Logits behind `prompt`, [vocab]; computes only what of it is not in the cache, and throws, as
  /// generate() does.
  std::vector<float> nextLogits(std::span<const std::int32_t> prompt);
  /// Logits after the prompt: the last position, or all positions (row-major [n, vocab]). `tokens`
  /// replace the contents of the cache. `stepwise`: one token at a time instead of one prefill.
  std::vector<float> logits(std::span<const std::int32_t> tokens, bool allPositions, bool stepwise);
  /// The same for all positions, handed out in rows (row-major [nRows, vocab], from position
  /// `first`) and not kept. False: stopped.
  using LogitRows =
      std::function<void(std::int64_t first, std::int64_t nRows, std::span<const float> logits)>;
  bool forEachLogits(std::span<const std::int32_t> tokens, bool stepwise, const LogitRows& onRows,
                     std::stop_token stop);
  /// Hidden states [nLayers + 1, n, hidden] of a prefill: index 0 = embeddings, l = output of layer
  /// l, before the final norm. For tests.
  std::vector<float> hiddenStates(std::span<const std::int32_t> tokens);

  /// Compares caches on the text request.ids. The engine's own cache is not touched: those to be
  /// compared are made for the longest window, all at the same time. Throws Error: kInvalidArgument
  /// (no windows, or windows and ids outside the text, the context or the vocabulary),
  /// kOutOfMemory, kCancelled. `progress` comes about ten times a second.
  QualityReport measureQuality(const QualityRequest& request, const QualityProgress& progress,
                               std::stop_token stop);

  /// Forgets the cache's contents.
  void clear();

  // --- For benchmarks ---------------------------------------------------------------------------

  /// Replaces the contents of the cache by `nTokens` random tokens with random keys and values,
  /// in sink, pages and residual as if they had been read: 100,000 tokens in a second or two.
  /// cachedTokens() are then prompt tokens like any other. Throws Error kContextFull, kOutOfMemory,
  /// kCancelled; the cache is then empty.
  void fillCacheRandomly(std::int64_t nTokens, std::uint64_t seed, std::stop_token stop);
  /// What decoding the next token would read at least.
  DecodeBytes decodeBytes() const;
  /// As kernels::Backend::measureRates().
  kernels::MachineRates measureMachineRates();
  /// False: weights and cache are in a device's memory.
  bool usesHostMemory() const;

  /// Bytes of the file that saveSession() would write.
  std::uint64_t sessionBytes() const;
  /// Writes the cache and its tokens to a file, for a restoreSession() of this model with these
  /// settings; readSessionInfo() says what a file is. An older file of that name is replaced only
  /// by a whole new one. Throws Error kFileUnwritable, kCancelled. Returns the file's bytes.
  std::uint64_t saveSession(const std::filesystem::path& path, const SessionProgress& progress,
                            std::stop_token stop) const;
  /// Puts a file's contents in place of the cache's; nothing of it is computed again, and what
  /// follows is equal bit by bit to what would have followed the saving (with the same number of
  /// threads and the same CPU path). A file that is damaged or belongs to another model, tokenizer,
  /// RoPE or cache setting is refused with its reason, and nothing changes: see
  /// restoreSessionFile() for the errors. Returns the number of tokens.
  std::int64_t restoreSession(const std::filesystem::path& path, const SessionProgress& progress,
                              std::stop_token stop);

 private:
  Engine();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace longhand::engine
