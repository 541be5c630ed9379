#pragma once
// Vectors of four floats in the compilers' generic vector extension: SSE2 on x86-64, NEON on ARM.
// For one translation unit only: see cpu_kernels.h. Members mean the same in every simd_<set>.h.

#include <cstdint>

namespace longhand::kernels {
namespace {

struct Simd {
  using Float [[gnu::vector_size(16)]] = float;
  using Uints [[gnu::vector_size(16)]] = std::uint32_t;
  using Ints [[gnu::vector_size(16)]] = std::int32_t;

  static constexpr std::int64_t kLanes = 4;
  static constexpr int kTileTokens = 3;  // 3 x 4 sums and 4 weights fill 16 registers

  static Float zero() { return Float{}; }
  static Float broadcast(float x) { return Float{x, x, x, x}; }
  static Float load(const float* p) {
    Float v;
    __builtin_memcpy(&v, p, sizeof(v));
    return v;
  }
  static void store(float* p, Float v) { __builtin_memcpy(p, &v, sizeof(v)); }
  static Float multiplyAdd(Float a, Float b, Float c) { return a * b + c; }
  static Float add(Float a, Float b) { return a + b; }
  static Float subtract(Float a, Float b) { return a - b; }
  static Float multiply(Float a, Float b) { return a * b; }
  static Float divide(Float a, Float b) { return a / b; }
  /// x within [low, high]; NaN stays NaN.
  static Float clamp(Float x, Float low, Float high) {
    x = select(x < low, low, x);
    return select(x > high, high, x);
  }
  static float sum(Float v) { return (v[0] + v[2]) + (v[1] + v[3]); }
  /// The sums of four vectors.
  static void sum4(Float a, Float b, Float c, Float d, float* sums) {
    sums[0] = sum(a);
    sums[1] = sum(b);
    sums[2] = sum(c);
    sums[3] = sum(d);
  }
  /// 2^n * x for whole n with 2^n a normal number.
  static Float scaleByPowerOf2(Float x, Float n) {
    const Ints bits = (Ints{static_cast<int>(n[0]), static_cast<int>(n[1]), static_cast<int>(n[2]),
                            static_cast<int>(n[3])} +
                       127)
                      << 23;
    return x * bitCast<Float>(bits);
  }

  static Float loadHalf(const std::uint16_t* p) {
    const Uints half{p[0], p[1], p[2], p[3]};
    const Uints magnitude = half & 0x7fffU;
    // Scaling by 2^112 re-biases the exponent and normalizes subnormals; infinity and NaN apart.
    const Uints finite = bitCast<Uints>(bitCast<Float>(magnitude << 13) * 0x1p112F);
    const Uints special = 0x7f800000U | (magnitude << 13);
    const Uints isSpecial = bitCast<Uints>(magnitude >= 0x7c00U);
    return bitCast<Float>((isSpecial & special) | (~isSpecial & finite) | ((half & 0x8000U) << 16));
  }
  static Float loadBfloat(const std::uint16_t* p) {
    return bitCast<Float>(Uints{p[0], p[1], p[2], p[3]} << 16);
  }

  // --- NF4 --------------------------------------------------------------------------------------

  struct Codebook {
    const float* values;  // [16]
  };
  static Codebook loadCodebook(const float* values) { return {values}; }
  /// kLanes words of 8 codes. Ordinary registers here: taking numbers out of a vector costs more.
  struct Words {
    std::uint64_t first;  // words 0 and 1
    std::uint64_t second;
  };
  static Words loadWords(const std::uint8_t* p) {
    Words v;
    __builtin_memcpy(&v, p, sizeof(v));
    return v;
  }
  /// The next code of every word; what comes down from word 1 into word 0 is never looked at.
  static Words shiftRight4(Words v) { return {v.first >> 4U, v.second >> 4U}; }
  /// The numbers of the lowest 4 bits of each word.
  static Float lookUp(Codebook codebook, Words words) {
    return Float{codebook.values[words.first & 15U], codebook.values[(words.first >> 32U) & 15U],
                 codebook.values[words.second & 15U], codebook.values[(words.second >> 32U) & 15U]};
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
  template <typename To, typename From>
  static To bitCast(From from) {
    To to;
    static_assert(sizeof(to) == sizeof(from));
    __builtin_memcpy(&to, &from, sizeof(to));
    return to;
  }
  static Float select(Ints mask, Float a, Float b) {
    return bitCast<Float>((mask & bitCast<Ints>(a)) | (~mask & bitCast<Ints>(b)));
  }
};

}  // namespace
}  // namespace longhand::kernels
