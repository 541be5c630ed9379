#pragma once
// The PTX instructions that CUDA C++ has no function for, each with its twin for the emulation.
// cp.async needs sm_80: kernels for sm_75 copy at once (kCopiesAsync).

#include <cstdint>

#include "kernels/cuda/warp/portability.cuh"

namespace longhand::kernels::cuda {

#if defined(LONGHAND_CUDA_ON_CPU) || !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
inline constexpr bool kCopiesAsync = true;
#else
inline constexpr bool kCopiesAsync = false;
#endif

/// d = a * b + d of one warp: a [16, 16] by rows, b [16, 8] by columns, halves; d [16, 8] float.
/// Lane l holds of d: rows l/4 and l/4 + 8, columns 2 * (l%4) and the next.
__device__ __forceinline__ void multiplyTile(float (&d)[4], const unsigned (&a)[4],
                                             const unsigned (&b)[2]) {
#ifdef LONGHAND_CUDA_ON_CPU
  cuda_on_cpu::multiplyMatrices<__half>(LONGHAND_SITE, d, a, b, d);
#elif !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else  // sm_75: the two halves of k one after the other
  asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
      "{%0,%1,%2,%3},{%4,%5},{%6},{%0,%1,%2,%3};\n"
      "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
      "{%0,%1,%2,%3},{%7,%8},{%9},{%0,%1,%2,%3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(a[2]), "r"(a[3]), "r"(b[1]));
#endif
}

/// d = a * b + d of one warp: a [16, 32] by rows, bytes from 0 to 255; b [32, 8] by columns, bytes
/// from -128 to 127; d [16, 8] integers. Lane l = 4 * g + q passes of a: rows g ([0], [2]) and
/// g + 8, of b: column g; both k = 4 * q to 4 * q + 3 ([0], [1] and b[0]) and those + 16. It holds
/// of d: rows g and g + 8, columns 2 * q and the next.
__device__ __forceinline__ void multiplyByteTile(int (&d)[4], const unsigned (&a)[4],
                                                 const unsigned (&b)[2]) {
#ifdef LONGHAND_CUDA_ON_CPU
  cuda_on_cpu::multiplyByteMatrices(LONGHAND_SITE, d, a, b);
#elif !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 "
      "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};\n"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else  // sm_75: 8 rows and 16 of k at a time
  asm("mma.sync.aligned.m8n8k16.row.col.s32.u8.s8.s32 {%0,%1},{%4},{%8},{%0,%1};\n"
      "mma.sync.aligned.m8n8k16.row.col.s32.u8.s8.s32 {%2,%3},{%5},{%8},{%2,%3};\n"
      "mma.sync.aligned.m8n8k16.row.col.s32.u8.s8.s32 {%0,%1},{%6},{%9},{%0,%1};\n"
      "mma.sync.aligned.m8n8k16.row.col.s32.u8.s8.s32 {%2,%3},{%7},{%9},{%2,%3};\n"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

/// Four 8x8 matrices of halves from shared memory; lane 8 * i + r passes row r of matrix i (16-byte
/// aligned). Lane l gets of each: row l/4, columns 2 * (l%4) and the next; transposed with
/// kTransposed.
template <bool kTransposed>
__device__ __forceinline__ void loadTiles(unsigned (&result)[4], const void* row) {
#ifdef LONGHAND_CUDA_ON_CPU
  cuda_on_cpu::loadMatrices(LONGHAND_SITE, result, row, kTransposed);
#else
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(row));
  if constexpr (kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3},[%4];\n"
                 : "=r"(result[0]), "=r"(result[1]), "=r"(result[2]), "=r"(result[3])
                 : "r"(address)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3},[%4];\n"
                 : "=r"(result[0]), "=r"(result[1]), "=r"(result[2]), "=r"(result[3])
                 : "r"(address)
                 : "memory");
  }
#endif
}

/// threadIdx.x, read anew: what is computed from it is not kept in registers outside of a loop.
__device__ __forceinline__ int readThreadIndex() {
#ifdef LONGHAND_CUDA_ON_CPU
  return static_cast<int>(threadIdx.x);
#else
  int index;
  asm volatile("mov.u32 %0, %%tid.x;\n" : "=r"(index));
  return index;
#endif
}

/// The same number; the compiler cannot know, so it computes nothing from it ahead of time.
__device__ __forceinline__ unsigned hideOrigin(unsigned x) {
#ifndef LONGHAND_CUDA_ON_CPU
  asm volatile("" : "+r"(x));
#endif
  return x;
}

/// 2^x within 2^-22 of it, and 0 below 2^-126: one instruction, where exp2f needs four to keep
/// subnormal results.
__device__ __forceinline__ float powerOfTwo(float x) {
#ifdef LONGHAND_CUDA_ON_CPU
  return cuda_on_cpu::powerOfTwo(x);
#else
  float result;
  asm("ex2.approx.ftz.f32 %0,%1;\n" : "=f"(result) : "f"(x));
  return result;
#endif
}

/// Copies 16 bytes to shared memory in the background; the last 16 - sourceBytes become zeros.
/// Both addresses are 16-byte aligned.
__device__ __forceinline__ void copyAsync16(void* destination, const void* source,
                                            unsigned sourceBytes = 16) {
#ifdef LONGHAND_CUDA_ON_CPU
  cuda_on_cpu::copyAsync(destination, source, 16, sourceBytes);
#elif !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(destination));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(address), "l"(source),
               "r"(sourceBytes)
               : "memory");
#else
  uint4 copied = make_uint4(0, 0, 0, 0);
  if (sourceBytes == 16) {
    copied = *static_cast<const uint4*>(source);
  } else {
    auto* const bytes = reinterpret_cast<unsigned char*>(&copied);
    for (unsigned i = 0; i < sourceBytes; ++i) {
      bytes[i] = static_cast<const unsigned char*>(source)[i];
    }
  }
  *static_cast<uint4*>(destination) = copied;
#endif
}

/// The same of whole pieces at constant distances from two addresses, which cost no instructions.
template <int kDestinationBytes, int kSourceBytes>
__device__ __forceinline__ void copyAsync16At(void* destination, const void* source) {
#if !defined(LONGHAND_CUDA_ON_CPU) && (!defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800)
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(destination));
  asm volatile("cp.async.cg.shared.global [%0+%2], [%1+%3], 16;\n" ::"r"(address), "l"(source),
               "n"(kDestinationBytes), "n"(kSourceBytes)
               : "memory");
#else
  copyAsync16(static_cast<unsigned char*>(destination) + kDestinationBytes,
              static_cast<const unsigned char*>(source) + kSourceBytes);
#endif
}

/// Asks for the 64 bytes around an address to be brought to L2; reads nothing.
__device__ __forceinline__ void prefetchToL2(const void* address) {
#ifdef LONGHAND_CUDA_ON_CPU
  // So that an address sanitizer sees where it points.
  static_cast<void>(*static_cast<const volatile unsigned char*>(address));
#else
  asm volatile("prefetch.global.L2 [%0];\n" ::"l"(address));
#endif
}

/// Closes a group of this thread's copies.
__device__ __forceinline__ void commitCopies() {
#ifdef LONGHAND_CUDA_ON_CPU
  cuda_on_cpu::commitCopies();
#elif !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;\n" ::: "memory");
#endif
}

/// Waits for all but this thread's newest kPending groups. A barrier must follow before other
/// threads read what was copied.
template <int kPending>
__device__ __forceinline__ void waitCopies() {
#ifdef LONGHAND_CUDA_ON_CPU
  cuda_on_cpu::waitCopies(kPending);
#elif !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kPending) : "memory");
#endif
}

}  // namespace longhand::kernels::cuda
