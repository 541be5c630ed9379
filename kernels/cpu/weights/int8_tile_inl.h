#pragma once
// Panels of weight bytes times many tokens: see int8_kernels.h for formats and formula.
// Included after simd_<set>.h and int8_tile_simd_<set>.h: see cpu_kernels.h.

#include "kernels/cpu/weights/int8_kernels.h"

namespace longhand::kernels {
namespace {

inline constexpr std::int64_t kInt8PanelRows = Int8Simd::kRowVectors * Simd::kLanes;
inline constexpr std::int64_t kBlockQuads = kNf4BlockSize / kInt8Quad;

// --- Input ---------------------------------------------------------------------------------------

inline void quantizeInput(const float* rows, std::int64_t rowStride, const Int8Input& input,
                          std::int64_t firstToken, std::int64_t lastToken) {
  constexpr float kLargestByte = 127.0F;
  constexpr float kSmallest = 1e-30F;  // its inverse is finite
  for (std::int64_t first = firstToken; first < lastToken; first += Int8Simd::kTokens) {
    const std::int64_t count =
        lastToken - first < Int8Simd::kTokens ? lastToken - first : Int8Simd::kTokens;
    std::int64_t at = first * input.nBlocks;
    for (std::int64_t block = 0; block < input.nBlocks; ++block) {
      for (std::int64_t t = 0; t < count; ++t, ++at) {
        const float* const numbers = rows + (first + t) * rowStride + block * kNf4BlockSize;
        const float largest = Int8Simd::largestMagnitude(numbers);
        const bool isZero = largest < kSmallest;  // not for NaN
        const std::int32_t sum = Int8Simd::quantize(numbers, isZero ? 0.0F : kLargestByte / largest,
                                                    input.values + at * kNf4BlockSize);
        input.scales[at] = isZero ? 0.0F : largest / kLargestByte;
        input.corrections[at] = -Int8Simd::kBias * sum;
      }
    }
  }
}

// --- Weights -------------------------------------------------------------------------------------

inline constexpr std::int64_t kQuadBytes = kInt8PanelRows * kInt8Quad;

// Calls expandWords(words, output) for each 8 words that lie one after another in the rows of a
// vector, 16 rows each, in the order of the panel; output is the place of their first quad.
// kWordsPerBlock: 32-bit words that a row stores for a block.
template <int kWordsPerBlock, typename Expand>
void expandRows(const Int8ExpandJob& job, std::uint8_t* weights, const Expand& expandWords) {
  constexpr int kWords = 8;
  constexpr int kSteps = kWordsPerBlock / kWords;  // in a block
  constexpr std::int64_t kStepBytes = kWords * std::int64_t{sizeof(std::int32_t)};
  for (std::int64_t v = 0; v < Int8Simd::kRowVectors; ++v) {
    const std::uint8_t* rows[Simd::kLanes];
    for (std::int64_t lane = 0; lane < Simd::kLanes; ++lane) {
      const std::int64_t row = v * Simd::kLanes + lane;
      rows[lane] = job.codes + (row < job.nRows ? row : job.nRows - 1) * job.rowBytes;
    }
    std::uint8_t* output = weights + v * Simd::kLanes * kInt8Quad;
    for (std::int64_t step = 0; step < job.nBlocks * kSteps; ++step) {
      Int8Simd::Words words[kWords];
      Int8Simd::loadTransposed(rows, words);
      for (std::int64_t lane = 0; lane < Simd::kLanes; ++lane) rows[lane] += kStepBytes;
      expandWords(words, output);
      output += kBlockQuads / kSteps * kQuadBytes;
    }
  }
}

inline void expandNf4Panel(const Int8ExpandJob& job, std::uint8_t* weights) {
  const Int8Simd::Words table = Int8Simd::loadTable(job.codebook);
  expandRows<8>(job, weights, [table](const Int8Simd::Words(&words)[8], std::uint8_t* output) {
    for (const Int8Simd::Words& codes : words) {
      // The first code of a byte is in its high nibble: numbers 0 2 4 6, then 1 3 5 7.
      Int8Simd::storeWords(output, Int8Simd::lookUpHigh(table, codes));
      Int8Simd::storeWords(output + kQuadBytes, Int8Simd::lookUpLow(table, codes));
      output += 2 * kQuadBytes;
    }
  });
}

inline void expandInt8Panel(const Int8ExpandJob& job, std::uint8_t* weights) {
  expandRows<16>(job, weights, [](const Int8Simd::Words(&words)[8], std::uint8_t* output) {
    for (int w = 0; w < 8; w += 2) {
      Int8Simd::Words even;
      Int8Simd::Words odd;
      Int8Simd::separate(words[w], words[w + 1], even, odd);
      Int8Simd::storeWords(output, Int8Simd::toUnsigned(even));
      Int8Simd::storeWords(output + kQuadBytes, Int8Simd::toUnsigned(odd));
      output += 2 * kQuadBytes;
    }
  });
}

// --- Product -------------------------------------------------------------------------------------

// kIsWhole: the panel has all its rows.
template <int kTokens, bool kIsWhole>
void multiplyInt8Group(const Int8PanelJob& job, std::int64_t token) {
  constexpr int kVectors = Int8Simd::kRowVectors;
  constexpr std::int64_t kLanes = Simd::kLanes;
  float* const output = job.output + token * job.outputStride;
  // Rows of vector v that exist.
  const auto lanesOf = [&job](int v) {
    const std::int64_t left = job.nRows - v * kLanes;
    return left < 0 ? 0 : left < kLanes ? left : kLanes;
  };
  Simd::Float sums[kTokens][kVectors];
  for (int t = 0; t < kTokens; ++t) {
    const float* const row = output + t * job.outputStride;
    for (int v = 0; v < kVectors; ++v) {
      if (!job.accumulate) {
        sums[t][v] = Simd::zero();
      } else if constexpr (kIsWhole) {
        sums[t][v] = Simd::load(row + v * kLanes);
      } else {
        sums[t][v] = Int8Simd::loadFirst(row + v * kLanes, lanesOf(v));
      }
    }
  }
  const Int8Input input = job.input;
  const std::int64_t nBlocks = job.nBlocks;
  std::int64_t at = token * input.nBlocks + job.firstBlock * kTokens;
  const std::uint8_t* weights = job.weights;
  const float* weightScales = job.weightScales;
  for (std::int64_t block = 0; block < nBlocks; ++block) {
    const std::int8_t* const values = input.values + at * kNf4BlockSize;  // [kTokens, 64]
    Int8Simd::Sums dots[kTokens][kVectors];
    for (int t = 0; t < kTokens; ++t) {
      const Int8Simd::Sums correction = Int8Simd::broadcastSum(input.corrections[at + t]);
      for (int v = 0; v < kVectors; ++v) dots[t][v] = correction;
    }
    for (std::int64_t quad = 0; quad < kBlockQuads; ++quad) {
      Int8Simd::Weights w[kVectors];
      for (int v = 0; v < kVectors; ++v) {
        w[v] = Int8Simd::loadWeights(weights + v * kLanes * kInt8Quad);
      }
      weights += kInt8PanelRows * kInt8Quad;
      for (int t = 0; t < kTokens; ++t) {
        std::int32_t word = 0;
        __builtin_memcpy(&word, values + t * kNf4BlockSize + quad * kInt8Quad, sizeof(word));
        const Int8Simd::Words x = Int8Simd::broadcastWord(word);
        for (int v = 0; v < kVectors; ++v) dots[t][v] = Int8Simd::dot(dots[t][v], w[v], x);
      }
    }
    for (int v = 0; v < kVectors; ++v) {
      const Simd::Float weightScale = Simd::load(weightScales + v * kLanes);
      for (int t = 0; t < kTokens; ++t) {
        const Simd::Float scale =
            Simd::multiply(weightScale, Simd::broadcast(input.scales[at + t]));
        sums[t][v] = Simd::multiplyAdd(Int8Simd::toFloat(dots[t][v]), scale, sums[t][v]);
      }
    }
    weightScales += kInt8PanelRows;
    at += kTokens;
    // Else GCC keeps the float sums in registers and the integer ones, which need them, on the
    // stack.
    if constexpr (!Int8Simd::kHasRoomForSums) asm volatile("" : "+m"(sums));
  }
  for (int t = 0; t < kTokens; ++t) {
    float* const row = output + t * job.outputStride;
    for (int v = 0; v < kVectors; ++v) {
      if constexpr (kIsWhole) {
        Simd::store(row + v * kLanes, sums[t][v]);
      } else {
        Int8Simd::storeFirst(row + v * kLanes, sums[t][v], lanesOf(v));
      }
    }
  }
}

// The last tokens, up to kMost.
template <int kMost, bool kIsWhole>
void multiplyInt8Rest(const Int8PanelJob& job, std::int64_t token) {
  if constexpr (kMost > 0) {
    if (job.lastToken - token == kMost) return multiplyInt8Group<kMost, kIsWhole>(job, token);
    multiplyInt8Rest<kMost - 1, kIsWhole>(job, token);
  }
}

// Fetches the lines of an Int8Prefetch, so many a step that nSteps steps fetch them all.
class PrefetchWalk {
 public:
  PrefetchWalk(const Int8Prefetch& next, std::int64_t nSteps)
      : next_(next),
        linesPerRow_((next.count + kLineBytes - 1) / kLineBytes),
        linesPerStep_((next.nRows * linesPerRow_ + nSteps - 1) / nSteps) {}
  void step() {
    for (std::int64_t i = 0; i < linesPerStep_ && row_ < next_.nRows; ++i) {
      __builtin_prefetch(next_.codes + row_ * next_.rowBytes + line_ * kLineBytes, 0, 3);
      if (++line_ == linesPerRow_) {
        line_ = 0;
        ++row_;
      }
    }
  }

 private:
  static constexpr std::int64_t kLineBytes = 64;
  const Int8Prefetch next_;
  const std::int64_t linesPerRow_;
  const std::int64_t linesPerStep_;
  std::int64_t row_ = 0;
  std::int64_t line_ = 0;
};

template <bool kIsWhole>
void multiplyInt8Tokens(const Int8PanelJob& job) {
  const std::int64_t nTokens = job.lastToken - job.firstToken;
  PrefetchWalk prefetch(job.next, (nTokens + Int8Simd::kTokens - 1) / Int8Simd::kTokens);
  std::int64_t token = job.firstToken;
  for (; token + Int8Simd::kTokens <= job.lastToken; token += Int8Simd::kTokens) {
    prefetch.step();
    multiplyInt8Group<Int8Simd::kTokens, kIsWhole>(job, token);
  }
  prefetch.step();
  multiplyInt8Rest<Int8Simd::kTokens - 1, kIsWhole>(job, token);
}

inline void multiplyPanel(const Int8PanelJob& job) {
  if (job.nRows == kInt8PanelRows) {
    multiplyInt8Tokens<true>(job);
  } else {
    multiplyInt8Tokens<false>(job);
  }
}

inline constexpr Int8Kernels kInt8Kernels = {
    .panelRows = kInt8PanelRows,
    .groupTokens = Int8Simd::kTokens,
    .quantizeInput = quantizeInput,
    .expandNf4Panel = expandNf4Panel,
    .expandInt8Panel = expandInt8Panel,
    .multiplyPanel = multiplyPanel,
};

}  // namespace
}  // namespace longhand::kernels
