#pragma once
// Weight rows times 1 to 4 tokens, straight from the stored numbers: each weight is read once.
// Included after simd_<set>.h and simd_partial.h: see cpu_kernels.h.

#include "kernels/cpu/weights/cpu_kernels.h"

namespace longhand::kernels {
namespace {

inline void put(const MatvecJob& job, std::int64_t token, std::int64_t row, float value) {
  float* const output = job.output + token * job.outputStride + row;
  *output = job.accumulate ? *output + value : value;
}

// --- F32, F16, BF16 -----------------------------------------------------------------------------

// How far ahead of the weights in use the next ones are asked for: the processor's own prefetchers
// stop at each page of 4 KiB.
inline constexpr std::int64_t kPrefetchBytes = 8 * 1024;

// One token, one row: the memory is read in one line. Four sums hide the latency of the additions.
template <typename Numbers>
void plainRow(const MatvecJob& job, std::int64_t row) {
  using Stored = typename Numbers::Stored;
  constexpr int kSums = 4;
  constexpr std::int64_t kStep = kSums * Simd::kLanes;
  constexpr std::int64_t kLineNumbers = 64 / static_cast<std::int64_t>(sizeof(Stored));
  const std::int64_t cols = job.weight.cols;
  const Stored* const weights =
      static_cast<const Stored*>(static_cast<const void*>(job.weight.data)) + row * cols;
  Simd::Float sums[kSums];
  for (int s = 0; s < kSums; ++s) sums[s] = Simd::zero();
  std::int64_t i = 0;
  for (; i + kStep <= cols; i += kStep) {
    const Stored* const ahead =
        weights + i + kPrefetchBytes / static_cast<std::int64_t>(sizeof(Stored));
#pragma GCC unroll 4
    for (std::int64_t line = 0; line < kStep; line += kLineNumbers) {
      __builtin_prefetch(ahead + line);
    }
#pragma GCC unroll 4
    for (int s = 0; s < kSums; ++s) {
      const std::int64_t at = i + s * Simd::kLanes;
      sums[s] = Simd::multiplyAdd(Numbers::load(weights + at), Simd::load(job.input + at), sums[s]);
    }
  }
  for (; i + Simd::kLanes <= cols; i += Simd::kLanes) {
    sums[0] = Simd::multiplyAdd(Numbers::load(weights + i), Simd::load(job.input + i), sums[0]);
  }
  if (i < cols) {
    sums[1] = Simd::multiplyAdd(loadFirstNumbers<Numbers>(weights + i, cols - i),
                                loadFirst(job.input + i, cols - i), sums[1]);
  }
  put(job, 0, row, Simd::sum(Simd::add(Simd::add(sums[0], sums[1]), Simd::add(sums[2], sums[3]))));
}

template <typename Numbers, int kTokens, int kRows>
void plainRows(const MatvecJob& job, std::int64_t row) {
  using Stored = typename Numbers::Stored;
  const std::int64_t cols = job.weight.cols;
  const Stored* const weights =
      static_cast<const Stored*>(static_cast<const void*>(job.weight.data));  // [rows, cols]
  const Stored* const firstRow = weights + row * cols;
  Simd::Float sums[kTokens][kRows];
  for (int t = 0; t < kTokens; ++t) {
    for (int r = 0; r < kRows; ++r) sums[t][r] = Simd::zero();
  }
  const Stored* ahead = firstRow + kPrefetchBytes / static_cast<std::int64_t>(sizeof(Stored));
  std::int64_t i = 0;
  for (; i + Simd::kLanes <= cols; i += Simd::kLanes) {
    __builtin_prefetch(ahead);
    ahead += kRows * Simd::kLanes;
    for (int r = 0; r < kRows; ++r) {
      const Simd::Float w = Numbers::load(firstRow + r * cols + i);
      for (int t = 0; t < kTokens; ++t) {
        const Simd::Float x = Simd::load(job.input + t * job.inputStride + i);
        sums[t][r] = Simd::multiplyAdd(w, x, sums[t][r]);
      }
    }
  }
  if (i < cols) {
    for (int r = 0; r < kRows; ++r) {
      const Simd::Float w = loadFirstNumbers<Numbers>(firstRow + r * cols + i, cols - i);
      for (int t = 0; t < kTokens; ++t) {
        const Simd::Float x = loadFirst(job.input + t * job.inputStride + i, cols - i);
        sums[t][r] = Simd::multiplyAdd(w, x, sums[t][r]);
      }
    }
  }
  for (int t = 0; t < kTokens; ++t) {
    for (int r = 0; r < kRows; ++r) put(job, t, row + r, Simd::sum(sums[t][r]));
  }
}

template <typename Numbers, int kTokens>
void plainMatvec(const MatvecJob& job, std::int64_t firstRow, std::int64_t lastRow) {
  constexpr int kRows = 2;
  std::int64_t row = firstRow;
  for (; row + kRows <= lastRow; row += kRows) plainRows<Numbers, kTokens, kRows>(job, row);
  for (; row < lastRow; ++row) plainRows<Numbers, kTokens, 1>(job, row);
}

template <typename Numbers>
void matvecPlain(const MatvecJob& job, std::int64_t firstRow, std::int64_t lastRow) {
  switch (job.nTokens) {
    case 1:
      for (std::int64_t row = firstRow; row < lastRow; ++row) plainRow<Numbers>(job, row);
      return;
    case 2:
      return plainMatvec<Numbers, 2>(job, firstRow, lastRow);
    case 3:
      return plainMatvec<Numbers, 3>(job, firstRow, lastRow);
    case 4:
      return plainMatvec<Numbers, 4>(job, firstRow, lastRow);
    default:
      return;
  }
}

// --- NF4 ----------------------------------------------------------------------------------------
// A chunk is one vector of words: 8 codes of 4 bits in each lane. Step k looks up the k-th code of
// every lane at once; the input was sorted to match, so no code has to be moved.

inline constexpr std::int64_t kChunkSteps = 8;
inline constexpr std::int64_t kChunkCodes = kChunkSteps * Simd::kLanes;

inline void arrangeNf4Input(const float* input, std::int64_t cols, float* arranged) {
  for (std::int64_t first = 0; first < cols; first += kChunkCodes) {
    for (std::int64_t k = 0; k < kChunkSteps; ++k) {
      for (std::int64_t lane = 0; lane < Simd::kLanes; ++lane) {
        // The first code of a byte is in its high nibble: codes 1 0 3 2 5 4 7 6 from bit 0 up.
        const std::int64_t i = first + lane * kChunkSteps + (k ^ 1);
        *arranged++ = i < cols ? input[i] : 0.0F;
      }
    }
  }
}

// What matvecNf4 needs of a row: its codes, and its absmax as floats.
struct Nf4Row {
  const std::uint8_t* codes;  // [cols / 2]
  const float* absmax;        // [cols / 64], and one more of any finite value
};

// absmax of the blocks of one row as floats, with a 0 behind them.
inline const float* rowAbsmax(const WeightView& weight, std::int64_t row, float* buffer) {
  const std::int64_t nBlocks = weight.cols / kNf4BlockSize;
  const std::int64_t firstBlock = row * nBlocks;
  for (std::int64_t b = 0; b < nBlocks; ++b) {
    const std::int64_t block = firstBlock + b;
    buffer[b] = weight.absmax != nullptr
                    ? weight.absmax[block]
                    : weight.nestedCodebook[weight.absmaxCodes[block]] *
                              weight.nestedAbsmax[block / kNf4NestedBlockSize] +
                          weight.nestedOffset;
  }
  buffer[nBlocks] = 0.0F;
  return buffer;
}

inline Simd::Codes loadChunk(const std::uint8_t* codes, std::int64_t chunk, std::int64_t cols) {
  const std::int64_t firstByte = chunk * kChunkCodes / 2;
  const std::int64_t availableBytes = cols / 2 - firstByte;
  constexpr std::int64_t kChunkBytes = kChunkCodes / 2;
  if (availableBytes >= kChunkBytes) return Simd::loadCodes(codes + firstByte);
  std::uint8_t buffer[kChunkBytes] = {};
  __builtin_memcpy(buffer, codes + firstByte, static_cast<unsigned long>(availableBytes));
  return Simd::loadCodes(buffer);
}

// One token: the absmax multiplies the sum of a chunk instead of each weight.
template <int kRows>
void nf4OneToken(const MatvecJob& job, std::int64_t row, const Nf4Row (&rows)[kRows]) {
  const Simd::Codebook codebook = Simd::loadCodebook(job.weight.codebook);
  const std::int64_t cols = job.weight.cols;
  const std::int64_t nChunks = (cols + kChunkCodes - 1) / kChunkCodes;
  Simd::Float sums[kRows];
  for (int r = 0; r < kRows; ++r) sums[r] = Simd::zero();
  for (std::int64_t chunk = 0; chunk < nChunks; ++chunk) {
    const float* const x = job.input + chunk * kChunkCodes;
    Simd::Codes words[kRows];
    Simd::Float chunkSums[kRows];
    for (int r = 0; r < kRows; ++r) {
      words[r] = loadChunk(rows[r].codes, chunk, cols);
      chunkSums[r] = Simd::zero();
    }
#pragma GCC unroll 8
    for (std::int64_t k = 0; k < kChunkSteps; ++k) {
      const Simd::Float input = Simd::load(x + k * Simd::kLanes);
      for (int r = 0; r < kRows; ++r) {
        chunkSums[r] = Simd::multiplyAdd(Simd::lookUp(codebook, words[r]), input, chunkSums[r]);
        words[r] = Simd::nextCodes(words[r]);
      }
    }
    for (int r = 0; r < kRows; ++r) {
      sums[r] = Simd::multiplyAdd(Simd::chunkScales(rows[r].absmax, chunk), chunkSums[r], sums[r]);
    }
  }
  for (int r = 0; r < kRows; ++r) put(job, 0, row + r, Simd::sum(sums[r]));
}

template <int kTokens, int kRows>
void nf4Tokens(const MatvecJob& job, std::int64_t row, const Nf4Row (&rows)[kRows]) {
  const Simd::Codebook codebook = Simd::loadCodebook(job.weight.codebook);
  const std::int64_t cols = job.weight.cols;
  const std::int64_t nChunks = (cols + kChunkCodes - 1) / kChunkCodes;
  Simd::Float sums[kTokens][kRows];
  for (int t = 0; t < kTokens; ++t) {
    for (int r = 0; r < kRows; ++r) sums[t][r] = Simd::zero();
  }
  for (std::int64_t chunk = 0; chunk < nChunks; ++chunk) {
    const float* const x = job.input + chunk * kChunkCodes;
    Simd::Codes words[kRows];
    Simd::Float scales[kRows];
    for (int r = 0; r < kRows; ++r) {
      words[r] = loadChunk(rows[r].codes, chunk, cols);
      scales[r] = Simd::chunkScales(rows[r].absmax, chunk);
    }
#pragma GCC unroll 8
    for (std::int64_t k = 0; k < kChunkSteps; ++k) {
      Simd::Float w[kRows];
      for (int r = 0; r < kRows; ++r) {
        w[r] = Simd::multiply(Simd::lookUp(codebook, words[r]), scales[r]);
        words[r] = Simd::nextCodes(words[r]);
      }
      for (int t = 0; t < kTokens; ++t) {
        const Simd::Float input = Simd::load(x + t * job.inputStride + k * Simd::kLanes);
        for (int r = 0; r < kRows; ++r) {
          sums[t][r] = Simd::multiplyAdd(w[r], input, sums[t][r]);
        }
      }
    }
  }
  for (int t = 0; t < kTokens; ++t) {
    for (int r = 0; r < kRows; ++r) put(job, t, row + r, Simd::sum(sums[t][r]));
  }
}

template <int kTokens, int kRows>
void nf4Rows(const MatvecJob& job, std::int64_t row, float* scratch) {
  const std::uint8_t* const codes =
      static_cast<const std::uint8_t*>(static_cast<const void*>(job.weight.data));
  const std::int64_t absmaxStride = job.weight.cols / kNf4BlockSize + 1;
  Nf4Row rows[kRows];
  for (int r = 0; r < kRows; ++r) {
    rows[r] = {codes + (row + r) * (job.weight.cols / 2),
               rowAbsmax(job.weight, row + r, scratch + r * absmaxStride)};
  }
  if constexpr (kTokens == 1) {
    nf4OneToken<kRows>(job, row, rows);
  } else {
    nf4Tokens<kTokens, kRows>(job, row, rows);
  }
}

template <int kTokens>
void nf4Matvec(const MatvecJob& job, std::int64_t firstRow, std::int64_t lastRow, float* scratch) {
  // 4 x 4 sums, weights, words and scales need 29 registers; AVX2 has 16.
  constexpr int kRows = kTokens <= 2 || Simd::kLanes >= 16 ? 4 : 2;
  static_assert(kRows <= kMatvecNf4Rows);
  std::int64_t row = firstRow;
  for (; row + kRows <= lastRow; row += kRows) nf4Rows<kTokens, kRows>(job, row, scratch);
  for (; row < lastRow; ++row) nf4Rows<kTokens, 1>(job, row, scratch);
}

inline void matvecNf4(const MatvecJob& job, std::int64_t firstRow, std::int64_t lastRow,
                      float* scratch) {
  switch (job.nTokens) {
    case 1:
      return nf4Matvec<1>(job, firstRow, lastRow, scratch);
    case 2:
      return nf4Matvec<2>(job, firstRow, lastRow, scratch);
    case 3:
      return nf4Matvec<3>(job, firstRow, lastRow, scratch);
    case 4:
      return nf4Matvec<4>(job, firstRow, lastRow, scratch);
    default:
      return;
  }
}

}  // namespace
}  // namespace longhand::kernels
