#pragma once
// Vectors of four floats in the compilers' generic vector extension: SSE2 on x86-64, NEON on ARM.
// For one translation unit only, compiled without instruction-set flags: see cpu_kernels.h. Members
// mean the same in every simd_<set>.h.

#include <cstddef>
#include <cstdint>

#include "kernels/half.h"

namespace longhand::kernels {
namespace {

struct Simd {
  using Float [[gnu::vector_size(16)]] = float;
  /// kLanes numbers of 32 bits.
  using Words [[gnu::vector_size(16)]] = std::uint32_t;
  using Ints [[gnu::vector_size(16)]] = std::int32_t;

  static constexpr std::int64_t kLanes = 4;
  static constexpr int kTileTokens = 3;  // 3 x 4 sums and 4 weights fill 16 registers
  static constexpr int kMaxAccumulators = 8;
  static constexpr int kGemmRows = 4;
  static constexpr int kGemmColumns = 2;

  // --- Memory: any alignment. Partial: lanes [0, n), nothing behind them is read; the others are 0

  static Float load(const float* p) { return read<Float>(p); }
  static Float loadPartial(const float* p, std::int64_t n) { return readFirst<Float>(p, n); }
  static void store(float* p, Float v) { __builtin_memcpy(p, &v, sizeof(v)); }
  static Float loadHalf(const std::uint16_t* p) {
    const Words bits = __builtin_convertvector(read<Shorts>(p), Words);
    const Words magnitude = bits & 0x7fffU;
    // Scaling by 2^112 re-biases the exponent and normalizes subnormals; infinity and NaN apart.
    const Words finite = bitCast<Words>(bitCast<Float>(magnitude << 13) * 0x1p112F);
    const Words special = 0x7f800000U | (magnitude << 13);
    return bitCast<Float>((magnitude >= 0x7c00U ? special : finite) | ((bits & 0x8000U) << 16));
  }
  static Float loadHalfPartial(const std::uint16_t* p, std::int64_t n) {
    std::uint16_t buffer[kLanes] = {};
    __builtin_memcpy(buffer, p, static_cast<std::size_t>(n) * sizeof(buffer[0]));
    return loadHalf(buffer);
  }
  /// Rounded to nearest, ties to even.
  static void storeHalf(std::uint16_t* p, Float v) {
    for (std::int64_t i = 0; i < kLanes; ++i) p[i] = floatToHalf(v[i]);
  }
  static Float loadBfloat(const std::uint16_t* p) {
    return bitCast<Float>(Words{p[0], p[1], p[2], p[3]} << 16);
  }
  static Words loadWords(const void* p) { return read<Words>(p); }
  static Words loadWordsPartial(const void* p, std::int64_t n) { return readFirst<Words>(p, n); }
  /// Whole numbers 0..255.
  static void storeBytes(std::uint8_t* p, Float v) {
    const Bytes bytes = __builtin_convertvector(__builtin_convertvector(v, Ints), Bytes);
    __builtin_memcpy(p, &bytes, sizeof(bytes));
  }

  // --- Arithmetic -------------------------------------------------------------------------------

  static Float zero() { return Float{}; }
  static Float broadcast(float x) { return Float{x, x, x, x}; }
  static Float add(Float a, Float b) { return a + b; }
  static Float subtract(Float a, Float b) { return a - b; }
  static Float multiply(Float a, Float b) { return a * b; }
  static Float divide(Float a, Float b) { return a / b; }
  /// a * b + c, rounded once or twice.
  static Float multiplyAdd(Float a, Float b, Float c) { return a * b + c; }
  /// max and min: the second where one is NaN.
  static Float max(Float a, Float b) { return a > b ? a : b; }
  static Float min(Float a, Float b) { return a < b ? a : b; }
  static Float abs(Float a) { return bitCast<Float>(bitCast<Words>(a) & 0x7fffffffU); }
  /// To whole numbers, ties to even.
  static Float round(Float a) {
    const Float magic = broadcast(0x1.8p23F);
    const Float rounded = (a + magic) - magic;
    return abs(a) < broadcast(0x1p22F) ? rounded : a;  // larger ones stay as they are
  }
  /// 2^n * x for whole n in [-126, 127], where 2^n is a normal number.
  static Float scaleByPowerOf2(Float x, Float n) {
    const Ints power = (__builtin_convertvector(n, Ints) + 127) << 23;
    return x * bitCast<Float>(power);
  }
  static Words maskBits(Words v, std::uint32_t mask) { return v & Words{mask, mask, mask, mask}; }
  template <int kShift>
  static Words shiftRight(Words v) {
    return v >> kShift;
  }
  /// Of words below 2^31.
  static Float toFloat(Words v) {
    return __builtin_convertvector(__builtin_convertvector(v, Ints), Float);
  }

  // --- Choices ----------------------------------------------------------------------------------

  /// a where condition > 0, else b.
  static Float selectPositive(Float condition, Float a, Float b) {
    return condition > zero() ? a : b;
  }
  /// v in lanes [0, n), else `other`.
  static Float keepFirst(Float v, std::int64_t n, float other) {
    const Ints lane = {0, 1, 2, 3};
    const auto count = static_cast<std::int32_t>(n);
    return lane < Ints{count, count, count, count} ? v : broadcast(other);
  }
  /// v where counts > index, else -infinity.
  static Float keepVisible(Float v, const std::int32_t* counts, std::int32_t index) {
    const Ints count = read<Ints>(counts);
    return count > Ints{index, index, index, index} ? v : broadcast(-__builtin_huge_valf());
  }

  // --- Across lanes -----------------------------------------------------------------------------

  static float sum(Float v) { return (v[0] + v[2]) + (v[1] + v[3]); }
  /// The sums of four vectors.
  static void sum4(Float a, Float b, Float c, Float d, float* sums) {
    sums[0] = sum(a);
    sums[1] = sum(b);
    sums[2] = sum(c);
    sums[3] = sum(d);
  }
  static float largest(Float v) {
    const float a = v[0] > v[1] ? v[0] : v[1];
    const float b = v[2] > v[3] ? v[2] : v[3];
    return a > b ? a : b;
  }
  static float smallest(Float v) { return -largest(-v); }

  // --- NF4 --------------------------------------------------------------------------------------

  struct Codebook {
    const float* values;  // [16]
  };
  static Codebook loadCodebook(const float* values) { return {values}; }
  /// kLanes words of 8 codes. Ordinary registers here: taking numbers out of a vector costs more.
  struct Codes {
    std::uint64_t first;  // words 0 and 1
    std::uint64_t second;
  };
  static Codes loadCodes(const std::uint8_t* p) {
    Codes codes;
    __builtin_memcpy(&codes, p, sizeof(codes));
    return codes;
  }
  /// The next code of every word; what comes down from word 1 into word 0 is never looked at.
  static Codes nextCodes(Codes codes) { return {codes.first >> 4U, codes.second >> 4U}; }
  /// The numbers of the lowest 4 bits of each word.
  static Float lookUp(Codebook codebook, Codes codes) {
    return Float{codebook.values[codes.first & 15U], codebook.values[(codes.first >> 32U) & 15U],
                 codebook.values[codes.second & 15U], codebook.values[(codes.second >> 32U) & 15U]};
  }
  /// The numbers of kLanes codes in their order, from kLanes / 2 bytes.
  static Float lookUpInOrder(Codebook codebook, const std::uint8_t* p) {
    return Float{codebook.values[p[0] >> 4U], codebook.values[p[0] & 15U],
                 codebook.values[p[1] >> 4U], codebook.values[p[1] & 15U]};
  }
  /// The absmax of each lane's 8 codes in a chunk of 8 * kLanes codes.
  static Float chunkScales(const float* absmax, std::int64_t chunk) {
    return broadcast(absmax[chunk / 2]);
  }

 private:
  using Shorts [[gnu::vector_size(8)]] = std::uint16_t;
  using Bytes [[gnu::vector_size(4)]] = std::uint8_t;

  template <typename Vector>
  static Vector read(const void* p) {
    Vector v;
    __builtin_memcpy(&v, p, sizeof(v));
    return v;
  }
  template <typename Vector>
  static Vector readFirst(const void* p, std::int64_t n) {
    Vector v = {};
    __builtin_memcpy(&v, p, static_cast<std::size_t>(n) * 4);
    return v;
  }
  template <typename To, typename From>
  static To bitCast(From from) {
    To to;
    static_assert(sizeof(to) == sizeof(from));
    __builtin_memcpy(&to, &from, sizeof(to));
    return to;
  }
};

}  // namespace
}  // namespace longhand::kernels
