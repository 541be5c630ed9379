#pragma once
// The inner loops of the KV cache for one instruction set, behind a table of function pointers.
// kv_portable.cpp, kv_avx2.cpp and kv_avx512.cpp each compile the same templates (kv_*_inl.h) with
// their own vector type into a namespace without linkage, so that the linker cannot replace
// baseline code by code that a machine lacks.
//
// All work on one kv head. A tile is a page, or up to kExactTileTokens tokens of an exact span.
// Attention folds scoreScale * log2(e) into the queries and works with powers of two.

#include <cstddef>
#include <cstdint>

#include "kernels/kv_types.h"

namespace longhand::kernels {

inline constexpr std::int64_t kMaxTileTokens = 128;   // the largest page
inline constexpr std::int64_t kMinGroupSize = 32;     // of a page
inline constexpr std::int64_t kExactTileTokens = 64;  // tokens of an exact span taken at once
inline constexpr std::int64_t kMaxHeadDim = 256;
inline constexpr std::int64_t kRowUnit = 16;           // rows of scratch are padded to this
inline constexpr std::int64_t kMaxDirectQueries = 8;   // more queries share an expanded tile
inline constexpr std::int64_t kExpandedQueries = 512;  // queries that share an expanded tile
inline constexpr std::int64_t kScoreQueries = 64;      // columns of a matrix of scores
inline constexpr std::int64_t kGroupTokens = 256;      // tokens of tiles that are expanded together
/// Below every score, yet finite: the largest score of a query that has seen nothing.
inline constexpr float kNoScore = -1.0e30F;

/// Keys and values of one tile and kv head. With nbits 16 `keys`/`values` are exact rows
/// [nTokens, headDim] of exactType; else words of codes and F16 scales as in page_layout.h.
struct KvTile {
  std::int64_t nTokens = 0;    // valid tokens, 1..kMaxTileTokens
  std::int64_t groupSize = 0;  // tokens a page of codes has room for
  int keyNbits = 16;
  int valueNbits = 16;
  DataType exactType = DataType::kF16;
  std::int64_t keyWords = 0;
  std::int64_t valueGroupSize = 0;
  std::int64_t nValueGroups = 0;
  /// From this tile to one of the same format that will follow soon: kernels ask memory for it
  /// while they work on this one, since no hardware guesses the way from page to page.
  std::ptrdiff_t aheadBytes = 0;
  const std::byte* keys = nullptr;              // codes: [keyWords, groupSize] words
  const std::byte* values = nullptr;            // codes: [groupSize / (32/nbits), headDim] words
  const std::uint16_t* keyScales = nullptr;     // [headDim]
  const std::uint16_t* keyMins = nullptr;       // [headDim]; nullptr: symmetric
  const std::uint16_t* valueScales = nullptr;   // [nValueGroups, groupSize]
  const std::uint16_t* valueMins = nullptr;     // [nValueGroups, groupSize]; nullptr: symmetric
  std::int64_t chunkToken = kNoChunk;           // number of token 0 in the chunk
  static constexpr std::int64_t kNoChunk = -1;  // the tile is of the history: all queries see it
};

/// Tiles that go through attendExpanded together: kGroupTokens, each rounded up to kRowUnit.
struct KvGroup {
  KvTile tiles[kGroupTokens / kRowUnit];
  std::int64_t nTiles = 0;
};

/// Queries of one kv head with their running softmax, and the scratch of the thread at work.
struct QueryBlock {
  std::int64_t headDim = 0;
  std::int64_t rowFloats = 0;  // headDim rounded up to kRowUnit
  std::int64_t nQueries = 0;   // direct: 1, 2, 4 or 8; expanded: a multiple of kRowUnit, <= 512
  // Direct: [nQueries, rowFloats], padding is 0. Expanded: as arrangeQueries() wrote them.
  const float* queries = nullptr;
  const std::int32_t* visible =
      nullptr;                         // direct: [nQueries] tokens of the tile seen; nullptr: all
  const std::int32_t* seen = nullptr;  // expanded: [nQueries] tokens of the chunk seen, rising
  float* largest = nullptr;            // [nQueries] largest score so far, or kNoScore
  float* sum = nullptr;                // [nQueries] sum of 2^(score - largest)
  float* output = nullptr;             // [nQueries, rowFloats] sum of 2^(score - largest) * v
  float* factor = nullptr;             // [kExpandedQueries]
  float* scores = nullptr;             // [kGroupTokens, kScoreQueries]
  float* keys = nullptr;               // [keyScratchFloats]
  float* values = nullptr;             // [keyScratchFloats]
};

/// Floats that QueryBlock::keys needs: [tokens, rowFloats], or [headDim, kMaxTileTokens].
constexpr std::int64_t keyScratchFloats(std::int64_t rowFloats) {
  return rowFloats * kMaxTileTokens;
}

struct KvKernels {
  const char* name;
  /// attendDirect() rounds queries and probabilities to integers where they meet codes: the error
  /// is within a fifth of the cache's own (kv_decode_vnni_inl.h).
  bool attendsByIntegers = false;

  /// Adds tiles to the running softmax, reading codes straight from the page: each scale is folded
  /// into the query (keys) or the probability (values), so a code costs a mask, a conversion and
  /// one multiply-add for each query; by integers, four codes cost a mask and a dot product. For up
  /// to kMaxDirectQueries. Several tiles (what is paid once a call is shared): pages of one format,
  /// full, of kMaxTileTokens together.
  void (*attendDirect)(const KvTile* tiles,  // [nTiles]
                       std::int64_t nTiles, const QueryBlock& block);
  /// The same for many queries and a group of tiles: the tiles are expanded in scratch once, then
  /// come two matrix products. `next` is only prefetched.
  void (*attendExpanded)(const KvGroup& group, const KvGroup& next, const QueryBlock& block);
  /// Sorts scaled queries as attendExpanded wants them; up to the next multiple of kRowUnit, rows
  /// beyond nQueries become any finite queries.
  void (*arrangeQueries)(const float* rows,  // [nQueries, rowFloats], padding 0
                         std::int64_t nQueries, std::int64_t headDim, std::int64_t rowFloats,
                         float* arranged);  // [kExpandedQueries, rowFloats]
  /// Kernels whose attendExpanded works in float, for exact tokens that are kF32; nullptr: these.
  const KvKernels* floatKernels;
  /// Most queries of a block: its queries and outputs shall stay in the second-level cache.
  std::int64_t expandedQueries;

  /// result = sum of outputs / sum of sums, each times 2^(largest - overall largest). Those of a
  /// run lie `stride` floats after those of the run before.
  void (*mergeRuns)(const float* largest, const float* sums,
                    const float* outputs,  // [headDim], and room to read whole vectors
                    std::int64_t stride, std::int64_t nRuns, std::int64_t headDim,
                    float* result);  // [headDim]

  /// Codes (not exact parts) to floats; exactly what dequantize() of kernels/quantizer.h gives.
  void (*expandKeys)(const KvTile& tile, std::int64_t headDim,
                     float* byChannel);  // [headDim, kMaxTileTokens]
  void (*expandValues)(const KvTile& tile, std::int64_t headDim, std::int64_t rowFloats,
                       float* rows);  // [nTokens, rowFloats]

  /// Exact rows as the numbers that are quantized: rounded to F16 and clamped to what it can hold.
  void (*roundToHalves)(const std::byte* exact,  // [nTokens, headDim] of type
                        DataType type, std::int64_t nTokens, std::int64_t headDim,
                        std::int64_t rowFloats,
                        float* rows);  // [nTokens, rowFloats], padding 0
  /// Min-max quantization of a page, one code a byte; equals quantizeGroup() bit for bit. Rows are
  /// representable in F16. `mins` is nullptr in the symmetric scheme.
  void (*quantizeKeys)(const float* rows,  // [nTokens, rowFloats], padding 0
                       std::int64_t nTokens, std::int64_t rowFloats, int nbits, bool isSymmetric,
                       std::uint8_t* codes,    // [nTokens, rowFloats]
                       std::uint16_t* scales,  // [rowFloats]
                       std::uint16_t* mins);   // [rowFloats]
  void (*quantizeValues)(const float* rows,    // [nTokens, rowFloats]
                         std::int64_t nTokens, std::int64_t rowFloats, std::int64_t headDim,
                         std::int64_t valueGroupSize, int nbits, bool isSymmetric,
                         std::uint8_t* codes,    // [nTokens, rowFloats]
                         std::uint16_t* scales,  // [nValueGroups, nTokens]
                         std::uint16_t* mins);   // [nValueGroups, nTokens]

  void (*floatsToHalves)(const float* source, std::uint16_t* destination, std::int64_t count);
  void (*halvesToFloats)(const std::uint16_t* source, float* destination, std::int64_t count);
  /// 2^x in place; 0 below -126. Relative error under 2e-7 for -126 <= x <= 0.
  void (*exp2InPlace)(float* values, std::int64_t count);
};

extern const KvKernels kPortableKvKernels;
extern const KvKernels kAvx2KvKernels;        // defined on x86 only
extern const KvKernels kAvx512KvKernels;      // likewise
extern const KvKernels kAvx512VnniKvKernels;  // likewise

/// attendExpanded and arrangeQueries with products of narrow numbers (x86 only, needs AVX-512
/// BF16): queries and keys are rounded to 16-bit integers, probabilities and values to bfloat16;
/// where groups are whole pages of up to 4 bits, queries and probabilities to bytes
/// (kv_byte_group_inl.h).
void attendExpandedBf16(const KvGroup& group, const KvGroup& next, const QueryBlock& block);
void arrangeQueriesBf16(const float* rows, std::int64_t nQueries, std::int64_t headDim,
                        std::int64_t rowFloats, float* arranged);

}  // namespace longhand::kernels
