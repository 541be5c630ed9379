#pragma once
// Graphics cards that forecasts are made for where there is none: what their data sheets say.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace longhand::engine::cli {

struct Card {
  std::string_view name;   // as options spell it: "rtx-3060"
  std::string_view title;  // "NVIDIA GeForce RTX 3060"
  int computeMajor = 0;
  int nMultiprocessors = 0;
  double clockHz = 0.0;  // boost, which is what cudaDevAttrClockRate reports
  double bytesPerSecond = 0.0;
  /// Dense products of halves with sums in float.
  double halfOperationsPerSecond = 0.0;
  /// Of that, the best product that runs: a power limit, and no instruction but wgmma, hold an
  /// H200 back. Published cuBLAS figures; an assumption until a self-test has measured it.
  double bestHalfShare = 0.0;
  /// As cudaMemGetInfo reports the total, ECC and the driver's own part taken off.
  std::uint64_t memoryBytes = 0;
  /// What a process's context takes: an estimate.
  std::uint64_t contextBytes = 0;

  /// The backend's own memory on it.
  std::uint64_t backendBytes() const;
  /// What is left for a model, its cache and its scratch, the backend's own included; some stays
  /// with the driver.
  std::uint64_t usableBytes() const;
};

std::span<const Card> allCards();
/// Throws Error kInvalidArgument that names those there are.
const Card& cardByName(std::string_view name);
/// For options, and "rtx-3060, rtx-3090, ..." for help.
std::vector<std::string> cardNameList();
std::string cardNames();

}  // namespace longhand::engine::cli
