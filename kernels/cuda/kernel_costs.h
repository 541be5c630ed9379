#pragma once
// What the CUDA kernels cost: every figure that a prediction (`longhand-cli selftest --predict`)
// rests on, and where it comes from. Needs nothing of CUDA. "Counted" means instructions of a warp
// in the machine code for sm_86 and sm_90 (nvcc 13.0), which differ by less than 3 %:
// `tests/bench/count_instructions.py` prints the loops of each kernel. "Assumed" means that no card
// has been at hand to measure it.

#include <cstdint>

namespace longhand::kernels::cuda::costs {

// --- Shares of what the same device does at best -----------------------------------------------

/// Of a card's bandwidth, what a copy reaches. Assumed: published copies reach 88 to 93 %.
inline constexpr double kCopyShare = 0.9;
/// Of a copy's rate, what a kernel that streams codes reaches. Assumed.
inline constexpr double kMemoryShare = 0.9;
/// Of the instructions that the schedulers could issue. Assumed: with 2 to 4 warps a scheduler, as
/// here, waiting for tables, tensor cores and memory takes the rest.
inline constexpr double kIssueShare = 0.6;
inline constexpr double kSchedulers = 4.0;  // of a multiprocessor, an instruction a clock each
/// Of the best product of halves, a product with a tile of 256 tokens. Assumed, with cuBLAS.
inline constexpr double kProductShare = 0.85;
/// The same of prefill attention: 80 % of a GeForce's data sheet, 30 % of an H200's, where mma.sync
/// has about 62 % of the rate that cuBLAS gets from wgmma. From counts of instructions and of bytes
/// in shared memory, kernels/cuda/NOTES.md, "Prefill attention".
inline constexpr double kPrefillAttentionShare = 0.84;
inline constexpr double kPrefillAttentionShareHopper = 0.42;
inline constexpr double kPrefillAttentionShareHopperExact = 0.47;  // with tokens of 16 bits

// --- Latency -------------------------------------------------------------------------------------

/// A kernel that waits for the one before it, in a graph or a full stream, until its first bytes
/// are there. Assumed: 0.5 to 1 us between two nodes, and a trip to memory.
inline constexpr double kLaunchSeconds = 1.5e-6;
/// What the host adds to a token: kernels/cuda/NOTES.md, "A decode step".
inline constexpr double kStepSeconds = 50e-6;
/// The best 41 of 32,000 logits. Assumed.
inline constexpr double kTopLogitsSeconds = 8e-6;

// --- Instructions --------------------------------------------------------------------------------

/// Decode attention, a page of 64 tokens and 128 channels of one kv head, for one query.
struct PageInstructions {
  double keys = 0.0;
  double values = 0.0;
};
/// Counted: 16 bits take four turns of 16 tokens each; the others are straight code.
constexpr PageInstructions pageInstructions(int nbits) {
  switch (nbits) {
    case 16:
      return {4 * 111.0, 4 * 144.0};
    case 8:
      return {150.0, 184.0};
    case 4:
      return {160.0, 190.0};
    default:
      return {155.0, 178.0};
  }
}
/// Around them, once a page: the table, prefetch, choosing the code for the format, folding of
/// scales, softmax, weights. Counted; the third is what each further query of the same kv head
/// adds, from the kernel for up to four.
inline constexpr double kPageOfCodes = 300.0;
inline constexpr double kPageOfNumbers = 305.0;
inline constexpr double kPageOfQuery = 230.0;

/// NF4 product: what a warp issues for a turn (32 rows and a chunk of columns) and in it for each
/// token that is staged then; for 32 rows besides (sums of warps, outputs); and once (table, norm,
/// an input that is staged whole). Counted along the path of aligned inputs.
struct Nf4Instructions {
  std::int64_t chunkCols = 0;
  double warps = 0.0;   // of a block
  double blocks = 0.0;  // on a multiprocessor, at most
  double turn = 0.0;
  double turnOfToken = 0.0;
  double rows = 0.0;
  double once = 0.0;
};
constexpr Nf4Instructions nf4Instructions(std::int64_t nTokens) {
  if (nTokens == 1) return {256, 16.0, 1.0, 418.0, 0.0, 85.0, 440.0};
  if (nTokens <= 4) return {128, 8.0, 2.0, 310.0, 45.0, 80.0, 400.0};
  return {128, 8.0, 1.0, 347.0, 45.0, 90.0, 400.0};
}

/// Row product, 1024 numbers: with 1 token (between those with a norm and without), up to 4, up to
/// 8. Counted, less the path of unaligned inputs.
struct RowInstructions {
  double one = 0.0;
  double four = 0.0;
  double eight = 0.0;

  constexpr double of(std::int64_t nTokens) const {
    return nTokens == 1 ? one : nTokens <= 4 ? four : eight;
  }
};
inline constexpr RowInstructions kHalfRow = {130.0, 290.0, 1100.0};
inline constexpr RowInstructions kInt8Row = {195.0, 385.0, 980.0};

/// Packing, a number. Estimated from the source (kernels/cuda/pages/group_solver.cuh): two passes;
/// each of HQQ's 20 steps takes a power, two divisions, the error of the outcome, and 8 operations
/// on doubles.
inline constexpr double kPackMinMax = 40.0;
inline constexpr double kPackHqq = 3000.0;
inline constexpr double kPackHqqDoubles = 160.0;
/// Instructions that could be issued in the time of one on doubles: a GeForce's multiprocessor does
/// 2 of its 32 lanes a clock, an H200's 64.
inline constexpr double kDoubleSlots = 64.0;
inline constexpr double kDoubleSlotsHopper = 2.0;

}  // namespace longhand::kernels::cuda::costs
