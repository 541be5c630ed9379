#pragma once
// Rotary position embedding: frequencies and the cos/sin rows that Backend::rope reads.
//
// default: inv_freq_i = theta^(-2i/d)  (Su et al. 2021);  linear: divided by the factor (Chen et
// al. 2023);  dynamic: theta grows with the sequence (NTK-aware, as Hugging Face does it);  YaRN:
// low frequencies divided, high ones kept, a ramp between, and cos and sin scaled (Peng et al.
// 2023). Angles are formed in double: a float32 angle is off by 7e-3 at position 131071.

#include <cstdint>
#include <vector>

#include "engine/base/memory_ledger.h"
#include "engine/model/model_config.h"
#include "kernels/backend.h"

namespace longhand::engine {

struct RopeFrequencies {
  std::vector<double> inverse;   // [headDim / 2], radians per position
  double attentionFactor = 1.0;  // cos and sin are multiplied by it
};

/// `sequenceLength` matters to dynamic scaling alone: the number of tokens of the sequence at hand.
/// Keys that were cached while it was shorter keep the older base (so does Hugging Face).
RopeFrequencies ropeFrequencies(const RopeConfig& config, std::int64_t headDim,
                                std::int64_t sequenceLength);

/// Rows for positions [firstPosition, firstPosition + nRows): cos [headDim/2], then sin
/// [headDim/2], on the host.
std::vector<float> ropeRows(const RopeFrequencies& frequencies, std::int64_t firstPosition,
                            std::int64_t nRows);

/// The rows of the chunk in flight, in backend memory. Earlier rows are never needed again, since
/// keys are cached after the rotation; so the table is as long as the chunk, not the context.
class RopeTable {
 public:
  /// The backend and the ledger must outlive it.
  RopeTable(kernels::Backend& backend, MemoryLedger& ledger, const RopeConfig& config,
            std::int64_t headDim);

  /// Fills the table for positions [firstPosition, firstPosition + nRows) of a sequence of
  /// `sequenceLength` tokens. Throws kOutOfMemory when it must grow and cannot.
  void prepare(std::int64_t firstPosition, std::int64_t nRows, std::int64_t sequenceLength);
  /// Row of a position that prepare() covered, as Backend::rope takes it.
  const float* row(std::int64_t position) const;

 private:
  kernels::Backend& backend_;
  MemoryLedger& ledger_;
  RopeConfig config_;
  std::int64_t headDim_;
  std::int64_t firstPosition_ = 0;
  BackendBuffer buffer_;  // float [rows of the chunk, headDim]
};

/// Bytes of the table for a chunk.
std::uint64_t ropeTableBytes(std::int64_t headDim, std::int64_t chunkTokens);

}  // namespace longhand::engine
