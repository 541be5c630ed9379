#include "engine/session/session_file.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <functional>

#include "engine/base/device_fault.h"
#include "engine/base/error.h"
#include "engine/base/error_words.h"
#include "engine/cache/cache_fields.h"
#include "engine/cache/kv_arena.h"
#include "kernels/page_layout.h"

namespace longhand::engine {
namespace {

using kernels::PageRef;

constexpr const char* kReadAgainHint = "The text has to be read again.";

std::uint64_t hashOf(std::span<const std::uint64_t> numbers) {
  return XXH3_64bits(numbers.data(), numbers.size_bytes());
}

std::uint64_t ropeFingerprint(const RopeConfig& rope) {
  const auto bits = [](double number) { return std::bit_cast<std::uint64_t>(number); };
  const std::array<std::uint64_t, 9> numbers = {
      bits(rope.theta),
      static_cast<std::uint64_t>(rope.scaling),
      bits(rope.factor),
      static_cast<std::uint64_t>(rope.maxPositionEmbeddings),
      static_cast<std::uint64_t>(rope.originalMaxPositionEmbeddings),
      bits(rope.betaFast),
      bits(rope.betaSlow),
      rope.attentionFactor ? 1U : 0U,
      bits(rope.attentionFactor.value_or(0.0)),
  };
  return hashOf(numbers);
}

/// The weights' fingerprint, and what else of the model the numbers in the cache depend on.
std::uint64_t modelFingerprint(const SessionIdentity& identity) {
  const ModelConfig& model = identity.model;
  const std::array<std::uint64_t, 7> numbers = {
      identity.modelFingerprint,
      static_cast<std::uint64_t>(model.hiddenSize),
      static_cast<std::uint64_t>(model.intermediateSize),
      static_cast<std::uint64_t>(model.nHeads),
      static_cast<std::uint64_t>(model.vocabSize),
      static_cast<std::uint64_t>(model.nLayers),
      std::bit_cast<std::uint32_t>(model.rmsNormEpsilon),
  };
  return hashOf(numbers);
}

SessionFileHeader headerFor(const SessionIdentity& identity) {
  SessionFileHeader header;
  header.magic = kSessionMagic;
  header.version = kSessionVersion;
  header.headerBytes = sizeof(SessionFileHeader);
  header.modelFingerprint = modelFingerprint(identity);
  header.tokenizerFingerprint = identity.tokenizerFingerprint;
  header.ropeFingerprint = ropeFingerprint(identity.model.rope);
  header.blockBytes = kMaxSessionBlockBytes;
  header.nLayers = static_cast<std::uint32_t>(identity.model.nLayers);
  header.nKvHeads = static_cast<std::uint32_t>(identity.model.nKvHeads);
  header.headDim = static_cast<std::uint32_t>(identity.model.headDim);
  const std::string& name = identity.model.name;
  std::copy_n(name.begin(), std::min(name.size(), header.modelName.size() - 1),
              header.modelName.begin());
  return header;
}

std::string modelName(const SessionFileHeader& header) {
  const auto end = std::find(header.modelName.begin(), header.modelName.end(), '\0');
  return {header.modelName.begin(), end};
}

[[noreturn]] void refuse(const std::string& name, const std::string& reason,
                         const std::string& hint = kReadAgainHint) {
  throw Error(ErrorCode::kInvalidArgument, name + ": the session " + reason + ".", hint);
}

void requireBelongs(const SessionFileReader& file, const SessionIdentity& identity,
                    const KvCacheConfig& config, std::int64_t contextLength) {
  const SessionFileHeader& header = file.header();
  const SessionFileHeader own = headerFor(identity);
  if (header.modelFingerprint != own.modelFingerprint || header.nLayers != own.nLayers ||
      header.nKvHeads != own.nKvHeads || header.headDim != own.headDim) {
    refuse(file.name(), "was saved with another model or other weights (" +
                            quotedName(modelName(header)) + ", here " +
                            quotedName(identity.model.name) + ")");
  }
  if (header.tokenizerFingerprint != own.tokenizerFingerprint) {
    refuse(file.name(), "was saved with another tokenizer");
  }
  if (header.ropeFingerprint != own.ropeFingerprint) {
    refuse(file.name(), "was saved with another RoPE setting");
  }
  const KvCacheConfig saved = sessionCacheConfig(header);
  if (saved != config) {
    refuse(file.name(),
           "was saved with other cache settings (" + cacheDifferences(saved, config) + ")",
           "Choose the preset it was saved with, or let the text be read again.");
  }
  if (header.nTokens > static_cast<std::uint64_t>(contextLength)) {
    throw Error(ErrorCode::kContextFull,
                file.name() + ": the session has " + std::to_string(header.nTokens) +
                    " tokens, and the context holds " + std::to_string(contextLength) + ".",
                "Choose a longer context.");
  }
}

using Tables = std::vector<std::vector<PageRef>>;

std::uint64_t indexBytes(const SessionFileHeader& header) {
  return header.nTokens * sizeof(std::int32_t) +
         header.nLayers * header.pagesPerLayer * sizeof(SessionFilePage);
}

std::uint64_t contentBytes(const SessionFileHeader& header,
                           std::span<const std::vector<PageRef>> tables) {
  const auto type = static_cast<kernels::DataType>(header.exactType);
  const std::uint64_t exactTokens = header.sinkTokens + header.ringTokens;
  const std::uint64_t exactBytes =
      2 * kernels::bytesOf(
              type, static_cast<std::int64_t>(exactTokens * header.nKvHeads * header.headDim));
  std::uint64_t bytes = exactBytes * header.nLayers;
  for (const std::vector<PageRef>& table : tables) {
    for (const PageRef& page : table) {
      bytes += kernels::pageLayout(page.format, header.nKvHeads, header.headDim).totalBytes;
    }
  }
  return bytes;
}

Tables tablesOf(const KvCache& cache, std::int64_t nLayers) {
  Tables tables;
  for (std::int64_t layer = 0; layer < nLayers; ++layer) {
    const std::span<const PageRef> pages = cache.pages(layer);
    tables.emplace_back(pages.begin(), pages.end());
  }
  return tables;
}

SessionFileHeader headerFor(const SessionIdentity& identity, const KvCache& cache) {
  SessionFileHeader header = headerFor(identity);
  setSessionCache(header, cache.config(), cache.counts());
  header.payloadBytes =
      indexBytes(header) + contentBytes(header, tablesOf(cache, identity.model.nLayers));
  header.headerChecksum = sessionHeaderChecksum(header);
  return header;
}

/// The runs of backend memory that hold a layer's contents, in the order of the file.
void forEachRun(const KvCache& cache, std::int64_t layer, const SessionFileHeader& header,
                const std::function<void(std::byte* memory, std::uint64_t bytes)>& visit) {
  const std::int64_t headDim = header.headDim;
  for (const kernels::ExactSpan& span : cache.view(layer).exact) {
    const std::size_t bytes = kernels::bytesOf(span.type, span.nTokens * headDim);
    for (std::int64_t kvHead = 0; kvHead < header.nKvHeads; ++kvHead) {
      const std::size_t offset = kernels::bytesOf(span.type, kvHead * span.tokenCapacity * headDim);
      visit(span.keys + offset, bytes);
      visit(span.values + offset, bytes);
    }
  }
  for (const PageRef& page : cache.pages(layer)) {
    visit(page.data, kernels::pageLayout(page.format, header.nKvHeads, headDim).totalBytes);
  }
}

void requireCopied(kernels::Backend& backend) {
  requireNoFault(backend, "The cache could not be copied from or to the device");
}

std::vector<std::int32_t> readTokens(SessionFileReader& file, std::int64_t vocabSize) {
  const SessionFileHeader& header = file.header();
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(header.nTokens));
  file.read(std::as_writable_bytes(std::span(tokens)));
  const bool areKnown = std::all_of(tokens.begin(), tokens.end(),
                                    [&](std::int32_t id) { return id >= 0 && id < vocabSize; });
  if (areKnown) return tokens;
  throw Error(ErrorCode::kFileDamaged,
              file.name() + ": a token is not in the model's vocabulary of " +
                  std::to_string(vocabSize) + ".",
              kReadAgainHint);
}

Tables readTables(SessionFileReader& file) {
  const SessionFileHeader& header = file.header();
  Tables tables(header.nLayers);
  for (std::vector<PageRef>& table : tables) {
    std::uint64_t nTokens = 0;
    table.reserve(static_cast<std::size_t>(header.pagesPerLayer));
    for (std::uint64_t i = 0; i < header.pagesPerLayer; ++i) {
      SessionFilePage page;
      file.read(std::as_writable_bytes(std::span(&page, 1)));
      table.push_back(parseSessionPage(page, header, file.name()));
      nTokens += page.nTokens;
    }
    if (nTokens != header.packedTokens) {
      throw Error(ErrorCode::kFileDamaged,
                  file.name() + ": the pages of a layer hold " + std::to_string(nTokens) +
                      " tokens instead of " + std::to_string(header.packedTokens) + ".",
                  kReadAgainHint);
    }
  }
  return tables;
}

void requireSize(const SessionFileReader& file, std::uint64_t payloadBytes) {
  if (file.header().payloadBytes == payloadBytes) return;
  throw Error(ErrorCode::kFileDamaged,
              file.name() + ": the file holds " + std::to_string(file.header().payloadBytes) +
                  " bytes of cache, and its tables speak of " + std::to_string(payloadBytes) + ".",
              kReadAgainHint);
}

/// True where memory holds the new contents besides the old ones; false where it does without the
/// old ones. Throws kOutOfMemory where it does not hold them at all.
bool fitsBeside(const kernels::Backend& backend, const KvCache& cache,
                std::span<const std::vector<PageRef>> tables) {
  const kernels::DeviceMemoryInfo info = backend.memoryInfo();
  if (info.totalBytes == 0) return true;  // unknown
  const std::uint64_t needed = cache.replacementBytes(tables);
  // A fraction stays for others: freeing memory to the last byte helps nobody.
  const std::uint64_t free = info.freeBytes - info.freeBytes / 16;
  if (needed <= free) return true;
  std::uint64_t held = 0;
  if (cache.length() > 0) {
    held = cache.replacementBytes(tablesOf(cache, static_cast<std::int64_t>(tables.size())));
  }
  if (needed > free + held) throw outOfMemory(needed, free + held);
  return false;
}

}  // namespace

SessionInfo readSessionInfo(const std::filesystem::path& path) {
  const SessionFileReader file(path);
  SessionInfo info;
  info.modelName = modelName(file.header());
  info.nTokens = static_cast<std::int64_t>(file.header().nTokens);
  info.fileBytes = file.fileBytes();
  info.cache = sessionCacheConfig(file.header());
  return info;
}

std::uint64_t sessionFileSize(const SessionIdentity& identity, const KvCache& cache) {
  return sessionFileBytes(headerFor(identity, cache));
}

std::uint64_t saveSessionFile(const std::filesystem::path& path, const SessionIdentity& identity,
                              kernels::Backend& backend, const KvCache& cache,
                              std::span<const std::int32_t> tokens, const SessionProgress& progress,
                              const std::stop_token& stop) {
  const SessionFileHeader header = headerFor(identity, cache);
  const Tables tables = tablesOf(cache, identity.model.nLayers);
  if (header.nTokens != tokens.size()) {
    throw Error(ErrorCode::kInternal, "The cache and its tokens do not have the same length.");
  }
  requireCopied(backend);
  SessionFileWriter file(path, header, progress, stop);
  file.write(std::as_bytes(tokens));
  for (const std::vector<PageRef>& table : tables) {
    for (const PageRef& page : table) {
      const SessionFilePage entry = sessionPage(page);
      file.write(std::as_bytes(std::span(&entry, 1)));
    }
  }
  for (std::int64_t layer = 0; layer < identity.model.nLayers; ++layer) {
    forEachRun(cache, layer, header, [&](const std::byte* memory, std::uint64_t bytes) {
      while (bytes > 0) {
        const std::span<std::byte> room = file.room(bytes);
        backend.download(room.data(), memory, room.size());
        memory += room.size();
        bytes -= room.size();
        file.advance(room.size());
      }
    });
  }
  requireCopied(backend);
  file.finish();
  return sessionFileBytes(header);
}

std::vector<std::int32_t> restoreSessionFile(const std::filesystem::path& path,
                                             const SessionIdentity& identity,
                                             std::int64_t contextLength, kernels::Backend& backend,
                                             KvCache& cache, const SessionProgress& progress,
                                             const std::stop_token& stop) {
  SessionFileReader file(path);
  const SessionFileHeader& header = file.header();
  requireBelongs(file, identity, cache.config(), contextLength);
  // Nothing is allocated that the file is too short for.
  if (indexBytes(header) > header.payloadBytes) requireSize(file, indexBytes(header));

  file.observe(progress, stop, 1);
  std::vector<std::int32_t> tokens = readTokens(file, identity.model.vocabSize);
  const Tables tables = readTables(file);
  requireSize(file, indexBytes(header) + contentBytes(header, tables));
  if (!fitsBeside(backend, cache, tables)) {
    file.observe(progress, stop, 2);
    file.verifyAll(indexBytes(header));
    cache.clear();
  }
  cache.replace(sessionCounts(header), tables, [&](const KvCache& fresh) {
    for (std::int64_t layer = 0; layer < identity.model.nLayers; ++layer) {
      forEachRun(fresh, layer, header, [&](std::byte* memory, std::uint64_t bytes) {
        while (bytes > 0) {
          const std::span<const std::byte> source = file.next(bytes);
          backend.upload(memory, source.data(), source.size());
          memory += source.size();
          bytes -= source.size();
          if (file.isBlockDone()) requireCopied(backend);  // its bytes will be overwritten
        }
      });
    }
    requireCopied(backend);
  });
  return tokens;
}

}  // namespace longhand::engine
