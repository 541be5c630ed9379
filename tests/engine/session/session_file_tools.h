#pragma once
// Small engines and files of theirs, for tests of saved sessions (and their fuzzer: no Qt here).

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/session/session_file_format.h"

namespace longhand::tests {

/// Five layers, so that a preset with three first layers of their own has others, too.
inline engine::ModelConfig smallModel() {
  engine::ModelConfig config;
  config.name = "small";
  config.hiddenSize = 32;
  config.intermediateSize = 48;
  config.nLayers = 5;
  config.nHeads = 4;
  config.nKvHeads = 2;
  config.headDim = 8;
  config.vocabSize = 97;
  config.trainedLength = 1024;
  config.rope.maxPositionEmbeddings = 1024;
  return config;
}

inline std::unique_ptr<engine::Engine> loadSmall(const engine::KvCacheConfig& cache,
                                                 engine::EngineOptions options = {},
                                                 std::uint64_t seed = 11) {
  options.cache = cache;
  options.threads = std::max(1, options.threads);
  options.weights = engine::WeightFormat::kF32;
  return engine::Engine::loadRandom(smallModel(), options, seed);
}

/// A cache whose ring and pages are in use after a few dozen tokens.
inline engine::KvCacheConfig smallCache() {
  engine::KvCacheConfig config;
  config.groupSize = 32;
  config.residualLength = 16;
  return config;
}

inline std::vector<std::int32_t> someTokens(std::size_t count, std::uint32_t seed = 12345) {
  std::vector<std::int32_t> tokens(count);
  for (std::int32_t& id : tokens) {
    seed = seed * 1664525U + 1013904223U;
    id = static_cast<std::int32_t>((seed >> 16U) % 97U);
  }
  return tokens;
}

inline std::vector<std::byte> readBytes(const std::filesystem::path& path) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(std::filesystem::file_size(path)));
  std::ifstream file(path, std::ios::binary);
  file.read(static_cast<char*>(static_cast<void*>(bytes.data())),
            static_cast<std::streamsize>(bytes.size()));
  return bytes;
}

inline void writeBytes(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(static_cast<const char*>(static_cast<const void*>(bytes.data())),
             static_cast<std::streamsize>(bytes.size()));
}

inline engine::SessionFileHeader headerOf(std::span<const std::byte> file) {
  engine::SessionFileHeader header;
  std::memcpy(&header, file.data(), std::min(file.size(), sizeof(header)));
  return header;
}

/// Puts right checksums into a file with changed contents, as far as its sizes allow: so that
/// changes get past the checksums to the checks behind them.
inline void reseal(std::vector<std::byte>& file) {
  if (file.size() < sizeof(engine::SessionFileHeader)) return;
  engine::SessionFileHeader header = headerOf(file);
  header.headerChecksum = engine::sessionHeaderChecksum(header);
  std::memcpy(file.data(), &header, sizeof(header));
  std::size_t offset = sizeof(header);
  std::uint64_t left = header.payloadBytes;
  for (std::uint64_t index = 0; left > 0 && header.blockBytes > 0; ++index) {
    const std::uint64_t count = std::min<std::uint64_t>(header.blockBytes, left);
    if (file.size() - offset < count + engine::kSessionChecksumBytes) return;
    const std::uint64_t checksum =
        engine::sessionBlockChecksum(header, index, std::span(file).subspan(offset, count));
    std::memcpy(file.data() + offset + count, &checksum, sizeof(checksum));
    offset += count + sizeof(checksum);
    left -= count;
  }
}

}  // namespace longhand::tests
