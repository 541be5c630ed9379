#pragma once
// Where the parts of a KV page lie. One layout for every backend and for session files.
//
// A page is one block of memory with up to six parts, each aligned to kPartAlignmentBytes:
//   key codes, value codes, key scales, key mins, value scales, value mins
// (no mins in the symmetric scheme; no scales and mins for a part with nbits 16).
//
// Codes live in little-endian 32-bit words of 32/nbits codes. Code i of a word (i = 4 * s + j with
// j in 0..3) stands in byte j, at bit s * nbits of that byte: so (word >> (s * nbits)) masked to
// nbits in every byte gives four neighbouring codes as four bytes, ready for a dot product of
// bytes.
//   key codes    [kv_head][word of channels][token]     a word holds 32/nbits channels of one token
//   value codes  [kv_head][word of tokens][channel]     a word holds 32/nbits tokens of one channel
// So a vector register holds neighbouring tokens (keys) or channels (values), and neither a score
// nor an output needs a horizontal sum. head_dim is padded up to whole words in the key codes;
// padding codes are 0. A page always has room for groupSize tokens; codes of tokens that never
// existed (a page is only packed when full) do not occur.
//   key scales, key mins       F16 [kv_head][channel]
//   value scales, value mins   F16 [kv_head][value group][token]
// A value group is min(groupSize, headDim) neighbouring channels; the last one may be shorter.
//
// A part with nbits 16 holds the exact numbers instead of codes:
//   keys, values   [kv_head][token][channel] of format.exactType

#include <cstddef>
#include <cstdint>

#include "kernels/kv_types.h"

namespace longhand::kernels {

inline constexpr std::size_t kPartAlignmentBytes = 64;
inline constexpr std::size_t kNoPart = static_cast<std::size_t>(-1);

/// Byte offsets of the parts from the start of a page; kNoPart where the format has no such part.
struct PageLayout {
  std::size_t keyCodes = 0;
  std::size_t valueCodes = 0;
  std::size_t keyScales = kNoPart;
  std::size_t keyMins = kNoPart;
  std::size_t valueScales = kNoPart;
  std::size_t valueMins = kNoPart;
  std::size_t totalBytes = 0;  // multiple of kPartAlignmentBytes
  std::size_t codeBytes = 0;   // both code parts, padding included
  std::size_t scaleBytes = 0;  // totalBytes - codeBytes

  std::int64_t keyWords = 0;        // words of channels per token and kv head (0 for nbits 16)
  std::int64_t valueWords = 0;      // words of tokens per channel and kv head (0 for nbits 16)
  std::int64_t valueGroupSize = 0;  // min(groupSize, headDim)
  std::int64_t nValueGroups = 0;    // ceil(headDim / valueGroupSize)
};

/// Layout of a page of this format. Requires a valid format (isValid) and shape.
PageLayout pageLayout(const PageFormat& format, std::int64_t nKvHeads, std::int64_t headDim);

/// nbits in {16, 8, 4, 2}, groupSize in {32, 64, 128}, exactType kF16 or kF32.
bool isValid(const PageFormat& format);

}  // namespace longhand::kernels
