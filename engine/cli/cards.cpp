#include "engine/cli/cards.h"

#include <algorithm>
#include <array>

#include "engine/base/error.h"
#include "kernels/cuda/device/own_memory.h"

namespace longhand::engine::cli {
namespace {

constexpr std::uint64_t gib(double value) { return static_cast<std::uint64_t>(value * 0x1p30); }

// Bandwidth, clocks and tensor rates: NVIDIA's GA102 and AD102 white papers and data sheet of the
// H200 (SXM). Memory: what these cards report to programs.
constexpr std::array kCards = {
    Card{"rtx-3060", "NVIDIA GeForce RTX 3060", 8, 28, 1.777e9, 360e9, 25.5e12, 0.95, gib(11.76),
         gib(0.4)},
    Card{"rtx-3090", "NVIDIA GeForce RTX 3090", 8, 82, 1.695e9, 936e9, 71e12, 0.95, gib(23.69),
         gib(0.4)},
    Card{"rtx-4090", "NVIDIA GeForce RTX 4090", 8, 128, 2.52e9, 1008e9, 165.2e12, 0.95, gib(23.65),
         gib(0.4)},
    Card{"h200", "NVIDIA H200", 9, 132, 1.98e9, 4800e9, 989e12, 0.72, gib(139.8), gib(0.6)}};

}  // namespace

std::uint64_t Card::backendBytes() const {
  return kernels::cuda::plannedDeviceBytes(nMultiprocessors, computeMajor);
}

std::uint64_t Card::usableBytes() const {
  return memoryBytes - contextBytes - kernels::cuda::kDriverBytes;
}

std::span<const Card> allCards() { return kCards; }

const Card& cardByName(std::string_view name) {
  const auto found = std::ranges::find(kCards, name, &Card::name);
  if (found != kCards.end()) return *found;
  throw Error(ErrorCode::kInvalidArgument, "There are no figures of \"" + std::string(name) + "\".",
              "Choose one of " + cardNames() + ".");
}

std::vector<std::string> cardNameList() {
  std::vector<std::string> names;
  names.reserve(kCards.size());
  for (const Card& card : kCards) names.emplace_back(card.name);
  return names;
}

std::string cardNames() {
  std::string names;
  for (const std::string& name : cardNameList()) names += (names.empty() ? "" : ", ") + name;
  return names;
}

}  // namespace longhand::engine::cli
