#pragma once
// Warp collectives. Each is a struct of a lane's inputs and outputs with a static combine() over
// the lanes that met; the last lane to arrive runs it for all.

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>

#include "tests/cuda_on_cpu/block_engine.h"
#include "tests/cuda_on_cpu/sanitizer_hooks.h"

namespace longhand::cuda_on_cpu {

template <class Lane>
LONGHAND_NO_TSAN void meet(unsigned mask, Lane& lane, const char* site) {
  current.engine->collective(
      mask,
      [](void** lanes, unsigned met) {
        Lane* typed[32];
        for (unsigned i = 0; i < 32; ++i) typed[i] = static_cast<Lane*>(lanes[i]);
        Lane::combine(typed, met);
      },
      &lane, site);
}

enum class ShuffleKind { kIndex, kUp, kDown, kXor };

/// A value from another lane; where that lane is not in the mask, poison, as CUDA leaves it
/// undefined.
template <class T, ShuffleKind kKind>
struct Shuffle {
  T value;
  T result;
  int operand;
  int width;

  LONGHAND_NO_TSAN static int sourceOf(int lane, int operand, int width) {
    const int first = lane & ~(width - 1);
    int source = lane;
    if constexpr (kKind == ShuffleKind::kIndex) {
      source = first + (operand & (width - 1));
    } else if constexpr (kKind == ShuffleKind::kUp) {
      source = lane - operand < first ? lane : lane - operand;
    } else if constexpr (kKind == ShuffleKind::kDown) {
      source = lane + operand >= first + width ? lane : lane + operand;
    } else {
      source = (lane ^ operand) >= first + width ? lane : lane ^ operand;
    }
    return source;
  }
  LONGHAND_NO_TSAN static void combine(Shuffle** lanes, unsigned mask) {
    for (int i = 0; i < 32; ++i) {
      if ((mask >> i & 1U) == 0) continue;
      const int source = sourceOf(i, lanes[i]->operand, lanes[i]->width);
      if ((mask >> source & 1U) != 0) {
        lanes[i]->result = lanes[source]->value;
      } else {
        std::memset(static_cast<void*>(&lanes[i]->result), kSharedPoison, sizeof(T));
      }
    }
  }
};

template <ShuffleKind kKind, class T>
LONGHAND_NO_TSAN T shuffle(const char* site, unsigned mask, T value, int operand, int width = 32) {
  Shuffle<T, kKind> lane{value, value, operand, width};
  meet(mask, lane, site);
  return lane.result;
}

struct Ballot {
  bool predicate;
  unsigned result;

  LONGHAND_NO_TSAN static void combine(Ballot** lanes, unsigned mask) {
    unsigned votes = 0;
    for (unsigned i = 0; i < 32; ++i) {
      if ((mask >> i & 1U) != 0 && lanes[i]->predicate) votes |= 1U << i;
    }
    for (unsigned i = 0; i < 32; ++i) {
      if ((mask >> i & 1U) != 0) lanes[i]->result = votes;
    }
  }
};

LONGHAND_NO_TSAN inline unsigned ballot(const char* site, unsigned mask, bool predicate) {
  Ballot lane{predicate, 0};
  meet(mask, lane, site);
  return lane.result;
}

LONGHAND_NO_TSAN inline void syncWarp(const char* site, unsigned mask = ~0U) {
  current.engine->collective(mask, nullptr, nullptr, site);
}

/// mma.sync.aligned.m16n8k16.row.col.f32.{f16|bf16}.{f16|bf16}.f32: fragments as the PTX ISA lays
/// them out ("Matrix Fragments for mma.m16n8k16"). Products are exact; the sum is cut to a float,
/// as tensor cores do it (Ootomo and Yokota 2022), which is worse than rounding: errors have one
/// sign.
template <class Half>
struct MatrixMultiply {
  const unsigned* a;  // [4], two halves each
  const unsigned* b;  // [2]
  const float* c;     // [4]
  float* d;           // [4]

  LONGHAND_NO_TSAN static float towardZero(double x) {
    const auto nearest = static_cast<float>(x);
    const bool isLonger = std::abs(static_cast<double>(nearest)) > std::abs(x);
    return isLonger ? std::bit_cast<float>(std::bit_cast<std::uint32_t>(nearest) - 1U) : nearest;
  }
  LONGHAND_NO_TSAN static float half(unsigned pair, int which) {
    const auto bits = static_cast<unsigned short>(which == 0 ? pair : pair >> 16U);
    Half value;
    std::memcpy(static_cast<void*>(&value), &bits, sizeof bits);
    return static_cast<float>(value);
  }
  LONGHAND_NO_TSAN static void combine(MatrixMultiply** lanes, unsigned mask) {
    if (mask != ~0U) current.engine->fail("mma.sync needs all 32 lanes");
    float rows[16][16];  // A
    float cols[16][8];   // B
    for (int lane = 0; lane < 32; ++lane) {
      const int group = lane / 4;
      const int k = lane % 4 * 2;
      for (int i = 0; i < 8; ++i) {
        rows[group + (i / 2 % 2) * 8][k + i % 2 + (i / 4) * 8] = half(lanes[lane]->a[i / 2], i % 2);
      }
      for (int i = 0; i < 4; ++i) {
        cols[k + i % 2 + (i / 2) * 8][group] = half(lanes[lane]->b[i / 2], i % 2);
      }
    }
    for (int lane = 0; lane < 32; ++lane) {
      for (int i = 0; i < 4; ++i) {
        const int row = lane / 4 + (i / 2) * 8;
        const int col = lane % 4 * 2 + i % 2;
        double sum = lanes[lane]->c[i];
        for (int k = 0; k < 16; ++k) sum += rows[row][k] * cols[k][col];
        lanes[lane]->d[i] = towardZero(sum);
      }
    }
  }
};

/// d = a * b + c. d may be c.
template <class Half>
LONGHAND_NO_TSAN void multiplyMatrices(const char* site, float* d, const unsigned* a,
                                       const unsigned* b, const float* c) {
  float result[4];
  MatrixMultiply<Half> lane{a, b, c, result};
  meet(~0U, lane, site);
  std::memcpy(d, result, sizeof result);
}

/// mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32: fragments as the PTX ISA lays them out ("Matrix
/// Fragments for mma.m16n8k32").
struct ByteMatrixMultiply {
  const unsigned* a;  // [4], four bytes each, 0 to 255
  const unsigned* b;  // [2], four bytes each, -128 to 127
  int* d;             // [4], with what they were before in them

  LONGHAND_NO_TSAN static void combine(ByteMatrixMultiply** lanes, unsigned mask) {
    if (mask != ~0U) current.engine->fail("mma.sync needs all 32 lanes");
    int rows[16][32];  // A
    int cols[32][8];   // B
    for (int lane = 0; lane < 32; ++lane) {
      const int group = lane / 4;
      for (int i = 0; i < 16; ++i) {
        const unsigned byte = lanes[lane]->a[i / 4] >> (8 * (i % 4)) & 0xffU;
        rows[group + (i / 4 % 2) * 8][lane % 4 * 4 + i % 4 + (i / 8) * 16] = static_cast<int>(byte);
      }
      for (int i = 0; i < 8; ++i) {
        const unsigned byte = lanes[lane]->b[i / 4] >> (8 * (i % 4)) & 0xffU;
        cols[lane % 4 * 4 + i % 4 + (i / 4) * 16][group] = static_cast<signed char>(byte);
      }
    }
    for (int lane = 0; lane < 32; ++lane) {
      for (int i = 0; i < 4; ++i) {
        const int row = lane / 4 + (i / 2) * 8;
        const int col = lane % 4 * 2 + i % 2;
        for (int k = 0; k < 32; ++k) lanes[lane]->d[i] += rows[row][k] * cols[k][col];
      }
    }
  }
};

/// d += a * b.
LONGHAND_NO_TSAN inline void multiplyByteMatrices(const char* site, int* d, const unsigned* a,
                                                  const unsigned* b) {
  int result[4];
  std::memcpy(result, d, sizeof result);
  ByteMatrixMultiply lane{a, b, result};
  meet(~0U, lane, site);
  std::memcpy(d, result, sizeof result);
}

/// ldmatrix.sync.aligned.m8n8.x4[.trans].shared.b16: lane 8 * i + r passes row r of matrix i.
struct LoadMatrix {
  const void* row;   // 8 halves, 16-byte aligned
  unsigned* result;  // [4]
  bool isTransposed;

  LONGHAND_NO_TSAN static void combine(LoadMatrix** lanes, unsigned mask) {
    if (mask != ~0U) current.engine->fail("ldmatrix needs all 32 lanes");
    for (int matrix = 0; matrix < 4; ++matrix) {
      for (int lane = 0; lane < 32; ++lane) {
        unsigned short pair[2];
        for (int i = 0; i < 2; ++i) {
          int row = lane / 4;
          int col = lane % 4 * 2 + i;
          if (lanes[lane]->isTransposed) std::swap(row, col);
          const auto* source = static_cast<const char*>(lanes[matrix * 8 + row]->row);
          std::memcpy(&pair[i], source + col * 2, sizeof pair[i]);
        }
        lanes[lane]->result[matrix] = pair[0] | static_cast<unsigned>(pair[1]) << 16U;
      }
    }
  }
};

LONGHAND_NO_TSAN inline void loadMatrices(const char* site, unsigned* result, const void* row,
                                          bool isTransposed) {
  if (reinterpret_cast<std::uintptr_t>(row) % 16 != 0) {
    current.engine->fail("ldmatrix row is not 16-byte aligned, at " + std::string(site));
  }
  noteRead(row, 16);
  unsigned loaded[4];
  LoadMatrix lane{row, loaded, isTransposed};
  meet(~0U, lane, site);
  std::memcpy(result, loaded, sizeof loaded);
}

}  // namespace longhand::cuda_on_cpu
