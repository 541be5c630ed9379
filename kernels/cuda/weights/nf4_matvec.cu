// Products of NF4 weights with 1 to 8 tokens, at the speed of memory.
//
// A block makes groups of 32 outputs, one after the other; its warps share the columns. There are
// as many blocks as the device runs at once, so that tables, norm and input are made once, and a
// warp loads its next codes before it has done with these, across groups too.
//
// With a norm, a block sums up the squares of its input while its first weights are on their way:
// 16 KB from L2 for 4096 columns, and a kernel less. Gated, half of a group's rows are the gate's
// and half the same rows of the other weight.

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/warp/portability.cuh"
#include "kernels/cuda/weights/matvec_job.cuh"
#include "kernels/cuda/weights/nf4_warp.cuh"

namespace longhand::kernels::cuda {
namespace {

/// Table and nested codebooks of a projection. All threads; a barrier must follow.
template <class Form, bool kIsGated>
__device__ __forceinline__ void prepareWeight(const MatvecJob& job, int index,
                                              typename Form::Fixed& fixed, unsigned char* table) {
  fillTable<Form>(table, job.projections[index].weight.codebook);
  const int thread = static_cast<int>(threadIdx.x);
  if (thread >= kNestedCodes) return;
#pragma unroll
  for (int i = 0; i < (kIsGated ? 2 : 1); ++i) {
    const WeightView& weight = job.projections[index + i].weight;
    fixed.nestedCodebooks[i][thread] =
        weight.absmax == nullptr ? weight.nestedCodebook[thread] : 1.0F;
  }
}

/// fixed.factors[token] = 1 / root of the mean square of each row of input. All threads.
template <class Form>
__device__ __forceinline__ void makeFactors(const MatvecJob& job, typename Form::Fixed& fixed) {
  sumSquares<Form>(job, fixed.squares);
  __syncthreads();
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < static_cast<int>(job.input.rows)) {
    float sum = 0.0F;
    for (int w = 0; w < Form::kWarps; ++w) sum += fixed.squares[w][thread];
    fixed.factors[thread] =
        1.0F / sqrtf(sum / static_cast<float>(job.input.cols) + job.normEpsilon);
  }
  __syncthreads();
}

/// This warp's sums of a group, [row tile][token tile][as multiplyTile()], to [row * kSlots].
template <class Form>
__device__ __forceinline__ void storeSums(const float (&sums)[kNf4RowTiles][Form::kTokenTiles][4],
                                          float* partials) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int g = lane / 4;
  const int q = lane % 4;
  if constexpr (Form::kIsOne) {
    // Four lanes have shares of four rows: each ends up with one row.
    float half[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float first = sums[0][0][2 * i] + sums[0][0][2 * i + 1];
      const float second = sums[1][0][2 * i] + sums[1][0][2 * i + 1];
      const float other = __shfl_xor_sync(kAllLanes, q < 2 ? second : first, 2);
      half[i] = (q < 2 ? first : second) + other;
    }
    const float other = __shfl_xor_sync(kAllLanes, q % 2 == 0 ? half[1] : half[0], 1);
    partials[8 * q + g] = (q % 2 == 0 ? half[0] : half[1]) + other;
  } else {
#pragma unroll
    for (int m = 0; m < kNf4RowTiles; ++m) {
#pragma unroll
      for (int n = 0; n < Form::kTokenTiles; ++n) {
        float* const at = partials + (16 * m + g) * Form::kSlots + 4 * n + q;
        at[0] = sums[m][n][0] + sums[m][n][1];
        at[8 * Form::kSlots] = sums[m][n][2] + sums[m][n][3];
      }
    }
  }
}

/// The sums of all warps, and what becomes of them. All threads, behind a barrier.
template <class Form, bool kIsGated>
__device__ __forceinline__ void writeOutputs(
    const MatvecJob& job, int index, int group,
    const float (&partials)[Form::kWarps][kNf4Rows * Form::kSlots]) {
  constexpr int kOutputs = kIsGated ? kNf4Rows / 2 : kNf4Rows;
  const auto sumOf = [&](int row, int token) {
    float sum = 0.0F;
#pragma unroll
    for (int w = 0; w < Form::kWarps; ++w) sum += partials[w][row * Form::kSlots + token];
    return sum;
  };
  const Projection& projection = job.projections[index];
  const int firstRow = (group - job.firstBlocks[index]) * kOutputs;
  const int nTokens = static_cast<int>(job.input.rows);
  const int thread = static_cast<int>(threadIdx.x);
  // One token keeps one warp busy, of each group another one.
  if (Form::kIsOne && thread / kWarpSize != group % Form::kWarps) return;
  const int first = Form::kIsOne ? thread % kWarpSize : thread;
  for (int i = first; i < kOutputs * nTokens; i += Form::kThreads) {
    const int token = i / kOutputs;
    const int row = i % kOutputs;
    if (firstRow + row >= projection.weight.rows) continue;
    float& y = projection.output.data[token * projection.output.stride + firstRow + row];
    const float sum = sumOf(row, token);
    if constexpr (kIsGated) {
      y = siluProduct(sum, sumOf(kOutputs + row, token));
    } else {
      y = job.accumulate != 0 ? y + sum : sum;
    }
  }
}

/// The first group of the weight behind, or -1. Each has rows.
__device__ __forceinline__ int firstGroupAfter(const MatvecJob& job, int index) {
  return index + 1 < job.nProjections ? job.firstBlocks[index + 1] : -1;
}

/// What shared memory has before the first turn: zeros where one token asks for them, and the whole
/// input where it fits. All threads; a barrier must follow.
template <class Form>
__device__ __forceinline__ void stageInput(const Nf4Job& all, bool isWhole, int nChunks, int thread,
                                           int warp, const float* factors, unsigned char* pieces) {
  if constexpr (Form::kIsOne) {
    if (thread < Form::kZeroPieces) {
      *reinterpret_cast<uint4*>(pieces + (all.nSlots * Form::kChunkPieces + thread) *
                                             Form::kPieceStride) = make_uint4(0, 0, 0, 0);
    }
  }
  if (!isWhole) return;
  for (int chunk = warp; chunk < nChunks; chunk += Form::kWarps) {
    stageChunk<Form>(all.matvec, factors, chunk,
                     pieces + chunk * Form::kChunkPieces * Form::kPieceStride);
  }
}

/// Adds words `word` and `word + 1` of each of this lane's rows, 16 codes, times their columns.
template <class Form, bool kIsGated>
__device__ __forceinline__ void multiplyWords(
    const Nf4Loads<Form, kIsGated>& loads, int word, const unsigned char* table, unsigned lane4,
    const unsigned (&columns)[Form::kTokenTiles][8],
    float (&products)[kNf4RowTiles][Form::kTokenTiles][4]) {
#pragma unroll
  for (int s = 0; s < 4; ++s) {
    const int byte = s % 2 * 2;
#pragma unroll
    for (int m = 0; m < kNf4RowTiles; ++m) {
      unsigned a[4];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const unsigned codes = loads.words[m][half][word + s / 2];
        a[half] = pairOf<Form>(table, codes, byte, lane4);
        a[half + 2] = pairOf<Form>(table, codes, byte + 1, lane4);
      }
#pragma unroll
      for (int n = 0; n < Form::kTokenTiles; ++n) {
        const unsigned pair[2] = {columns[n][2 * s], columns[n][2 * s + 1]};
        multiplyTile(products[m][n], a, pair);
      }
    }
  }
}

/// Adds the products of this lane's NF4 block `b`, each row's times its absmax.
template <class Form, bool kIsGated>
__device__ __forceinline__ void scaleProducts(
    const Nf4Job& all, int index, const typename Form::Fixed& fixed,
    const Nf4Loads<Form, kIsGated>& loads, int b, int g,
    const float (&products)[kNf4RowTiles][Form::kTokenTiles][4],
    float (&sums)[kNf4RowTiles][Form::kTokenTiles][4]) {
#pragma unroll
  for (int m = 0; m < kNf4RowTiles; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float scale =
          loads.absmaxAt(all, index, fixed.nestedCodebooks, Form::kIsOne ? 2 * m + half : b);
      if constexpr (!Form::kIsOne) {
        scale = __shfl_sync(kAllLanes, scale, 16 * m + 8 * half + g);
      }
#pragma unroll
      for (int n = 0; n < Form::kTokenTiles; ++n) {
        sums[m][n][2 * half] += scale * products[m][n][2 * half];
        sums[m][n][2 * half + 1] += scale * products[m][n][2 * half + 1];
      }
    }
  }
}

/// A turn of a warp: adds the products of the codes at hand with the chunk at `slotAt`. As soon as
/// half of the codes are done with, the next ones take their place, where `hasNext`.
template <class Form, bool kIsGated>
__device__ __forceinline__ void multiplyChunk(
    const Nf4Job& all, int index, const typename Form::Fixed& fixed, const unsigned char* table,
    const unsigned char* const (&slots)[Form::kTokenTiles], int slotAt, int g, unsigned lane4,
    bool hasNext, Nf4Loads<Form, kIsGated>& loads,
    float (&sums)[kNf4RowTiles][Form::kTokenTiles][4]) {
#pragma unroll
  for (int b = 0; b < Form::kLaneBlocks; ++b) {
    float products[kNf4RowTiles][Form::kTokenTiles][4] = {};
#pragma unroll
    for (int c = 0; c < Form::kBlockWords / 2; ++c) {
      unsigned columns[Form::kTokenTiles][8];
      loadColumns<Form>(slots, slotAt, b, c, columns);
      multiplyWords(loads, b * Form::kBlockWords + 2 * c, table, lane4, columns, products);
      const int nDone = b * Form::kBlockWords + 2 * c + 2;
      if (nDone % Form::kPartWords == 0 && hasNext) {
        loads.loadCodes(all.matvec, nDone / Form::kPartWords - 1);
      }
    }
    scaleProducts(all, index, fixed, loads, b, g, products, sums);
  }
  if (hasNext) loads.loadAbsmax(all);
}

template <class Form, bool kIsGated>
__global__ void __launch_bounds__(Form::kThreads, Form::kBlocksAtOnce)
    nf4MatvecKernel(const __grid_constant__ Nf4Job all) {
  DYN_SHARED(unsigned char, shared);
  auto& fixed = *reinterpret_cast<typename Form::Fixed*>(shared);
  unsigned char* const table = shared + Form::kTableAt;
  unsigned char* const pieces = table + Form::kFirstPiece;
  const MatvecJob& job = all.matvec;
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % kWarpSize;
  const int warp = thread / kWarpSize;
  const int g = lane / 4;
  const int q = lane % 4;
  const int nTokens = static_cast<int>(job.input.rows);
  const int nChunks = ceilDivide(static_cast<int>(job.input.cols), Form::kChunkCols);
  const int block = static_cast<int>(blockIdx.x);
  const int firstGroup = block * all.blockGroups + min(block, all.restGroups);
  const int lastGroup = firstGroup + all.blockGroups + (block < all.restGroups ? 1 : 0);
  const bool isWhole = Form::kIsOne && all.isWhole != 0;

  int index = kIsGated ? 0 : projectionOf(job, firstGroup);
  Nf4Loads<Form, kIsGated> loads;
  if (warp < nChunks) {
    loads.locate(job, index, firstGroup, warp);
    loads.loadCodes(job, 0);
    loads.loadCodes(job, 1);
    loads.loadAbsmax(all);
  }
  prepareWeight<Form, kIsGated>(job, index, fixed, table);
  if (job.normWeight != nullptr) {
    makeFactors<Form>(job, fixed);
  }
  stageInput<Form>(all, isWhole, nChunks, thread, warp, fixed.factors, pieces);
  __syncthreads();

  const unsigned char* slots[Form::kTokenTiles];
  findSlots<Form>(all, pieces, warp, g, q, nTokens, slots);
  const int slotBytes = Form::kIsOne && g / 2 == q ? Form::kChunkPieces * Form::kPieceStride : 0;
  const auto lane4 = static_cast<unsigned>(4 * lane);

  int nextWeight = kIsGated ? -1 : firstGroupAfter(job, index);
#pragma unroll 1
  for (int group = firstGroup; group < lastGroup; ++group) {
    const int nextIndex = group + 1 == nextWeight ? index + 1 : index;
    float sums[kNf4RowTiles][Form::kTokenTiles][4] = {};
#pragma unroll 1
    for (int chunk = warp; chunk < nChunks; chunk += Form::kWarps) {
      if (!isWhole) {
        __syncwarp();
        stageChunk<Form>(job, fixed.factors, chunk,
                         pieces + warp * Form::kChunkPieces * Form::kPieceStride);
        __syncwarp();
      }
      const bool isLastChunk = chunk + Form::kWarps >= nChunks;
      const int nextGroup = isLastChunk ? group + 1 : group;
      const bool hasNext = nextGroup < lastGroup;
      if (hasNext) {
        loads.locate(job, isLastChunk ? nextIndex : index, nextGroup,
                     isLastChunk ? warp : chunk + Form::kWarps);
      }
      const int slotAt = slotBytes * (isWhole ? chunk : warp);
      multiplyChunk<Form, kIsGated>(all, index, fixed, table, slots, slotAt, g, lane4, hasNext,
                                    loads, sums);
    }
    // Two sets of partials: a warp comes here again only behind the barrier of the next group,
    // which all reach after they have read these.
    auto& partials = fixed.partials[group % 2];
    storeSums<Form>(sums, partials[warp]);
    __syncthreads();
    writeOutputs<Form, kIsGated>(job, index, group, partials);
    if (nextIndex != index && group + 1 < lastGroup) {
      index = nextIndex;
      nextWeight = firstGroupAfter(job, index);
      prepareWeight<Form, kIsGated>(job, index, fixed, table);
      __syncthreads();
    }
  }
}

/// Chunks of the input that `mostSharedBytes` hold: all of `nChunks`, or one of each warp; 0 where
/// not even those.
template <class Form>
int slotsFor(int nChunks, std::size_t mostSharedBytes) {
  const auto most = static_cast<int>(std::min<std::size_t>(mostSharedBytes, 1U << 20U));
  if (Form::kIsOne && Form::sharedBytes(nChunks) <= most) return nChunks;
  return Form::sharedBytes(Form::kWarps) <= most ? Form::kWarps : 0;
}

template <class Form, bool kIsGated>
void launchAs(const MatvecCall& call, const MatvecDevice& device, const LaunchQueue& queue) {
  const auto kernel = nf4MatvecKernel<Form, kIsGated>;
  const int nChunks = ceilDivide(static_cast<int>(call.input.cols), Form::kChunkCols);
  Nf4Job job;
  job.matvec = matvecJob(call, kIsGated ? kNf4Rows / 2 : kNf4Rows);
  for (std::size_t i = 0; i < call.projections.size(); ++i) {
    job.absmax[i] = nf4Absmax(call.projections[i].weight);
  }
  job.nSlots = slotsFor<Form>(nChunks, device.mostSharedBytes);
  job.isWhole = Form::kIsOne && job.nSlots == nChunks ? 1 : 0;
  const int bytes = Form::sharedBytes(job.nSlots);
  const int nBlocks = std::min(job.matvec.nBlocks, Form::kBlocksAtOnce * device.nMultiprocessors);
  job.blockGroups = job.matvec.nBlocks / nBlocks;
  job.restGroups = job.matvec.nBlocks % nBlocks;
  queue.allowShared(reinterpret_cast<const void*>(kernel), bytes);
  launch(kernel, static_cast<unsigned>(nBlocks), Form::kThreads, static_cast<std::size_t>(bytes),
         queue, job);
}

template <int kTokenTiles, bool kIsOne>
bool fits(std::size_t mostSharedBytes) {
  return slotsFor<Nf4Form<kTokenTiles, kIsOne, true>>(1, mostSharedBytes) > 0;
}

/// Wide where it fits.
template <int kTokenTiles, bool kIsOne>
void launchTiles(const MatvecCall& call, const MatvecDevice& device, const LaunchQueue& queue) {
  using Wide = Nf4Form<kTokenTiles, kIsOne, false>;
  using Narrow = Nf4Form<kTokenTiles, kIsOne, true>;
  if (slotsFor<Wide>(Wide::kWarps, device.mostSharedBytes) > 0) {
    call.isGated ? launchAs<Wide, true>(call, device, queue)
                 : launchAs<Wide, false>(call, device, queue);
  } else {
    call.isGated ? launchAs<Narrow, true>(call, device, queue)
                 : launchAs<Narrow, false>(call, device, queue);
  }
}

}  // namespace

bool canNf4Matvec(const MatvecCall& call, const MatvecDevice& device) {
  if (call.input.rows > kNf4MostTokens || !areAlike(call)) return false;
  const std::size_t shared = device.mostSharedBytes;
  if (!(call.input.rows == 1   ? fits<1, true>(shared)
        : call.input.rows <= 4 ? fits<1, false>(shared)
                               : fits<2, false>(shared))) {
    return false;
  }
  constexpr std::int64_t kMostBlocks = std::int64_t{1} << 30U;  // an int counts them
  for (const Projection& projection : call.projections) {
    const WeightView& weight = projection.weight;
    if (weight.type != DataType::kNf4 || weight.cols % kNf4BlockSize != 0 ||
        weight.rows * (weight.cols / kNf4BlockSize) >= kMostBlocks || !isAlignedTo16(weight.data)) {
      return false;
    }
  }
  return true;
}

void launchNf4Matvec(const MatvecCall& call, const MatvecDevice& device, const LaunchQueue& queue) {
  if (call.input.rows == 0) return;
  if (call.input.rows == 1) {
    launchTiles<1, true>(call, device, queue);
  } else if (call.input.rows <= 4) {
    launchTiles<1, false>(call, device, queue);
  } else {
    launchTiles<2, false>(call, device, queue);
  }
}

}  // namespace longhand::kernels::cuda
