#pragma once
// Saves a session (a KV cache and its tokens) to a file and restores it, so that no token of a long
// document is computed twice. Format: session_file_format.h.
//
// A cache of many GiB is streamed block by block; there is never a second copy of it besides the
// one that restoring makes anyway.

#include <cstdint>
#include <filesystem>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "engine/cache/kv_cache.h"
#include "engine/model/model_config.h"
#include "engine/session/session_file_io.h"
#include "kernels/backend.h"

namespace longhand::engine {

/// What a session belongs to: a file of another model, tokenizer or RoPE setting is refused.
struct SessionIdentity {
  ModelConfig model;
  std::uint64_t modelFingerprint = 0;
  std::uint64_t tokenizerFingerprint = 0;  // 0: none
};

/// What a file says of itself in its header.
struct SessionInfo {
  std::string modelName;
  std::int64_t nTokens = 0;
  std::uint64_t fileBytes = 0;
  KvCacheConfig cache;
};

/// Reads the header alone. Throws Error kFileNotFound, kFileUnreadable, kFileDamaged, or
/// kInvalidArgument for a format that this program does not read.
SessionInfo readSessionInfo(const std::filesystem::path& path);

/// Bytes of the file that saveSessionFile() would write.
std::uint64_t sessionFileSize(const SessionIdentity& identity, const KvCache& cache);

/// Throws what saveSessionFile() would throw because of the name alone, so that it shows before
/// minutes of work: a folder that is missing or cannot be written, a file that is no session.
void requireSessionTarget(const std::filesystem::path& target);

/// Writes the committed contents of `cache`, whose tokens are `tokens`. The file appears under its
/// name when it is whole and on the disk; until then, and if anything throws, an older file stays
/// as it was. A file that is no session is never replaced. Throws Error kFileUnwritable,
/// kCancelled, kDevice. Returns the file's bytes.
std::uint64_t saveSessionFile(const std::filesystem::path& path, const SessionIdentity& identity,
                              kernels::Backend& backend, const KvCache& cache,
                              std::span<const std::int32_t> tokens, const SessionProgress& progress,
                              const std::stop_token& stop);

/// Replaces the contents of `cache` and returns its tokens. Everything is checked before `cache`
/// changes: header, fingerprints, settings, sizes, all checksums. Where memory holds both, the new
/// contents are built beside the old ones. Else the file is checked first, the old contents go, and
/// it is read again: only a file that becomes unreadable in between, or a stop, then leaves `cache`
/// empty. Throws Error as readSessionInfo(), and kInvalidArgument (belongs to another model,
/// tokenizer, RoPE setting or cache setting), kContextFull (more than `contextLength` tokens),
/// kOutOfMemory, kCancelled, kDevice.
std::vector<std::int32_t> restoreSessionFile(const std::filesystem::path& path,
                                             const SessionIdentity& identity,
                                             std::int64_t contextLength, kernels::Backend& backend,
                                             KvCache& cache, const SessionProgress& progress,
                                             const std::stop_token& stop);

}  // namespace longhand::engine
