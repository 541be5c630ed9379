#pragma once
// The loops of machine_probe.h over a vector type `Probe`, for one translation unit only:
// Probe::Words with load, either (bitwise or) and reduce; loops over independent sums in registers.

#include "kernels/cpu/probe/machine_probe.h"

namespace longhand::kernels {
namespace {

/// Four streams a page apart from each other, which the prefetchers of a core follow side by side.
[[maybe_unused]] std::uint64_t readAll(const std::byte* memory, std::size_t bytes) {
  constexpr std::size_t kStep = sizeof(Probe::Words);
  constexpr std::size_t kStreamBytes = 1024;
  Probe::Words seen[4] = {Probe::zeroWords(), Probe::zeroWords(), Probe::zeroWords(),
                          Probe::zeroWords()};
  for (std::size_t block = 0; block < bytes; block += 4 * kStreamBytes) {
    for (std::size_t at = block; at < block + kStreamBytes; at += kStep) {
      for (std::size_t i = 0; i < 4; ++i) {
        seen[i] = Probe::either(seen[i], Probe::loadWords(memory + at + i * kStreamBytes));
      }
    }
  }
  return Probe::reduce(
      Probe::either(Probe::either(seen[0], seen[1]), Probe::either(seen[2], seen[3])));
}

/// step(sum, operand) adds Step::kMultiplyAdds products to a vector of sums. Twelve sums are enough
/// that none waits for the round before: 2 a cycle with a latency of 4 or 5. They have names since
/// GCC keeps an array in memory.
template <typename Step>
std::int64_t multiplyAdd(std::int64_t nRounds) {
  using Sum = typename Step::Sum;
  Sum a = Step::zero(), b = a, c = a, d = a, e = a, f = a, g = a, h = a, i = a, j = a, k = a, l = a;
  const auto operand = Step::operand();
  const auto step = [&operand](Sum& sum) {
    sum = Step::add(sum, operand);
    asm("" : "+v"(sum));  // every round must happen
  };
  for (std::int64_t round = 0; round < nRounds; ++round) {
    step(a), step(b), step(c), step(d), step(e), step(f);
    step(g), step(h), step(i), step(j), step(k), step(l);
  }
  for (const Sum& sum : {a, b, c, d, e, f, g, h, i, j, k, l}) asm volatile("" : : "v"(sum));
  return nRounds * 12 * Step::kMultiplyAdds;
}

}  // namespace
}  // namespace longhand::kernels
