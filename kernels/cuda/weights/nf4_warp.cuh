#pragma once
// What a warp of an NF4 product (nf4_matvec.cu) does on its own: codes and absmax on their way from
// memory, the input as halves in shared memory, and the products of one with the other.
//
// A turn of a warp is 32 rows of weights and a chunk of columns. Codes become halves by a table of
// all 256 pairs, one copy for each lane, so that no two lanes ever meet in a bank. Rows of the
// table are 256 bytes apart: one instruction then puts a byte of codes and the lane together to an
// address. What lies between its rows is the place of the inputs, in pieces of 128 bytes.
//
// Tensor cores multiply: 16 rows of weights with 8 columns of inputs, which are tokens as high and
// low halves of floats. Sums of different NF4 blocks must stay apart, since an absmax scales each.
// For several tokens, the 4 lanes of a row have codes of one NF4 block, and columns are 4 tokens.
// For one token, each of the 4 lanes has a whole NF4 block: columns are that token 4 times, each
// with the inputs of one of the 4 blocks and zeros for the others.

#include <cstdint>

#include "kernels/cuda/attention/code_tiles.cuh"
#include "kernels/cuda/warp/half_pairs.cuh"
#include "kernels/cuda/warp/portability.cuh"
#include "kernels/cuda/warp/ptx.cuh"
#include "kernels/cuda/warp/warp.cuh"
#include "kernels/cuda/weights/matvec_job.cuh"

namespace longhand::kernels::cuda {

/// Where a weight's absmax come from: nestedCodebook[codes[block]] * nested[block >> shift] +
/// offset. Without double quantization all numbers of the codebook are 1, so that any bytes will do
/// as codes, nested are the absmax, and shift and offset 0.
struct Nf4Absmax {
  const std::uint8_t* codes = nullptr;
  const float* nested = nullptr;
  int shift = 0;
  float offset = 0.0F;
};
inline Nf4Absmax nf4Absmax(const WeightView& weight) {
  static_assert(kNf4NestedBlockSize == 1 << 8);
  if (weight.absmax == nullptr) {
    return {weight.absmaxCodes, weight.nestedAbsmax, 8, weight.nestedOffset};
  }
  return {reinterpret_cast<const std::uint8_t*>(weight.data), weight.absmax, 0, 0.0F};
}

struct Nf4Job {
  MatvecJob matvec;  // its blocks are groups of rows here
  Nf4Absmax absmax[kMostProjections];
  int blockGroups = 0;  // of each block, and one more of the first `restGroups`
  int restGroups = 0;
  int nSlots = 0;   // chunks of the input that shared memory has room for
  int isWhole = 0;  // a flag: that is all of them, slot = chunk; else a warp has slot = warp
};

inline constexpr int kNf4RowTiles = 2;  // of 16 rows, a group
inline constexpr int kNf4Rows = 16 * kNf4RowTiles;
inline constexpr int kNf4MostTokens = 8;
inline constexpr int kNestedCodes = 256;  // numbers of a nested codebook
inline constexpr int kPieceBytes = 128;

/// The sizes of a kernel: for one token (kIsOne), or for up to 4 of each of kTokenTiles. kIsNarrow
/// is for devices with 64 KiB of shared memory a block: rows of the table are 128 bytes apart, the
/// inputs behind it, and an address costs two instructions.
template <int kTokenTiles_, bool kIsOne_, bool kIsNarrow_>
struct Nf4Form {
  static constexpr int kTokenTiles = kTokenTiles_;
  static constexpr bool kIsOne = kIsOne_;
  static constexpr bool kIsNarrow = kIsNarrow_;
  static constexpr int kWarps = kIsOne ? 16 : 8;
  static constexpr int kThreads = kWarps * kWarpSize;
  /// On a multiprocessor, as far as registers go. GeForce cards have the shared memory of one.
  static constexpr int kBlocksAtOnce = !kIsOne && kTokenTiles == 1 ? 2 : 1;
  static constexpr int kChunkCols = kIsOne ? 256 : 128;
  static constexpr int kLaneBlocks = kIsOne ? 1 : 2;  // NF4 blocks that a lane has codes of
  static constexpr int kBlockWords = kIsOne ? 8 : 2;  // of 8 codes, which it has of each
  static constexpr int kWords = kLaneBlocks * kBlockWords;
  static constexpr int kPartWords = kWords / 2;                // of one load
  static constexpr int kSlots = kIsOne ? 1 : 4 * kTokenTiles;  // sums of a row, a warp

  static constexpr int kChunkPieces = kIsOne ? 8 : 16 * kTokenTiles;
  static constexpr int kZeroPieces = kIsOne ? 8 : 0;
  static constexpr int kTableStride = kIsNarrow ? kPieceBytes : 2 * kPieceBytes;
  static constexpr int kPieceStride = kTableStride;
  static constexpr int kFirstPiece = kIsNarrow ? 256 * kTableStride : kPieceBytes;

  /// Dynamic shared memory: this, then the table and the inputs.
  struct Fixed {
    float partials[2][kWarps][kNf4Rows * kSlots];
    float nestedCodebooks[2][kNestedCodes];
    float squares[kWarps][kNf4MostTokens];
    float factors[kNf4MostTokens];
  };
  static constexpr int kTableAt = (static_cast<int>(sizeof(Fixed)) + 127) / 128 * 128;

  static constexpr int sharedBytes(int nSlots) {
    const int pieces = nSlots * kChunkPieces + kZeroPieces;
    const int rows = kIsNarrow ? 256 + pieces : pieces > 256 ? pieces : 256;
    return kTableAt + rows * kTableStride;
  }
};

/// table[byte][lane] = the two numbers of a byte of codes, as halves. All threads of a block.
template <class Form>
__device__ __forceinline__ void fillTable(unsigned char* table, const float* codebook) {
  constexpr int kThreadsOfRow = Form::kThreads / 256;
  static_assert(Form::kThreads % 256 == 0);
  const int thread = static_cast<int>(threadIdx.x);
  const int byte = thread % 256;
  const unsigned pair = wordOfHalves(__floats2half2_rn(codebook[byte >> 4], codebook[byte & 15]));
  uint4* const row = reinterpret_cast<uint4*>(table + byte * Form::kTableStride);
#pragma unroll
  for (int i = 0; i < 8 / kThreadsOfRow; ++i) {
    row[(i * kThreadsOfRow + thread / 256 + byte) % 8] = make_uint4(pair, pair, pair, pair);
  }
}

/// Byte `i` of a word of codes as two halves. `lane4` is 4 * lane.
template <class Form>
__device__ __forceinline__ unsigned pairOf(const unsigned char* table, unsigned word, int i,
                                           unsigned lane4) {
  unsigned at;
  if constexpr (Form::kIsNarrow) {
    at = (word >> (8 * i) & 0xffU) * Form::kTableStride + lane4;
  } else {
    at = __byte_perm(word, lane4, 0x5504U | static_cast<unsigned>(i) << 4U);
  }
  return *reinterpret_cast<const unsigned*>(table + at);
}

/// What a warp reads of one turn: of lane 4 * g + q, rows g, g + 8, g + 16, g + 24 of a group.
template <class Form, bool kIsGated>
struct Nf4Loads {
  struct Absmax {
    unsigned code;
    float nested;
  };
  // One token: of row g + 16 * m + 8 * half, block q; else of row `lane`, both blocks.
  static constexpr int kAbsmaxes = Form::kIsOne ? 2 * kNf4RowTiles : Form::kLaneBlocks;

  unsigned words[kNf4RowTiles][2][Form::kWords];
  Absmax absmax[kAbsmaxes];

  // Of the turn that locate() was for: its NF4 blocks, counted through the weight.
  unsigned blocks[kNf4RowTiles][2];  // the first in a row
  unsigned ownBlock;                 // several tokens: in row `lane`
  unsigned secondBlock;              // several tokens: 1, or 0 where a row ends with the first
  int projection;

  /// Gated, row tile m is of projection m, and `index` 0. What lies beyond rows or columns is read
  /// from the last ones, and multiplied with zeros or not stored.
  __device__ __forceinline__ void locate(const MatvecJob& job, int index, int group, int chunk) {
    constexpr int kBlockSize = static_cast<int>(kNf4BlockSize);
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
    const int ofRow = static_cast<int>(job.input.cols) / kBlockSize;
    const int firstRow = (group - job.firstBlocks[index]) * (kIsGated ? kNf4Rows / 2 : kNf4Rows);
    const int lastRow = static_cast<int>(job.projections[index].weight.rows) - 1;
    const int column = Form::kIsOne ? min(4 * chunk + lane % 4, ofRow - 1) : 2 * chunk;
    projection = index;
    const int first = (firstRow + lane / 4) * ofRow + column;
    const int last = lastRow * ofRow + column;
#pragma unroll
    for (int m = 0; m < kNf4RowTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int tileRow = (kIsGated ? 0 : 16 * m) + 8 * half;
        blocks[m][half] = static_cast<unsigned>(min(first + tileRow * ofRow, last));
      }
    }
    if constexpr (!Form::kIsOne) {
      const int row = min(firstRow + (kIsGated ? lane % 16 : lane), lastRow);
      ownBlock = static_cast<unsigned>(row * ofRow + column);
      secondBlock = column + 1 < ofRow ? 1 : 0;
    }
  }

  /// The second part behind the first.
  __device__ __forceinline__ void loadCodes(const MatvecJob& job, int part) {
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
#pragma unroll
    for (int m = 0; m < kNf4RowTiles; ++m) {
      const std::byte* const data = job.projections[kIsGated ? m : projection].weight.data;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        unsigned* const to = words[m][half] + part * Form::kPartWords;
        if constexpr (Form::kIsOne) {
          const std::byte* const from = data + std::uint64_t{blocks[m][half]} * 32U + 16 * part;
          const uint4 four = __ldg(reinterpret_cast<const uint4*>(from));
          to[0] = four.x;
          to[1] = four.y;
          to[2] = four.z;
          to[3] = four.w;
        } else {
          const unsigned block = blocks[m][half] + (part == 0 ? 0 : secondBlock);
          const std::byte* const from = data + std::uint64_t{block} * 32U + 8 * (lane % 4);
          const uint2 two = __ldg(reinterpret_cast<const uint2*>(from));
          to[0] = two.x;
          to[1] = two.y;
        }
      }
    }
  }

  __device__ __forceinline__ void loadAbsmax(const Nf4Job& job) {
#pragma unroll
    for (int i = 0; i < kAbsmaxes; ++i) {
      const Nf4Absmax& from = job.absmax[kIsGated ? ownProjection(i) : projection];
      const unsigned block = Form::kIsOne ? blocks[i / 2][i % 2] : ownBlock + i * secondBlock;
      absmax[i] = {__ldg(from.codes + block), __ldg(from.nested + (block >> from.shift))};
    }
  }

  /// absmax[i] of the turn that was loaded, which `index` was for.
  __device__ __forceinline__ float absmaxAt(const Nf4Job& job, int index,
                                            const float (&codebooks)[2][kNestedCodes],
                                            int i) const {
    const int own = kIsGated ? ownProjection(i) : 0;
    return __fadd_rn(__fmul_rn(codebooks[own][absmax[i].code], absmax[i].nested),
                     job.absmax[kIsGated ? own : index].offset);
  }

 private:
  /// Gated: whose absmax[i] is.
  __device__ __forceinline__ static int ownProjection(int i) {
    return Form::kIsOne ? i / 2 : static_cast<int>(threadIdx.x) % kWarpSize / 16;
  }
};

/// 8 columns of a token, normed, as high and low halves; zeros beyond the columns.
struct SplitColumns {
  uint4 high;
  uint4 low;
};

__device__ __forceinline__ SplitColumns splitColumns(const MatvecJob& job, int token, int col,
                                                     float factor) {
  SplitColumns split = {make_uint4(0, 0, 0, 0), make_uint4(0, 0, 0, 0)};
  if (col >= static_cast<int>(job.input.cols)) return split;  // a multiple of 64
  const bool isAligned = job.isAligned != 0;
  unsigned high[4];
  unsigned low[4];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    float4 x = loadFour(job.input.data + token * job.input.stride, col + 4 * i, isAligned);
    if (job.normWeight != nullptr) {
      const float4 w = loadFour(job.normWeight, col + 4 * i, isAligned);
      x = make_float4(x.x * factor * w.x, x.y * factor * w.y, x.z * factor * w.z,
                      x.w * factor * w.w);
    }
    const SplitHalf a = splitHalf(x.x);
    const SplitHalf b = splitHalf(x.y);
    const SplitHalf c = splitHalf(x.z);
    const SplitHalf d = splitHalf(x.w);
    high[2 * i] = wordOfHalves(__halves2half2(a.high, b.high));
    high[2 * i + 1] = wordOfHalves(__halves2half2(c.high, d.high));
    low[2 * i] = wordOfHalves(__halves2half2(a.low, b.low));
    low[2 * i + 1] = wordOfHalves(__halves2half2(c.low, d.low));
  }
  split.high = make_uint4(high[0], high[1], high[2], high[3]);
  split.low = make_uint4(low[0], low[1], low[2], low[3]);
  return split;
}

/// A chunk of the input by one warp, so that 8 lanes that read 16 bytes each find them in one
/// piece. One token: piece u of 8 has columns 8 * u of block q, at 2 * q high, at 2 * q + 1 low.
/// Else: piece 4 * token + 2 * b + u has columns 16 * q + 8 * u of block b, at q high, at q + 4
/// low.
template <class Form>
__device__ __forceinline__ void stageChunk(const MatvecJob& job, const float* factors, int chunk,
                                           unsigned char* pieces) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int q = lane % 4;
  const int u = Form::kIsOne ? lane / 4 : lane / 4 % 4;
  const int col = chunk * Form::kChunkCols +
                  (Form::kIsOne ? 64 * q + 8 * u : 64 * (u / 2) + 16 * q + 8 * (u % 2));
  const int nTokens = static_cast<int>(job.input.rows);
#pragma unroll 1
  for (int token = Form::kIsOne ? 0 : lane / 16; token < nTokens; token += 2) {
    const float factor = job.normWeight != nullptr ? factors[token] : 1.0F;
    const SplitColumns split = splitColumns(job, token, col, factor);
    uint4* const piece =
        reinterpret_cast<uint4*>(pieces + (Form::kIsOne ? u : 4 * token + u) * Form::kPieceStride);
    piece[Form::kIsOne ? 2 * q : q] = split.high;
    piece[Form::kIsOne ? 2 * q + 1 : q + 4] = split.low;
  }
}

/// Where lane 4 * g + q of `warp` finds what it multiplies its codes with: its column of each token
/// tile, in slot 0 of `pieces`. Of one token, zeros but in the lanes whose NF4 block it is.
template <class Form>
__device__ __forceinline__ void findSlots(const Nf4Job& job, const unsigned char* pieces, int warp,
                                          int g, int q, int nTokens,
                                          const unsigned char* (&slots)[Form::kTokenTiles]) {
#pragma unroll
  for (int n = 0; n < Form::kTokenTiles; ++n) {
    if constexpr (Form::kIsOne) {
      slots[n] = g / 2 == q ? pieces + 16 * g
                            : pieces + job.nSlots * Form::kChunkPieces * Form::kPieceStride;
    } else {
      // Columns without a token repeat the last: their sums are not stored.
      const int column = min(8 * n + g, 2 * nTokens - 1);
      slots[n] = pieces + (warp * Form::kChunkPieces + column / 2 * 4) * Form::kPieceStride +
                 16 * (column % 2 * 4 + q);
    }
  }
}

/// 16 of a lane's columns of the slot at `slotAt`: those of words 2 * c and 2 * c + 1 of its NF4
/// block `b`.
template <class Form>
__device__ __forceinline__ void loadColumns(const unsigned char* const (&slots)[Form::kTokenTiles],
                                            int slotAt, int b, int c,
                                            unsigned (&columns)[Form::kTokenTiles][8]) {
#pragma unroll
  for (int n = 0; n < Form::kTokenTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int piece = Form::kIsOne ? 2 * c + i : 2 * b + i;
      const uint4 four =
          *reinterpret_cast<const uint4*>(slots[n] + slotAt + piece * Form::kPieceStride);
      columns[n][4 * i] = four.x;
      columns[n][4 * i + 1] = four.y;
      columns[n][4 * i + 2] = four.z;
      columns[n][4 * i + 3] = four.w;
    }
  }
}

/// squares[warp][token] = this warp's share of the squares of each row of input.
template <class Form>
__device__ __forceinline__ void sumSquares(const MatvecJob& job,
                                           float (&squares)[Form::kWarps][kNf4MostTokens]) {
  const int thread = static_cast<int>(threadIdx.x);
  const int cols = static_cast<int>(job.input.cols);
#pragma unroll 1
  for (int token = 0; token < static_cast<int>(job.input.rows); ++token) {
    const float* const row = job.input.data + token * job.input.stride;
    float sum = 0.0F;
#pragma unroll 2
    for (int col = 4 * thread; col < cols; col += 4 * Form::kThreads) {
      const float4 x = loadFour(row, col, job.isAligned != 0);
      sum += x.x * x.x + x.y * x.y + x.z * x.z + x.w * x.w;
    }
    sum = warpSum(sum);
    if (thread % kWarpSize == 0) squares[thread / kWarpSize][token] = sum;
  }
}

}  // namespace longhand::kernels::cuda
