#pragma once
// Remainders of a vector, by way of a buffer. Included after simd_<set>.h: see cpu_kernels.h.

namespace longhand::kernels {
namespace {

/// The first `count` < kLanes numbers; the other lanes are 0.
inline Simd::Float loadFirst(const float* p, std::int64_t count) {
  float buffer[Simd::kLanes] = {};
  __builtin_memcpy(buffer, p, static_cast<unsigned long>(count) * sizeof(float));
  return Simd::load(buffer);
}

inline void storeFirst(float* p, Simd::Float v, std::int64_t count) {
  float buffer[Simd::kLanes];
  Simd::store(buffer, v);
  __builtin_memcpy(p, buffer, static_cast<unsigned long>(count) * sizeof(float));
}

// How each plain type becomes a vector of floats.
struct FloatNumbers {
  using Stored = float;
  static Simd::Float load(const float* p) { return Simd::load(p); }
};
struct HalfNumbers {
  using Stored = std::uint16_t;
  static Simd::Float load(const std::uint16_t* p) { return Simd::loadHalf(p); }
};
struct BfloatNumbers {
  using Stored = std::uint16_t;
  static Simd::Float load(const std::uint16_t* p) { return Simd::loadBfloat(p); }
};

template <typename Numbers>
Simd::Float loadFirstNumbers(const typename Numbers::Stored* p, std::int64_t count) {
  typename Numbers::Stored buffer[Simd::kLanes] = {};
  __builtin_memcpy(buffer, p, static_cast<unsigned long>(count) * sizeof(buffer[0]));
  return Numbers::load(buffer);
}

}  // namespace
}  // namespace longhand::kernels
