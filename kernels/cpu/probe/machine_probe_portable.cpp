// The loops of machine_probe.h in plain C++.

#include <array>
#include <cstring>

#include "kernels/cpu/probe/machine_probe.h"

namespace longhand::kernels {
namespace {

std::uint64_t readAll(const std::byte* memory, std::size_t bytes) {
  std::array<std::uint64_t, 8> seen{};
  for (std::size_t at = 0; at < bytes; at += sizeof seen) {
    std::array<std::uint64_t, 8> words;
    std::memcpy(words.data(), memory + at, sizeof words);
    for (std::size_t i = 0; i < seen.size(); ++i) seen[i] |= words[i];
  }
  std::uint64_t all = 0;
  for (const std::uint64_t word : seen) all |= word;
  return all;
}

std::int64_t multiplyAddFloats(std::int64_t nRounds) {
  constexpr std::size_t kSums = 64;
  std::array<float, kSums> sums{};
  const volatile float factorSource = 0.999F;
  const float factor = factorSource;
  for (std::int64_t round = 0; round < nRounds; ++round) {
    for (float& sum : sums) sum = sum * factor + factor;
  }
  const volatile float kept = sums[static_cast<std::size_t>(nRounds) % kSums];
  static_cast<void>(kept);
  return nRounds * static_cast<std::int64_t>(kSums);
}

}  // namespace

const ProbeKernels kPortableProbe = {readAll, multiplyAddFloats, nullptr};

}  // namespace longhand::kernels
