#include "tests/cuda_on_cpu/block_engine.h"

#include <algorithm>
#include <cstring>

#include "tests/cuda_on_cpu/sanitizer_hooks.h"

namespace longhand::cuda_on_cpu {
namespace {

constexpr unsigned kWarpSize = 32;

/// Ends a CUDA thread whose block has failed, from wherever it waits: what its stack owns is freed.
struct Abandoned {};

std::string positionText() {
  const uint3 block = current.blockIndex;
  const uint3 thread = current.fiber->threadIndex;
  const auto triple = [](uint3 i) {
    return "(" + std::to_string(i.x) + "," + std::to_string(i.y) + "," + std::to_string(i.z) + ")";
  };
  return " [block " + triple(block) + " thread " + triple(thread) + "]";
}

}  // namespace

BlockEngine::~BlockEngine() {
  for (std::vector<Fiber>& set : fiberSets_) {
    for (Fiber& fiber : set) releaseFiber(fiber);
  }
}

LONGHAND_NO_TSAN void orderBeforeLaunch(BlockEngine& engine) { releaseOrder(&engine.launchBegin_); }

LONGHAND_NO_TSAN void orderAfterLaunch(BlockEngine& engine) { acquireOrder(&engine.launchOrder_); }

// --- Ready list ---------------------------------------------------------------------------------

LONGHAND_NO_TSAN std::uint64_t BlockEngine::nextRandom() {  // xorshift64 (Marsaglia 2003)
  random_ ^= random_ << 13U;
  random_ ^= random_ >> 7U;
  random_ ^= random_ << 17U;
  return random_;
}

LONGHAND_NO_TSAN void BlockEngine::makeReady(unsigned thread) {
  fibers_[thread]->state = Fiber::State::kReady;
  ready_.push_back(thread);
}

LONGHAND_NO_TSAN void BlockEngine::unready(unsigned thread) {
  const auto found = std::find(ready_.rbegin(), ready_.rend(), thread);
  if (found != ready_.rend()) ready_.erase(std::next(found).base());
}

LONGHAND_NO_TSAN Fiber& BlockEngine::nextReady() {
  const BookkeepingScope scope;
  constexpr std::size_t kCompactFrom = 4096;
  if (readyHead_ >= ready_.size()) return osThread_;
  if (options.schedule == Schedule::kRandom) {
    const std::size_t choice = readyHead_ + nextRandom() % (ready_.size() - readyHead_);
    std::swap(ready_[choice], ready_[readyHead_]);
  }
  Fiber& next = *fibers_[ready_[readyHead_++]];
  if (readyHead_ > kCompactFrom && readyHead_ * 2 > ready_.size()) {
    ready_.erase(ready_.begin(), ready_.begin() + static_cast<std::ptrdiff_t>(readyHead_));
    readyHead_ = 0;
  }
  return next;
}

LONGHAND_NO_TSAN void BlockEngine::switchTo(Fiber& next) {
  Fiber& self = *current.fiber;
  if (&self == &next) return;
  current.fiber = &next;
  switchFiber(self, next, self.state == Fiber::State::kDone && &self != &osThread_);
  if (isUnwinding_ && &self != &osThread_) throw Abandoned();
}

LONGHAND_NO_TSAN void BlockEngine::fail(const std::string& message) {
  if (error_.empty()) error_ = message + positionText();
  current.fiber->state = Fiber::State::kInCollective;
  switchTo(osThread_);
  __builtin_unreachable();
}

// --- Barriers -----------------------------------------------------------------------------------

LONGHAND_NO_TSAN int BlockEngine::barrier(unsigned id, unsigned nThreads, const char* site,
                                          bool predicate, Vote vote) {
  const BookkeepingScope scope;
  Fiber& self = *current.fiber;
  if (id >= kBarriers) fail("there is no such barrier, at " + std::string(site));
  Barrier& b = barriers_[id];
  if (b.waiting.empty()) {
    b.site = site;
    b.nTrue = 0;
    b.nExpected = nThreads;
  } else if (b.site != site && std::strcmp(b.site, site) != 0) {
    fail("divergent barrier: " + std::string(b.site) + " and " + site);
  }
  if (nThreads == 0 && nAlive_ != nThreads_) {
    fail("barrier after some threads exited, at " + std::string(site));
  }
  char* const order = &b.order[b.generation & 1U];
  releaseOrder(order);
  b.nTrue += predicate ? 1U : 0U;
  self.state = Fiber::State::kAtBarrier;
  self.site = site;
  b.waiting.push_back(self.linearIndex);
  if (b.waiting.size() == (nThreads == 0 ? nAlive_ : nThreads)) {
    openBarrier(b);
    if (options.schedule == Schedule::kForward) {
      unready(self.linearIndex);  // the last one goes on at once
    } else {
      yield();
    }
  } else {
    yield();
  }
  acquireOrder(order);
  switch (vote) {
    case Vote::kNone:
      return 0;
    case Vote::kAny:
      return b.result != 0 ? 1 : 0;
    case Vote::kAll:
      return b.result == static_cast<int>(nThreads == 0 ? nThreads_ : nThreads) ? 1 : 0;
    case Vote::kCount:
      return b.result;
  }
  return 0;
}

LONGHAND_NO_TSAN void BlockEngine::openBarrier(Barrier& b) {
  b.result = static_cast<int>(b.nTrue);
  ++b.generation;
  if (options.schedule == Schedule::kReverse) {
    std::sort(b.waiting.rbegin(), b.waiting.rend());
  } else {
    std::sort(b.waiting.begin(), b.waiting.end());
  }
  for (const unsigned thread : b.waiting) makeReady(thread);
  b.waiting.clear();
}

// --- Collectives --------------------------------------------------------------------------------

LONGHAND_NO_TSAN BlockEngine::Meeting& BlockEngine::meetingFor(Warp& warp, unsigned mask,
                                                               Combine combine, const char* site) {
  Meeting* free = nullptr;
  for (Meeting& each : warp.meetings) {
    if (each.arrived != 0 && each.mask == mask) return each;
    if (each.arrived == 0 && free == nullptr) free = &each;
  }
  if (free == nullptr) free = &warp.meetings.emplace_back();
  free->mask = mask;
  free->combine = combine;
  free->site = site;
  return *free;
}

LONGHAND_NO_TSAN void BlockEngine::collective(unsigned mask, Combine combine, void* lane,
                                              const char* site) {
  const BookkeepingScope scope;
  Fiber& self = *current.fiber;
  const unsigned laneIndex = self.linearIndex % kWarpSize;
  Warp& warp = warps_[self.linearIndex / kWarpSize];
  mask &= warp.existing;
  if ((mask >> laneIndex & 1U) == 0) fail("caller not in its mask, at " + std::string(site));
  if ((mask & ~warp.alive) != 0) fail("mask names an exited lane, at " + std::string(site));
  Meeting& meeting = meetingFor(warp, mask, combine, site);
  if (meeting.combine != combine) {
    fail("mismatched warp collectives: " + std::string(meeting.site) + " and " + site);
  }
  meeting.lanes[laneIndex] = lane;
  meeting.arrived |= 1U << laneIndex;
  self.state = Fiber::State::kInCollective;
  self.site = site;
  // Only __syncwarp orders memory: shuffles, votes and mma exchange registers.
  char* const order = combine == nullptr ? &meeting.order[meeting.generation & 1U] : nullptr;
  if (order != nullptr) releaseOrder(order);
  if (meeting.arrived != mask) {
    yield();
    if (order != nullptr) acquireOrder(order);
    return;
  }
  if (combine != nullptr) combine(meeting.lanes, mask);
  meeting.arrived = 0;
  ++meeting.generation;
  const unsigned first = self.linearIndex - laneIndex;
  if (options.schedule == Schedule::kForward) {
    for (unsigned i = 0; i < kWarpSize; ++i) {
      if (i != laneIndex && (mask >> i & 1U) != 0) makeReady(first + i);
    }
    self.state = Fiber::State::kReady;
  } else {
    for (unsigned i = kWarpSize; i-- > 0;) {
      if ((mask >> i & 1U) != 0) makeReady(first + i);
    }
    yield();
  }
  if (order != nullptr) acquireOrder(order);
}

LONGHAND_NO_TSAN void* BlockEngine::sharedArray(const char* site, std::size_t bytes) {
  const BookkeepingScope scope;
  void* const memory = shared_.array(site, bytes);
  if (memory == nullptr || shared_.staticBytes() > options.largestDefaultSharedBytes ||
      shared_.staticBytes() + dynamicBytes_ > largestSharedBytes_) {
    fail("too much shared memory, at " + std::string(site));
  }
  return memory;
}

// --- Life of a block ----------------------------------------------------------------------------

LONGHAND_NO_TSAN void BlockEngine::chooseFibers() {
  std::vector<Fiber>& set = fiberSets_[nBlocksRun_ % kFiberSets];
  if (set.size() < nThreads_) set.resize(nThreads_);
  const std::size_t first = kFiberSets == 1 ? 0 : nBlocksRun_ / kFiberSets * kFiberShift;
  ++nBlocksRun_;
  fibers_.resize(nThreads_);
  for (unsigned i = 0; i < nThreads_; ++i) fibers_[i] = &set[(first + i) % set.size()];
}

LONGHAND_NO_TSAN void BlockEngine::prepareThreads() {
  const dim3 size = current.blockSize;
  nThreads_ = nAlive_ = size.x * size.y * size.z;
  ready_.clear();
  readyHead_ = 0;
  for (Barrier& b : barriers_) b.waiting.clear();
  chooseFibers();
  warps_.resize((nThreads_ + kWarpSize - 1) / kWarpSize);
  for (unsigned i = 0; i < warps_.size(); ++i) {
    const unsigned lanes = std::min(kWarpSize, nThreads_ - i * kWarpSize);
    warps_[i].existing = warps_[i].alive = lanes == kWarpSize ? ~0U : (1U << lanes) - 1U;
    warps_[i].meetings.reserve(kWarpSize);  // never moves: tsan knows its members by address
    for (Meeting& each : warps_[i].meetings) each.arrived = 0;
  }
  for (unsigned i = 0; i < nThreads_; ++i) {
    Fiber& fiber = *fibers_[i];
    if (fiber.mapping == nullptr) mapStack(fiber, options.stackBytes);
    fiber.linearIndex = i;
    fiber.threadIndex = {i % size.x, i / size.x % size.y, i / (size.x * size.y)};
    fiber.state = Fiber::State::kReady;
    fiber.site = nullptr;
    fiber.pendingCopies.clear();
    fiber.copyGroup = 0;
    prepareFiber(fiber, &BlockEngine::enterFiber);
  }
  for (unsigned i = 0; i < nThreads_; ++i) {
    ready_.push_back(options.schedule == Schedule::kReverse ? nThreads_ - 1 - i : i);
  }
}

LONGHAND_NO_TSAN void BlockEngine::runBlock(void (*body)(void*), void* argument,
                                            std::size_t dynamicSharedBytes,
                                            std::size_t largestSharedBytes) {
  const BookkeepingScope scope;
  body_ = body;
  argument_ = argument;
  dynamicBytes_ = dynamicSharedBytes;
  largestSharedBytes_ = largestSharedBytes;
  shared_.reset(dynamicSharedBytes);
  prepareThreads();
  describeOsThread(osThread_);
  current.fiber = &osThread_;
  yield();
  current.fiber = nullptr;
  if (error_.empty() && nAlive_ > 0) error_ = deadlockMessage();
  if (error_.empty()) {
    const uint3 block = current.blockIndex;
    error_ = shared_.overrun();
    if (!error_.empty()) error_ += " [block (" + std::to_string(block.x) + ",...)]";
  }
  if (error_.empty()) return;
  unwindThreads();
  const std::string message = error_;
  error_.clear();
  throw Error(message);
}

LONGHAND_NO_TSAN void BlockEngine::unwindThreads() {
  isUnwinding_ = true;
  current.fiber = &osThread_;
  for (Fiber* const fiber : fibers_) {
    if (fiber->state != Fiber::State::kDone) switchTo(*fiber);  // comes back when it has ended
  }
  isUnwinding_ = false;
  current.fiber = nullptr;
}

LONGHAND_NO_TSAN std::string BlockEngine::deadlockMessage() const {
  constexpr unsigned kNamed = 4;
  std::string text = "deadlock:";
  unsigned named = 0;
  for (unsigned i = 0; i < nThreads_ && named < kNamed; ++i) {
    if (fibers_[i]->state == Fiber::State::kDone) continue;
    ++named;
    text += " thread " + std::to_string(i) + " at ";
    text += fibers_[i]->site == nullptr ? "?" : fibers_[i]->site;
  }
  return text;
}

LONGHAND_NO_TSAN void BlockEngine::enterFiber() {
  finishFirstSwitch();
  acquireOrder(&current.engine->launchBegin_);
  current.engine->threadMain();
}

LONGHAND_NO_TSAN void BlockEngine::threadMain() {
  Fiber& self = *current.fiber;
  try {
    if (!isUnwinding_) {
      body_(argument_);
      self.state = Fiber::State::kDone;
      leaveThread(self);
    }
  } catch (const Abandoned&) {
  }
  releaseOrder(&launchOrder_);
  self.state = Fiber::State::kDone;
  switchTo(isUnwinding_ ? osThread_ : nextReady());
  __builtin_unreachable();
}

LONGHAND_NO_TSAN void BlockEngine::leaveThread(Fiber& self) {
  const BookkeepingScope scope;
  const unsigned lane = self.linearIndex % kWarpSize;
  Warp& warp = warps_[self.linearIndex / kWarpSize];
  --nAlive_;
  warp.alive &= ~(1U << lane);
  for (const Meeting& each : warp.meetings) {
    if (each.arrived != 0 && (each.mask >> lane & 1U) != 0) {
      fail("lane exited while others wait for it, at " + std::string(each.site));
    }
  }
  for (const Barrier& b : barriers_) {
    if (!b.waiting.empty() && b.nExpected == 0) {
      fail("thread exited while others wait at a barrier, at " + std::string(b.site));
    }
  }
}

}  // namespace longhand::cuda_on_cpu
