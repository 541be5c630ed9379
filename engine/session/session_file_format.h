#pragma once
// The format of session files (.lhkv): a KV cache with its tokens, as it stood in memory.
//
// All numbers are little-endian. A file is a header of 512 bytes and then blocks:
//
//   SessionFileHeader
//   block 0 | checksum of block 0 (8 bytes) | block 1 | checksum of block 1 | ...
//
// Every block but the last has header.blockBytes bytes; the last has what is left (1 or more). The
// blocks' bytes in order, without the checksums, are the payload of header.payloadBytes bytes:
//
//   token ids     int32 [nTokens]
//   page table    SessionFilePage [nLayers][pagesPerLayer], oldest page first
//   for each layer:
//     exact tokens, in up to three stretches: the sink's sinkTokens tokens, then the residual's
//     ringTokens tokens, which lie in a ring of residualLength + groupSize slots from slot
//     ringFirst on and fall into two stretches where they run over the ring's end. Of each stretch
//       for each kv head: keys [tokens of the stretch, headDim], values [the same],
//       as exactType (0: F32, 1: F16)
//     pages, oldest first: kernels/page_layout.h, PageLayout::totalBytes bytes each
//
// A checksum is XXH3 (64 bits) of the block's bytes, with the seed headerChecksum + index of the
// block: so blocks cannot change places, nor come from another file. headerChecksum is XXH3 without
// a seed of the 504 bytes before it.
//
// The ring is kept as it lies, because the order of stretches is the order of sums in attention:
// so logits after restoring are equal bit by bit to those before saving.

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "engine/cache/kv_cache.h"
#include "engine/cache/kv_cache_config.h"
#include "kernels/kv_types.h"

namespace longhand::engine {

static_assert(std::endian::native == std::endian::little, "session files are written as they lie");

/// Text mode of any kind changes one of its bytes.
inline constexpr std::array<std::uint8_t, 8> kSessionMagic = {'L',  'H',  'K',  'V',
                                                              '\r', '\n', 0x1a, '\n'};
inline constexpr std::uint32_t kSessionVersion = 1;
inline constexpr std::uint32_t kMaxSessionBlockBytes = 1U << 22U;
inline constexpr std::uint64_t kSessionChecksumBytes = 8;

struct SessionFileHeader {
  std::array<std::uint8_t, 8> magic{};
  std::uint32_t version = 0;
  std::uint32_t headerBytes = 0;  // sizeof(SessionFileHeader)
  std::uint64_t payloadBytes = 0;
  std::uint64_t modelFingerprint = 0;
  std::uint64_t tokenizerFingerprint = 0;  // 0: the model has none
  std::uint64_t ropeFingerprint = 0;
  std::uint32_t blockBytes = 0;  // 1 to kMaxSessionBlockBytes
  // AttentionShape and layers of the model.
  std::uint32_t nLayers = 0;
  std::uint32_t nKvHeads = 0;
  std::uint32_t headDim = 0;
  // KvCacheConfig.
  std::uint32_t residualLength = 0;
  std::uint32_t sinkLength = 0;
  std::uint32_t firstLayers = 0;
  std::uint8_t keyNbits = 0;
  std::uint8_t valueNbits = 0;
  std::uint8_t groupSize = 0;
  std::uint8_t firstLayersKeyNbits = 0;
  std::uint8_t firstLayersValueNbits = 0;
  std::uint8_t scheme = 0;     // kernels::QuantScheme
  std::uint8_t solver = 0;     // kernels::QuantSolver
  std::uint8_t exactType = 0;  // kernels::DataType
  std::uint32_t slidingWindow = 0;
  // KvCacheCounts.
  std::uint64_t nTokens = 0;  // sinkTokens + forgottenTokens + packedTokens + ringTokens
  std::uint64_t sinkTokens = 0;
  std::uint64_t packedTokens = 0;
  std::uint64_t pagesPerLayer = 0;
  std::uint64_t ringFirst = 0;
  std::uint64_t ringTokens = 0;
  std::uint64_t forgottenTokens = 0;  // by a sliding window; their ids are kept
  std::uint32_t ringCapacity = 0;     // slots of the ring
  std::uint32_t reserved = 0;
  std::array<char, 128> modelName{};  // UTF-8 for people, filled up with zeros
  std::array<std::uint8_t, 224> reservedZeros{};
  std::uint64_t headerChecksum = 0;
};

/// One entry of the page table.
struct SessionFilePage {
  std::uint8_t keyNbits = 0;
  std::uint8_t valueNbits = 0;
  std::uint8_t groupSize = 0;
  std::uint8_t scheme = 0;
  std::uint8_t exactType = 0;
  std::uint8_t reserved = 0;
  std::uint16_t nTokens = 0;  // valid tokens, 1 to groupSize
};

static_assert(sizeof(SessionFileHeader) == 512);
static_assert(offsetof(SessionFileHeader, version) == 8);
static_assert(offsetof(SessionFileHeader, payloadBytes) == 16);
static_assert(offsetof(SessionFileHeader, modelFingerprint) == 24);
static_assert(offsetof(SessionFileHeader, blockBytes) == 48);
static_assert(offsetof(SessionFileHeader, residualLength) == 64);
static_assert(offsetof(SessionFileHeader, keyNbits) == 76);
static_assert(offsetof(SessionFileHeader, nTokens) == 88);
static_assert(offsetof(SessionFileHeader, modelName) == 152);
static_assert(offsetof(SessionFileHeader, headerChecksum) == 504);
static_assert(sizeof(SessionFilePage) == 8);
static_assert(offsetof(SessionFilePage, nTokens) == 6);
static_assert(static_cast<int>(kernels::DataType::kF32) == 0);
static_assert(static_cast<int>(kernels::DataType::kF16) == 1);

std::uint64_t sessionHeaderChecksum(const SessionFileHeader& header);
std::uint64_t sessionBlockChecksum(const SessionFileHeader& header, std::uint64_t index,
                                   std::span<const std::byte> block);

/// The header of a file of `fileBytes` bytes from its first bytes (those that it has). Checks
/// magic, version, checksum, sizes and counts, so that no number of the result is out of range.
/// `name` is the file's, for messages. Throws Error kFileDamaged; kInvalidArgument for a version
/// this program does not read.
SessionFileHeader parseSessionHeader(std::span<const std::byte> start, std::uint64_t fileBytes,
                                     const std::string& name);

std::uint64_t sessionBlockCount(const SessionFileHeader& header);
/// Of the whole file: header, blocks and checksums.
std::uint64_t sessionFileBytes(const SessionFileHeader& header);

/// What the header says of the cache; of a header that parseSessionHeader has seen.
KvCacheConfig sessionCacheConfig(const SessionFileHeader& header);
KvCacheCounts sessionCounts(const SessionFileHeader& header);
void setSessionCache(SessionFileHeader& header, const KvCacheConfig& config,
                     const KvCacheCounts& counts);

/// An entry of the page table, checked. Throws Error kFileDamaged.
kernels::PageRef parseSessionPage(const SessionFilePage& page, const SessionFileHeader& header,
                                  const std::string& name);
SessionFilePage sessionPage(const kernels::PageRef& page);

}  // namespace longhand::engine
