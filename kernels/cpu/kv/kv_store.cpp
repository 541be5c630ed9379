#include "kernels/cpu/kv/kv_store.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>

#include "kernels/quantizer.h"
#include "kernels/rounding.h"

namespace longhand::kernels {
namespace {

constexpr float kLargestHalf = 65504.0F;

float* floatsAt(std::byte* memory) { return reinterpret_cast<float*>(memory); }
const float* floatsAt(const std::byte* memory) { return reinterpret_cast<const float*>(memory); }
std::uint16_t* halvesAt(std::byte* memory) { return reinterpret_cast<std::uint16_t*>(memory); }
const std::uint16_t* halvesAt(const std::byte* memory) {
  return reinterpret_cast<const std::uint16_t*>(memory);
}

/// First number of a token of one kv head.
template <typename Byte>
Byte* rowAt(Byte* base, const ExactSpan& span, std::int64_t headDim, std::int64_t kvHead,
            std::int64_t token) {
  return base + bytesOf(span.type, (kvHead * span.tokenCapacity + token) * headDim);
}

void convert(const KvKernels& kernels, DataType from, const std::byte* source, DataType to,
             std::byte* destination, std::int64_t count) {
  if (from == to) {
    std::memcpy(destination, source, bytesOf(from, count));
  } else if (to == DataType::kF16) {
    kernels.floatsToHalves(floatsAt(source), halvesAt(destination), count);
  } else {
    kernels.halvesToFloats(halvesAt(source), floatsAt(destination), count);
  }
}

/// Calls body(source rows, first token of the page, count) for each span's part of the page.
template <typename Body>
void forEachSpan(std::span<const ExactSpan> source, std::int64_t headDim, std::int64_t kvHead,
                 bool isKey, const Body& body) {
  std::int64_t token = 0;
  for (const ExactSpan& span : source) {
    const std::byte* rows = rowAt(isKey ? span.keys : span.values, span, headDim, kvHead, 0);
    if (span.nTokens > 0) body(span, rows, token);
    token += span.nTokens;
  }
}

/// The page's tokens of one kv head as floats that are representable in F16, padding 0.
void loadRounded(const KvKernels& kernels, std::span<const ExactSpan> source, std::int64_t headDim,
                 std::int64_t kvHead, bool isKey, std::int64_t rowFloats, float* rows) {
  forEachSpan(source, headDim, kvHead, isKey,
              [&](const ExactSpan& span, const std::byte* from, std::int64_t firstToken) {
                kernels.roundToHalves(from, span.type, span.nTokens, headDim, rowFloats,
                                      rows + firstToken * rowFloats);
              });
}

void copyExactPart(const KvKernels& kernels, std::span<const ExactSpan> source,
                   std::int64_t headDim, std::int64_t kvHead, bool isKey, const PageFormat& format,
                   std::byte* part) {
  std::byte* head = part + bytesOf(format.exactType, kvHead * format.groupSize * headDim);
  forEachSpan(source, headDim, kvHead, isKey,
              [&](const ExactSpan& span, const std::byte* from, std::int64_t firstToken) {
                convert(kernels, span.type, from, format.exactType,
                        head + bytesOf(format.exactType, firstToken * headDim),
                        span.nTokens * headDim);
              });
}

/// Words are little-endian on every machine.
std::uint32_t loadWord(const std::uint8_t* bytes) {
  std::uint32_t word = 0;
  std::memcpy(&word, bytes, sizeof word);
  return std::endian::native == std::endian::little ? word : __builtin_bswap32(word);
}

void storeWord(std::byte* words, std::int64_t index, std::uint32_t word) {
  if (std::endian::native != std::endian::little) word = __builtin_bswap32(word);
  std::memcpy(words + index * 4, &word, sizeof word);
}

/// Codes [nTokens, rowFloats] to words [word of channels, token]. Four neighbouring codes stand in
/// the four bytes of a word.
void packKeyWords(const std::uint8_t* codes, std::int64_t nTokens, std::int64_t rowFloats,
                  int nbits, std::int64_t nWords, std::byte* words) {
  const std::int64_t perWord = 32 / nbits;
  for (std::int64_t w = 0; w < nWords; ++w) {
    const std::uint8_t* from = codes + w * perWord;
    for (std::int64_t t = 0; t < nTokens; ++t, from += rowFloats) {
      std::uint32_t word = loadWord(from);
      if (nbits == 4) word |= loadWord(from + 4) << 4U;
      if (nbits == 2) {
        word |= loadWord(from + 4) << 2U | loadWord(from + 8) << 4U | loadWord(from + 12) << 6U;
      }
      storeWord(words, w * nTokens + t, word);
    }
  }
}

/// Codes [nTokens, rowFloats] to words [word of tokens, channel].
void packValueWords(const std::uint8_t* codes, std::int64_t nTokens, std::int64_t rowFloats,
                    std::int64_t headDim, int nbits, std::byte* words) {
  const std::int64_t perWord = 32 / nbits;
  for (std::int64_t w = 0; w < nTokens / perWord; ++w) {
    std::uint32_t row[kMaxHeadDim] = {};
    for (std::int64_t i = 0; i < perWord; ++i) {
      const std::uint8_t* from = codes + (w * perWord + i) * rowFloats;
      const auto shift = static_cast<unsigned>(8 * (i % 4) + nbits * (i / 4));
      for (std::int64_t c = 0; c < headDim; ++c) {
        row[c] |= static_cast<std::uint32_t>(from[c]) << shift;
      }
    }
    for (std::int64_t c = 0; c < headDim; ++c) storeWord(words, w * headDim + c, row[c]);
  }
}

/// Groups one by one with the scalar solver; layout of codes and parameters as the kernels'.
void quantizeKeysHqq(const float* rows, std::int64_t nTokens, std::int64_t rowFloats,
                     std::int64_t headDim, int nbits, QuantScheme scheme, std::uint8_t* codes,
                     float* scales, float* mins) {
  float group[kMaxTileTokens];
  std::uint8_t groupCodes[kMaxTileTokens];
  const auto size = static_cast<std::size_t>(nTokens);
  std::memset(codes, 0, static_cast<std::size_t>(nTokens * rowFloats));
  for (std::int64_t c = 0; c < headDim; ++c) {
    for (std::int64_t t = 0; t < nTokens; ++t) group[t] = rows[t * rowFloats + c];
    const GroupParameters found =
        quantizeGroup({group, size}, nbits, scheme, QuantSolver::kHqq, {groupCodes, size});
    scales[c] = found.scale;
    mins[c] = found.min;
    for (std::int64_t t = 0; t < nTokens; ++t) codes[t * rowFloats + c] = groupCodes[t];
  }
}

void quantizeValuesHqq(const float* rows, std::int64_t nTokens, std::int64_t rowFloats,
                       std::int64_t headDim, std::int64_t groupSize, int nbits, QuantScheme scheme,
                       std::uint8_t* codes, float* scales, float* mins) {
  std::int64_t index = 0;
  for (std::int64_t first = 0; first < headDim; first += groupSize) {
    const auto size = static_cast<std::size_t>(std::min(groupSize, headDim - first));
    for (std::int64_t t = 0; t < nTokens; ++t, ++index) {
      const GroupParameters found =
          quantizeGroup({rows + t * rowFloats + first, size}, nbits, scheme, QuantSolver::kHqq,
                        {codes + t * rowFloats + first, size});
      scales[index] = found.scale;
      mins[index] = found.min;
    }
  }
}

}  // namespace

const KvKernels& kvKernelsFor(CpuPath path) {
#ifdef LONGHAND_X86_KERNELS
  if (path == CpuPath::kAvx512Bf16) {
    static const KvKernels kKernels = [] {
      KvKernels kernels = kAvx512VnniKvKernels;
      kernels.name = "AVX-512 BF16";
      kernels.attendExpanded = attendExpandedBf16;
      kernels.arrangeQueries = arrangeQueriesBf16;
      kernels.floatKernels = &kAvx512VnniKvKernels;
      kernels.expandedQueries = kExpandedQueries;
      return kernels;
    }();
    return kKernels;
  }
  if (path == CpuPath::kAvx512Vnni) return kAvx512VnniKvKernels;
  if (path == CpuPath::kAvx512) return kAvx512KvKernels;
  if (path == CpuPath::kAvx2 || path == CpuPath::kAvxVnni) return kAvx2KvKernels;
#else
  static_cast<void>(path);
#endif
  return kPortableKvKernels;
}

KvTile pageTile(const PageRef& page, const PageLayout& layout, std::int64_t headDim,
                std::int64_t kvHead) {
  const PageFormat& format = page.format;
  const std::int64_t group = format.groupSize;
  const auto at = [&](std::size_t part, std::int64_t bytesPerHead) {
    return page.data + part + kvHead * bytesPerHead;
  };
  const auto exactBytes = static_cast<std::int64_t>(bytesOf(format.exactType, group * headDim));
  KvTile tile;
  tile.nTokens = page.nTokens;
  tile.groupSize = group;
  tile.keyNbits = format.keyNbits;
  tile.valueNbits = format.valueNbits;
  tile.exactType = format.exactType;
  tile.keyWords = layout.keyWords;
  tile.valueGroupSize = layout.valueGroupSize;
  tile.nValueGroups = layout.nValueGroups;
  tile.keys = at(layout.keyCodes, format.keyNbits == 16 ? exactBytes : layout.keyWords * group * 4);
  tile.values =
      at(layout.valueCodes, format.valueNbits == 16 ? exactBytes : layout.valueWords * headDim * 4);
  const auto parameters = [&](std::size_t part, std::int64_t perHead) {
    return part == kNoPart ? nullptr : halvesAt(at(part, perHead * 2));
  };
  tile.keyScales = parameters(layout.keyScales, headDim);
  tile.keyMins = parameters(layout.keyMins, headDim);
  tile.valueScales = parameters(layout.valueScales, layout.nValueGroups * group);
  tile.valueMins = parameters(layout.valueMins, layout.nValueGroups * group);
  return tile;
}

KvTile exactTile(const ExactSpan& span, std::int64_t headDim, std::int64_t kvHead,
                 std::int64_t first, std::int64_t count) {
  KvTile tile;
  tile.nTokens = count;
  tile.exactType = span.type;
  tile.keys = rowAt(span.keys, span, headDim, kvHead, first);
  tile.values = rowAt(span.values, span, headDim, kvHead, first);
  return tile;
}

void CpuKv::reserveScratch(std::int64_t headDim) {
  assert(headDim > 0 && headDim <= kMaxHeadDim);
  if (headDim <= scratchHeadDim_) return;
  const std::int64_t rowFloats = roundUp(headDim, kRowUnit);
  // queries and output, scores, keys and values, four small rows: as scratchOf() deals them out.
  const std::int64_t nFloats = 2 * kExpandedQueries * rowFloats + kGroupTokens * kScoreQueries +
                               2 * keyScratchFloats(rowFloats) + 4 * kExpandedQueries;
  linesPerThread_ = static_cast<std::size_t>(nFloats / 16);
  scratch_.assign(linesPerThread_ * static_cast<std::size_t>(pool_.threads()), Line{});
  scratchHeadDim_ = headDim;
}

CpuKv::Scratch CpuKv::scratchOf(int thread) {
  const std::int64_t rowFloats = roundUp(scratchHeadDim_, kRowUnit);
  float* next = scratch_[linesPerThread_ * static_cast<std::size_t>(thread)].values;
  const auto take = [&next](std::int64_t count) {
    float* part = next;
    next += count;
    return part;
  };
  Scratch scratch;
  scratch.queries = take(kExpandedQueries * rowFloats);
  scratch.output = take(kExpandedQueries * rowFloats);
  scratch.scores = take(kGroupTokens * kScoreQueries);
  scratch.keys = take(keyScratchFloats(rowFloats));
  scratch.values = take(keyScratchFloats(rowFloats));
  scratch.largest = take(kExpandedQueries);
  scratch.sum = take(kExpandedQueries);
  scratch.factor = take(kExpandedQueries);
  scratch.visible = reinterpret_cast<std::int32_t*>(take(kExpandedQueries));
  return scratch;
}

void CpuKv::storeExact(const AttentionShape& shape, const MatrixView& keys,
                       const MatrixView& values, const ExactSpan& span, std::int64_t firstToken) {
  assert(keys.rows == values.rows && firstToken + keys.rows <= span.tokenCapacity);
  const std::int64_t headDim = shape.headDim;
  const std::int64_t grain = std::max<std::int64_t>(1, 16384 / (shape.nKvHeads * headDim));
  pool_.parallelFor(keys.rows, grain, [&](int, std::int64_t first, std::int64_t last) {
    for (std::int64_t row = first; row < last; ++row) {
      for (std::int64_t kvHead = 0; kvHead < shape.nKvHeads; ++kvHead) {
        const auto store = [&](const MatrixView& from, std::byte* to) {
          const float* source = from.data + row * from.stride + kvHead * headDim;
          convert(kernels_, DataType::kF32, reinterpret_cast<const std::byte*>(source), span.type,
                  rowAt(to, span, headDim, kvHead, firstToken + row), headDim);
        };
        store(keys, span.keys);
        store(values, span.values);
      }
    }
  });
}

void CpuKv::packPage(const AttentionShape& shape, std::span<const ExactSpan> source,
                     const PageFormat& format, QuantSolver solver, std::byte* page) {
  assert(isValid(format));
  const PageLayout layout = pageLayout(format, shape.nKvHeads, shape.headDim);
  // Padding too, so that equal tokens give equal pages, byte for byte.
  std::memset(page, 0, layout.totalBytes);
  reserveScratch(shape.headDim);
  const std::int64_t grain = std::max<std::int64_t>(1, 4096 / (format.groupSize * shape.headDim));
  pool_.parallelFor(shape.nKvHeads, grain, [&](int thread, std::int64_t first, std::int64_t last) {
    const Scratch scratch = scratchOf(thread);
    for (std::int64_t kvHead = first; kvHead < last; ++kvHead) {
      packHead(shape, source, format, solver, layout, kvHead, scratch, page);
    }
  });
}

void CpuKv::packHead(const AttentionShape& shape, std::span<const ExactSpan> source,
                     const PageFormat& format, QuantSolver solver, const PageLayout& layout,
                     std::int64_t kvHead, const Scratch& scratch, std::byte* page) {
  const std::int64_t headDim = shape.headDim;
  const std::int64_t group = format.groupSize;
  const std::int64_t rowFloats = roundUp(headDim, kRowUnit);
  const bool isSymmetric = format.scheme == QuantScheme::kSymmetric;
  const bool isHqq = solver == QuantSolver::kHqq;
  float* rows = scratch.values;
  auto* codes = reinterpret_cast<std::uint8_t*>(scratch.keys);
  float* scales = scratch.scores;  // HQQ's, as floats
  float* mins = scratch.scores + kGroupTokens * kScoreQueries / 2;
  const auto partOf = [&](std::size_t part, std::int64_t perHead) {
    return part == kNoPart ? nullptr : halvesAt(page + part) + kvHead * perHead;
  };

  if (format.keyNbits == 16) {
    copyExactPart(kernels_, source, headDim, kvHead, true, format, page + layout.keyCodes);
  } else {
    loadRounded(kernels_, source, headDim, kvHead, true, rowFloats, rows);
    std::uint16_t* pageScales = partOf(layout.keyScales, headDim);
    std::uint16_t* pageMins = partOf(layout.keyMins, headDim);
    if (isHqq) {
      quantizeKeysHqq(rows, group, rowFloats, headDim, format.keyNbits, format.scheme, codes,
                      scales, mins);
      kernels_.floatsToHalves(scales, pageScales, headDim);
      if (pageMins != nullptr) kernels_.floatsToHalves(mins, pageMins, headDim);
    } else {
      std::uint16_t paddedScales[kMaxHeadDim];
      std::uint16_t paddedMins[kMaxHeadDim];
      kernels_.quantizeKeys(rows, group, rowFloats, format.keyNbits, isSymmetric, codes,
                            paddedScales, isSymmetric ? nullptr : paddedMins);
      std::copy_n(paddedScales, headDim, pageScales);
      if (pageMins != nullptr) std::copy_n(paddedMins, headDim, pageMins);
    }
    packKeyWords(codes, group, rowFloats, format.keyNbits, layout.keyWords,
                 page + layout.keyCodes + kvHead * layout.keyWords * group * 4);
  }

  if (format.valueNbits == 16) {
    copyExactPart(kernels_, source, headDim, kvHead, false, format, page + layout.valueCodes);
    return;
  }
  loadRounded(kernels_, source, headDim, kvHead, false, rowFloats, rows);
  const std::int64_t nParameters = layout.nValueGroups * group;
  std::uint16_t* pageScales = partOf(layout.valueScales, nParameters);
  std::uint16_t* pageMins = partOf(layout.valueMins, nParameters);
  if (isHqq) {
    quantizeValuesHqq(rows, group, rowFloats, headDim, layout.valueGroupSize, format.valueNbits,
                      format.scheme, codes, scales, mins);
    kernels_.floatsToHalves(scales, pageScales, nParameters);
    if (pageMins != nullptr) kernels_.floatsToHalves(mins, pageMins, nParameters);
  } else {
    kernels_.quantizeValues(rows, group, rowFloats, headDim, layout.valueGroupSize,
                            format.valueNbits, isSymmetric, codes, pageScales, pageMins);
  }
  packValueWords(codes, group, rowFloats, headDim, format.valueNbits,
                 page + layout.valueCodes + kvHead * layout.valueWords * headDim * 4);
}

void CpuKv::unpackPage(const AttentionShape& shape, const PageRef& page,
                       const ExactSpan& destination) {
  assert(page.nTokens <= destination.tokenCapacity);
  const PageLayout layout = pageLayout(page.format, shape.nKvHeads, shape.headDim);
  const std::int64_t headDim = shape.headDim;
  const std::int64_t rowFloats = roundUp(headDim, kRowUnit);
  const bool isHalf = destination.type == DataType::kF16;
  reserveScratch(headDim);
  pool_.parallelFor(shape.nKvHeads, 1, [&](int thread, std::int64_t first, std::int64_t last) {
    const Scratch scratch = scratchOf(thread);
    for (std::int64_t kvHead = first; kvHead < last; ++kvHead) {
      const KvTile tile = pageTile(page, layout, headDim, kvHead);
      const auto write = [&](std::byte* to, const float* rows) {
        for (std::int64_t t = 0; t < tile.nTokens; ++t) {
          float row[kMaxHeadDim];
          for (std::int64_t c = 0; c < headDim; ++c) {
            const float value = rows[t * rowFloats + c];
            row[c] = isHalf ? std::clamp(value, -kLargestHalf, kLargestHalf) : value;
          }
          convert(kernels_, DataType::kF32, reinterpret_cast<const std::byte*>(row),
                  destination.type, rowAt(to, destination, headDim, kvHead, t), headDim);
        }
      };
      const auto exactRows = [&](const std::byte* from, float* rows) {
        for (std::int64_t t = 0; t < tile.nTokens; ++t) {
          convert(kernels_, tile.exactType, from + bytesOf(tile.exactType, t * headDim),
                  DataType::kF32, reinterpret_cast<std::byte*>(rows + t * rowFloats), headDim);
        }
      };
      if (tile.keyNbits == 16) {
        exactRows(tile.keys, scratch.values);
      } else {
        kernels_.expandKeys(tile, headDim, scratch.keys);
        for (std::int64_t t = 0; t < tile.nTokens; ++t) {
          for (std::int64_t c = 0; c < headDim; ++c) {
            scratch.values[t * rowFloats + c] = scratch.keys[c * kMaxTileTokens + t];
          }
        }
      }
      write(destination.keys, scratch.values);
      if (tile.valueNbits == 16) {
        exactRows(tile.values, scratch.values);
      } else {
        kernels_.expandValues(tile, headDim, rowFloats, scratch.values);
      }
      write(destination.values, scratch.values);
    }
  });
}

}  // namespace longhand::kernels
