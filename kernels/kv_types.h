#pragma once
// The KV cache as the kernels see it: per layer a few spans of exact tokens (sink, residual, the
// chunk in flight) and a list of quantized pages. DESIGN.md section 2.1.

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/types.h"

namespace longhand::kernels {

/// Dimensions of one layer's attention.
struct AttentionShape {
  std::int64_t nHeads = 0;  // query heads; a multiple of nKvHeads
  std::int64_t nKvHeads = 0;
  std::int64_t headDim = 0;  // 8 to 256, even
};

/// Tokens kept exactly, oldest first: keys after RoPE, and values, of all kv heads of one layer.
/// Element (kv_head, token, channel) is at (kv_head * tokenCapacity + token) * headDim + channel.
struct ExactSpan {
  DataType type = DataType::kF16;  // kF16 or kF32
  std::byte* keys = nullptr;       // [nKvHeads, tokenCapacity, headDim]
  std::byte* values = nullptr;     // [nKvHeads, tokenCapacity, headDim]
  std::int64_t tokenCapacity = 0;
  std::int64_t nTokens = 0;  // valid tokens, from the start of each head's rows

  /// Tokens [first, first + count) of this span.
  ExactSpan slice(std::int64_t first, std::int64_t count, std::int64_t headDim) const {
    const std::size_t offset = bytesOf(type, first * headDim);
    return {type, keys + offset, values + offset, tokenCapacity, count};
  }
};

/// How numbers of a group become codes. Written to session files: never renumber.
enum class QuantScheme : std::uint8_t {
  kAsymmetric = 0,  // value = min + scale * code,   code in [0, 2^nbits - 1]
  kSymmetric = 1,   // value = scale * (code - 2^(nbits-1)),   scale = absmax / (2^(nbits-1) - 1)
};

/// How (scale, min) of a group are found. Written to session files: never renumber.
enum class QuantSolver : std::uint8_t { kMinMax = 0, kHqq = 1 };

/// The format of one page: `groupSize` consecutive tokens of all kv heads of one layer.
struct PageFormat {
  std::uint8_t keyNbits = 4;    // 16 (kept exactly, as `exactType`), 8, 4 or 2
  std::uint8_t valueNbits = 4;  // likewise
  std::uint8_t groupSize = 64;  // tokens in the page and values in a group: 32, 64 or 128
  QuantScheme scheme = QuantScheme::kAsymmetric;
  DataType exactType = DataType::kF16;  // of parts with 16 bits: kF16 or kF32

  bool operator==(const PageFormat&) const = default;
};

/// One page in a layer's page table. The table lies in backend memory, oldest page first.
struct PageRef {
  std::byte* data = nullptr;  // laid out as PageLayout says, 64-byte aligned
  PageFormat format;          // 5 bytes
  std::uint8_t reserved = 0;
  std::uint16_t nTokens = 0;  // valid tokens, 1..groupSize: the first of the page
};
static_assert(sizeof(PageFormat) == 5);
static_assert(sizeof(PageRef) == 16);

/// What a query attends to before the chunk it belongs to. Order does not matter to attention,
/// since positions are in the keys.
struct KvView {
  const PageRef* pages = nullptr;  // [nPages], in backend memory
  std::int64_t nPages = 0;
  std::int64_t nPagedTokens = 0;     // sum of the pages' valid tokens
  std::span<const ExactSpan> exact;  // sink and residual; the span itself lies on the host
};

}  // namespace longhand::kernels
