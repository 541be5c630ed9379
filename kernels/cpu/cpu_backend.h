#pragma once
// The CPU backend: SIMD chosen at run time (portable, AVX2, AVX-512, AVX-512 VNNI, AVX-512
// BF16), work split over threads.

#include <cstdint>
#include <memory>

#include "kernels/backend.h"
#include "kernels/cpu/base/cpu_path.h"

namespace longhand::kernels {

/// NF4 and int8 weights with longer rows are multiplied in 8-bit integers where the instruction set
/// has them. A model of shorter ones fits into the processor's cache, so integers would save little
/// time, and they are off by up to 0.7 % of a product.
inline constexpr std::int64_t kLongestFloatRow = 512;

struct CpuOptions {
  int threads = 0;                // 0: the number of cores this process may use
  CpuPath path = CpuPath::kAuto;  // forced for tests; kAuto takes the best the machine has
  std::int64_t longestFloatRow = kLongestFloatRow;  // 0 in tests of integer products
};

/// Never returns nullptr. A path the machine lacks falls back to the next simpler one, which
/// description() names.
std::unique_ptr<Backend> createCpuBackend(const CpuOptions& options);

}  // namespace longhand::kernels
