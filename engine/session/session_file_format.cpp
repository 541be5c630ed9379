#include "engine/session/session_file_format.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "engine/base/error.h"
#include "kernels/page_layout.h"

namespace longhand::engine {
namespace {

// More layers than any Llama has; keeps products of counts far inside 64 bits.
constexpr std::uint32_t kMaxLayers = 4096;
constexpr std::uint32_t kMaxKvHeads = 4096;
constexpr std::uint32_t kMaxHeadDim = 4096;

[[noreturn]] void refuse(const std::string& name, const std::string& reason) {
  throw Error(ErrorCode::kFileDamaged, name + ": " + reason + ".",
              "The session cannot be used; the text has to be read again.");
}

void require(bool condition, const std::string& name, const char* reason) {
  if (!condition) refuse(name, reason);
}

void checkShape(const SessionFileHeader& header, const std::string& name) {
  const auto isInRange = [](std::uint32_t value, std::uint32_t most) {
    return value >= 1 && value <= most;
  };
  require(isInRange(header.nLayers, kMaxLayers) && isInRange(header.nKvHeads, kMaxKvHeads) &&
              isInRange(header.headDim, kMaxHeadDim),
          name, "the header's model has an impossible shape");
  require(isInRange(header.blockBytes, kMaxSessionBlockBytes), name,
          "the header's block size is out of range");
}

/// Calls `copy(of the config, of the header)` for each setting of the cache.
template <typename Config, typename Header, typename Copy>
void forEachSetting(Config& config, Header& header, Copy copy) {
  copy(config.keyNbits, header.keyNbits);
  copy(config.valueNbits, header.valueNbits);
  copy(config.groupSize, header.groupSize);
  copy(config.residualLength, header.residualLength);
  copy(config.sinkLength, header.sinkLength);
  copy(config.slidingWindow, header.slidingWindow);
  copy(config.firstLayers, header.firstLayers);
  copy(config.firstLayersKeyNbits, header.firstLayersKeyNbits);
  copy(config.firstLayersValueNbits, header.firstLayersValueNbits);
  copy(config.scheme, header.scheme);
  copy(config.solver, header.solver);
  copy(config.exactType, header.exactType);
}

void checkConfig(const SessionFileHeader& header, const std::string& name) {
  try {
    sessionCacheConfig(header).validate();
  } catch (const Error& error) {
    refuse(name, "the header's cache settings are impossible (" + error.message() + ")");
  }
}

void checkCounts(const SessionFileHeader& header, const std::string& name) {
  const auto most = static_cast<std::uint64_t>(kMaxContextLength);
  const std::uint64_t capacity = std::uint64_t{header.residualLength} + header.groupSize;
  const bool inRange = header.ringCapacity == capacity && header.nTokens <= most &&
                       header.packedTokens <= header.nTokens &&
                       header.sinkTokens <= kMaxExactTokens && header.ringTokens < capacity &&
                       header.ringFirst < capacity && header.forgottenTokens <= header.nTokens;
  // The sink of a converted cache may be longer or shorter than its setting. Every page holds a
  // token or more.
  const bool agree =
      inRange &&
      header.sinkTokens + header.forgottenTokens + header.packedTokens + header.ringTokens ==
          header.nTokens &&
      header.pagesPerLayer <= header.packedTokens &&
      header.packedTokens <= header.pagesPerLayer * kGroupSizes.back();
  require(agree, name, "the header's token counts contradict each other");
}

}  // namespace

std::uint64_t sessionHeaderChecksum(const SessionFileHeader& header) {
  return XXH3_64bits(&header, offsetof(SessionFileHeader, headerChecksum));
}

std::uint64_t sessionBlockChecksum(const SessionFileHeader& header, std::uint64_t index,
                                   std::span<const std::byte> block) {
  return XXH3_64bits_withSeed(block.data(), block.size(), header.headerChecksum + index);
}

SessionFileHeader parseSessionHeader(std::span<const std::byte> start, std::uint64_t fileBytes,
                                     const std::string& name) {
  SessionFileHeader header;
  const std::size_t magicBytes = std::min(start.size(), kSessionMagic.size());
  require(magicBytes > 0 && std::memcmp(start.data(), kSessionMagic.data(), magicBytes) == 0, name,
          "this is no saved session of Longhand");
  require(start.size() >= sizeof(header) && fileBytes >= sizeof(header), name,
          "the file ends inside its header");
  std::memcpy(&header, start.data(), sizeof(header));
  if (header.version != kSessionVersion) {
    const bool isNewer = header.version > kSessionVersion;
    throw Error(
        ErrorCode::kInvalidArgument,
        name + ": the session has format " + std::to_string(header.version) +
            ", and this program reads format " + std::to_string(kSessionVersion) + ".",
        isNewer ? "It was saved by a newer Longhand." : "It was saved by an older Longhand.");
  }
  require(header.headerChecksum == sessionHeaderChecksum(header), name,
          "the header's checksum is wrong");
  require(header.headerBytes == sizeof(header), name, "the header has another size");
  require(std::none_of(header.modelName.begin(), header.modelName.end(),
                       [](char c) { return c > '\0' && c < ' '; }) &&
              header.modelName.back() == '\0',
          name, "the model's name in the header is no text");
  checkShape(header, name);
  checkConfig(header, name);
  checkCounts(header, name);
  // A payload no larger than its file cannot overflow what is computed from it.
  require(header.payloadBytes <= fileBytes && sessionFileBytes(header) == fileBytes, name,
          "the file is shorter or longer than its header says");
  return header;
}

std::uint64_t sessionBlockCount(const SessionFileHeader& header) {
  return header.payloadBytes / header.blockBytes +
         (header.payloadBytes % header.blockBytes != 0 ? 1 : 0);
}

std::uint64_t sessionFileBytes(const SessionFileHeader& header) {
  return sizeof(header) + header.payloadBytes + sessionBlockCount(header) * kSessionChecksumBytes;
}

KvCacheConfig sessionCacheConfig(const SessionFileHeader& header) {
  KvCacheConfig config;
  forEachSetting(config, header, [](auto& setting, auto stored) {
    setting = static_cast<std::remove_reference_t<decltype(setting)>>(stored);
  });
  return config;
}

KvCacheCounts sessionCounts(const SessionFileHeader& header) {
  KvCacheCounts counts;
  counts.sinkTokens = static_cast<std::int64_t>(header.sinkTokens);
  counts.forgottenTokens = static_cast<std::int64_t>(header.forgottenTokens);
  counts.packedTokens = static_cast<std::int64_t>(header.packedTokens);
  counts.nPages = static_cast<std::int64_t>(header.pagesPerLayer);
  counts.ringFirst = static_cast<std::int64_t>(header.ringFirst);
  counts.ringTokens = static_cast<std::int64_t>(header.ringTokens);
  return counts;
}

void setSessionCache(SessionFileHeader& header, const KvCacheConfig& config,
                     const KvCacheCounts& counts) {
  forEachSetting(config, header, [](auto setting, auto& stored) {
    stored = static_cast<std::remove_reference_t<decltype(stored)>>(setting);
  });
  header.nTokens = static_cast<std::uint64_t>(counts.length());
  header.sinkTokens = static_cast<std::uint64_t>(counts.sinkTokens);
  header.forgottenTokens = static_cast<std::uint64_t>(counts.forgottenTokens);
  header.packedTokens = static_cast<std::uint64_t>(counts.packedTokens);
  header.pagesPerLayer = static_cast<std::uint64_t>(counts.nPages);
  header.ringFirst = static_cast<std::uint64_t>(counts.ringFirst);
  header.ringTokens = static_cast<std::uint64_t>(counts.ringTokens);
  header.ringCapacity = header.residualLength + header.groupSize;
}

kernels::PageRef parseSessionPage(const SessionFilePage& page, const SessionFileHeader& header,
                                  const std::string& name) {
  require(page.scheme <= static_cast<std::uint8_t>(kernels::QuantScheme::kSymmetric) &&
              page.exactType == header.exactType,
          name, "a page has an unknown format");
  kernels::PageRef ref;
  ref.format.keyNbits = page.keyNbits;
  ref.format.valueNbits = page.valueNbits;
  ref.format.groupSize = page.groupSize;
  ref.format.scheme = static_cast<kernels::QuantScheme>(page.scheme);
  ref.format.exactType = static_cast<kernels::DataType>(page.exactType);
  ref.nTokens = page.nTokens;
  require(kernels::isValid(ref.format), name, "a page has an unknown format");
  require(page.nTokens >= 1 && page.nTokens <= page.groupSize, name,
          "a page has an impossible number of tokens");
  return ref;
}

SessionFilePage sessionPage(const kernels::PageRef& page) {
  SessionFilePage result;
  result.keyNbits = page.format.keyNbits;
  result.valueNbits = page.format.valueNbits;
  result.groupSize = page.format.groupSize;
  result.scheme = static_cast<std::uint8_t>(page.format.scheme);
  result.exactType = static_cast<std::uint8_t>(page.format.exactType);
  result.nTokens = page.nTokens;
  return result;
}

}  // namespace longhand::engine
