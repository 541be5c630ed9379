#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstring>
#include <numbers>

#include "kernels/cpu/kv/kv_store.h"
#include "kernels/rounding.h"

namespace longhand::kernels {
namespace {

/// Items of work that 16 threads keep busy, also when items differ in length. Merging large blocks
/// costs time and memory: there, half as many.
constexpr std::int64_t kWantedItems = 64;
/// A run shorter than this costs more to merge than it gains.
constexpr std::int64_t kMinTilesPerRun = 8;
/// Multiply-adds a thread takes at a time: some 5 microseconds, what waking a thread costs.
constexpr std::int64_t kMinProducts = 50'000;

struct ExactSlice {
  const ExactSpan* span;
  std::int64_t first;
  std::int64_t count;
};

}  // namespace

/// One call of attend(). Queries of a kv head are numbered row by row: query i is row
/// i / queriesPerKvHead, head i % queriesPerKvHead of the kv head.
struct CpuKv::AttendJob {
  const AttentionShape& shape;
  float scoreScale;  // with log2(e)
  const MatrixView& queries;
  const KvView& history;
  const ExactSpan& chunk;
  std::int64_t chunkOffset;
  const MatrixView& output;

  std::int64_t queriesPerKvHead = 0;
  std::int64_t rowFloats = 0;
  std::int64_t nQueries = 0;  // of one kv head
  bool isDirect = false;
  const KvKernels* expanded = nullptr;  // whose attendExpanded is used
  std::int64_t blockQueries = 0;  // most queries of a block, a multiple of what the kernels take
  std::int64_t nBlocks = 0;
  std::int64_t nRuns = 1;
  std::vector<ExactSlice> exact = {};  // of the history

  std::int64_t historyTiles() const { return history.nPages + std::ssize(exact); }
  /// Chunk tokens that a query sees.
  std::int64_t chunkTokens(std::int64_t query) const {
    return chunkOffset + query / queriesPerKvHead + 1;
  }
  std::int64_t chunkTiles(std::int64_t lastQuery) const {
    return ceilDivide(chunkTokens(lastQuery), kExactTileTokens);
  }
  std::int64_t firstQuery(std::int64_t group) const {
    return (nBlocks - 1 - group % nBlocks) * blockQueries;
  }
  const float* queryRow(std::int64_t kvHead, std::int64_t query) const {
    return queries.data + query / queriesPerKvHead * queries.stride + column(kvHead, query);
  }
  float* outputRow(std::int64_t kvHead, std::int64_t query) const {
    return output.data + query / queriesPerKvHead * output.stride + column(kvHead, query);
  }
  std::int64_t column(std::int64_t kvHead, std::int64_t query) const {
    return (kvHead * queriesPerKvHead + query % queriesPerKvHead) * shape.headDim;
  }
  /// Floats of one run's result: largest and sum [2, blockQueries], output [blockQueries, row].
  std::int64_t partialFloats() const {
    return ceilDivide(2 * blockQueries, 16) * 16 + blockQueries * rowFloats;
  }
};

void CpuKv::attend(const AttentionShape& shape, float scoreScale, const MatrixView& queries,
                   const KvView& history, const ExactSpan& chunk, std::int64_t chunkOffset,
                   const MatrixView& output) {
  assert(chunkOffset >= 0 && chunkOffset + queries.rows <= chunk.nTokens);
  assert(shape.nHeads % shape.nKvHeads == 0);
  if (queries.rows == 0) return;
  AttendJob job{
      shape, scoreScale * std::numbers::log2e_v<float>, queries, history, chunk, chunkOffset,
      output};
  job.queriesPerKvHead = shape.nHeads / shape.nKvHeads;
  job.rowFloats = ceilDivide(shape.headDim, kRowUnit) * kRowUnit;
  job.nQueries = queries.rows * job.queriesPerKvHead;
  job.isDirect = job.nQueries <= kMaxDirectQueries;
  const bool isRounded = chunk.type == DataType::kF16 || kernels_.floatKernels == nullptr;
  job.expanded = isRounded ? &kernels_ : kernels_.floatKernels;
  job.blockQueries =
      job.isDirect
          ? static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(job.nQueries)))
          : std::min(job.expanded->expandedQueries, ceilDivide(job.nQueries, kRowUnit) * kRowUnit);
  job.nBlocks = ceilDivide(job.nQueries, job.blockQueries);
  for (const ExactSpan& span : history.exact) {
    for (std::int64_t first = 0; first < span.nTokens; first += kExactTileTokens) {
      job.exact.push_back({&span, first, std::min(kExactTileTokens, span.nTokens - first)});
    }
  }
  // From the work alone, not from the number of threads: results are the same on any machine.
  const std::int64_t nTiles = job.historyTiles() + job.chunkTiles(job.nQueries - 1);
  const std::int64_t nGroups = shape.nKvHeads * job.nBlocks;
  job.nRuns =
      std::max<std::int64_t>(1, std::min(ceilDivide(kWantedItems / (job.isDirect ? 1 : 2), nGroups),
                                         nTiles / kMinTilesPerRun));

  reserveScratch(shape.headDim);
  const std::int64_t nItems = nGroups * job.nRuns;
  if (job.nRuns > 1) {
    const auto lines = static_cast<std::size_t>(nItems * job.partialFloats() / 16);
    if (partials_.size() < lines) partials_.resize(lines);
  }
  const std::int64_t products =
      nTiles * kExactTileTokens * shape.headDim * 2 * job.blockQueries / job.nRuns;
  const std::int64_t grain =
      std::max<std::int64_t>(1, kMinProducts / std::max<std::int64_t>(1, products));
  pool_.parallelFor(nItems, grain, [&](int thread, std::int64_t first, std::int64_t last) {
    const Scratch scratch = scratchOf(thread);
    for (std::int64_t item = first; item < last; ++item) attendItem(job, item, scratch);
  });
  if (job.nRuns > 1) {
    pool_.parallelFor(nGroups, 4, [&](int, std::int64_t first, std::int64_t last) {
      for (std::int64_t group = first; group < last; ++group) mergeRuns(job, group);
    });
  }
}

/// Item: kv head, block of queries, run of tiles, the run fastest. Late blocks come first: they see
/// more of the chunk, and the longest work shall not begin last.
void CpuKv::attendItem(const AttendJob& job, std::int64_t item, const Scratch& scratch) {
  const std::int64_t run = item % job.nRuns;
  const std::int64_t group = item / job.nRuns;
  const std::int64_t kvHead = group / job.nBlocks;
  const std::int64_t firstQuery = job.firstQuery(group);
  const std::int64_t nQueries = std::min(job.blockQueries, job.nQueries - firstQuery);
  const std::int64_t headDim = job.shape.headDim;

  QueryBlock block;
  block.headDim = headDim;
  block.rowFloats = job.rowFloats;
  block.nQueries = job.isDirect ? job.blockQueries : ceilDivide(nQueries, kRowUnit) * kRowUnit;
  block.queries = scratch.queries;
  block.factor = scratch.factor;
  block.scores = scratch.scores;
  block.keys = scratch.keys;
  block.values = scratch.values;
  if (job.nRuns > 1) {
    block.largest = partials_[static_cast<std::size_t>(item * job.partialFloats() / 16)].values;
    block.sum = block.largest + job.blockQueries;
    block.output = block.largest + ceilDivide(2 * job.blockQueries, 16) * 16;
  } else {
    block.largest = scratch.largest;
    block.sum = scratch.sum;
    block.output = scratch.output;
  }
  // Expanded: the rows lie where the output will be, until they are arranged.
  float* rows = job.isDirect ? scratch.queries : scratch.output;
  std::fill_n(rows, block.nQueries * job.rowFloats, 0.0F);
  for (std::int64_t q = 0; q < nQueries; ++q) {
    const float* row = job.queryRow(kvHead, firstQuery + q);
    for (std::int64_t c = 0; c < headDim; ++c)
      rows[q * job.rowFloats + c] = row[c] * job.scoreScale;
  }
  if (!job.isDirect) {
    job.expanded->arrangeQueries(rows, nQueries, headDim, job.rowFloats, scratch.queries);
  }
  std::fill_n(block.largest, block.nQueries, kNoScore);
  std::fill_n(block.sum, block.nQueries, 0.0F);
  std::fill_n(block.output, block.nQueries * job.rowFloats, 0.0F);

  const std::int64_t nTiles = job.historyTiles() + job.chunkTiles(firstQuery + nQueries - 1);
  const auto attendRun = job.isDirect ? &CpuKv::attendTiles : &CpuKv::attendGroups;
  (this->*attendRun)(job, kvHead, nTiles * run / job.nRuns, nTiles * (run + 1) / job.nRuns,
                     firstQuery, nQueries, block, scratch.visible);
  if (job.nRuns > 1) return;
  for (std::int64_t q = 0; q < nQueries; ++q) {
    float* output = job.outputRow(kvHead, firstQuery + q);
    const float inverse = 1.0F / block.sum[q];
    for (std::int64_t c = 0; c < headDim; ++c) {
      output[c] = block.output[q * job.rowFloats + c] * inverse;
    }
  }
}

/// Tiles are numbered: pages, slices of the exact history, slices of the chunk.
class CpuKv::Tiles {
 public:
  /// `lastQuery` tells how much of the chunk is seen.
  Tiles(const AttendJob& job, std::int64_t kvHead, std::int64_t lastQuery)
      : job_(job), kvHead_(kvHead), chunkTokens_(job.chunkTokens(lastQuery)) {}

  KvTile at(std::int64_t index) {
    const std::int64_t headDim = job_.shape.headDim;
    if (index < job_.history.nPages) {
      const PageRef& page = job_.history.pages[index];
      if (!hasLayout_ || !(page.format == format_)) {
        format_ = page.format;
        layout_ = pageLayout(format_, job_.shape.nKvHeads, headDim);
        hasLayout_ = true;
      }
      return pageTile(page, layout_, headDim, kvHead_);
    }
    if (index < job_.historyTiles()) {
      const ExactSlice& slice = job_.exact[static_cast<std::size_t>(index - job_.history.nPages)];
      return exactTile(*slice.span, headDim, kvHead_, slice.first, slice.count);
    }
    const std::int64_t first = (index - job_.historyTiles()) * kExactTileTokens;
    const std::int64_t count = std::min(kExactTileTokens, chunkTokens_ - first);
    KvTile tile = exactTile(job_.chunk, headDim, kvHead_, first, count);
    tile.chunkToken = first;
    return tile;
  }

 private:
  const AttendJob& job_;
  const std::int64_t kvHead_;
  const std::int64_t chunkTokens_;
  PageFormat format_;
  PageLayout layout_;
  bool hasLayout_ = false;
};

void CpuKv::attendTiles(const AttendJob& job, std::int64_t kvHead, std::int64_t firstTile,
                        std::int64_t endTile, std::int64_t firstQuery, std::int64_t nQueries,
                        QueryBlock& block, std::int32_t* visible) {
  Tiles tiles(job, kvHead, firstQuery + nQueries - 1);
  const PageRef* pages = job.history.pages;
  KvTile group[kMaxTileTokens / kMinGroupSize];
  std::int64_t nTiles = 0;
  std::int64_t firstPage = 0;  // of the group
  const auto attendGroup = [&] {
    if (nTiles > 0) kernels_.attendDirect(group, nTiles, block);
    nTiles = 0;
  };
  for (std::int64_t index = firstTile; index < endTile; ++index) {
    KvTile tile = tiles.at(index);
    if (tile.nTokens == 0) continue;
    block.visible = nullptr;
    if (index < job.history.nPages) {
      const std::int64_t groupTiles = kMaxTileTokens / tile.groupSize;
      if (index + groupTiles < std::min(endTile, job.history.nPages)) {
        tile.aheadBytes = pages[index + groupTiles].data - pages[index].data;
      }
      const bool isFull = tile.nTokens == tile.groupSize;
      if (!isFull || !(pages[index].format == pages[firstPage].format)) attendGroup();
      if (nTiles == 0) firstPage = index;
      group[nTiles++] = tile;
      if (!isFull || nTiles == groupTiles) attendGroup();
      continue;
    }
    attendGroup();
    if (tile.chunkToken != KvTile::kNoChunk &&
        job.chunkTokens(firstQuery) < tile.chunkToken + tile.nTokens) {
      std::fill_n(visible, block.nQueries, 0);
      for (std::int64_t q = 0; q < nQueries; ++q) {
        const std::int64_t seen = job.chunkTokens(firstQuery + q) - tile.chunkToken;
        visible[q] = static_cast<std::int32_t>(std::clamp<std::int64_t>(seen, 0, tile.nTokens));
      }
      block.visible = visible;
    }
    kernels_.attendDirect(&tile, 1, block);
  }
  attendGroup();
}

/// The same with many queries: tiles are gathered until they fill a group.
void CpuKv::attendGroups(const AttendJob& job, std::int64_t kvHead, std::int64_t firstTile,
                         std::int64_t endTile, std::int64_t firstQuery, std::int64_t nQueries,
                         QueryBlock& block, std::int32_t* seen) {
  for (std::int64_t q = 0; q < block.nQueries; ++q) {
    const std::int64_t query = firstQuery + std::min(q, nQueries - 1);
    seen[q] = static_cast<std::int32_t>(job.chunkTokens(query));
  }
  block.seen = seen;
  Tiles tiles(job, kvHead, firstQuery + nQueries - 1);
  std::int64_t index = firstTile;
  const auto gather = [&](KvGroup& group) {
    group.nTiles = 0;
    for (std::int64_t nTokens = 0; index < endTile; ++index) {
      const KvTile tile = tiles.at(index);
      if (tile.nTokens == 0) continue;
      nTokens += ceilDivide(tile.nTokens, kRowUnit) * kRowUnit;
      if (nTokens > kGroupTokens) return;
      group.tiles[group.nTiles++] = tile;
    }
  };
  KvGroup groups[2];
  gather(groups[0]);
  for (int now = 0; groups[now].nTiles > 0; now = 1 - now) {
    gather(groups[1 - now]);
    job.expanded->attendExpanded(groups[now], groups[1 - now], block);
  }
}

/// output = sum of the runs' outputs / sum of their sums, each times 2^(largest - overall largest).
void CpuKv::mergeRuns(const AttendJob& job, std::int64_t group) {
  const std::int64_t kvHead = group / job.nBlocks;
  const std::int64_t firstQuery = job.firstQuery(group);
  const std::int64_t nQueries = std::min(job.blockQueries, job.nQueries - firstQuery);
  const auto line = static_cast<std::size_t>(group * job.nRuns * job.partialFloats() / 16);
  for (std::int64_t q = 0; q < nQueries; ++q) {
    const float* first = partials_[line].values + q;
    kernels_.mergeRuns(
        first, first + job.blockQueries,
        partials_[line].values + ceilDivide(2 * job.blockQueries, 16) * 16 + q * job.rowFloats,
        job.partialFloats(), job.nRuns, job.shape.headDim, job.outputRow(kvHead, firstQuery + q));
  }
}

}  // namespace longhand::kernels
