#pragma once
// `longhand-cli selftest`: whether a backend computes rightly, and how fast it is.
//
// Part a: every operation against the slow twin. Part b: each stage of a token alone, against what
// the device copies and multiplies at best in the same run. Part c: a whole model of random weights
// behind caches of random tokens, and the memory it takes. Beside each row stands what was
// predicted for it from the rates of the same run.
//
// It measures as it goes and keeps within a budget of time: what does not fit any more is left out
// and said. Nothing here needs a tokenizer.

#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <stop_token>
#include <string>
#include <vector>

#include "engine/cli/cards.h"
#include "engine/model/model_config.h"
#include "kernels/backend.h"
#include "kernels/checks/kernel_checks.h"

namespace longhand::engine::cli {

struct SelftestOptions {
  ModelConfig model;
  std::string parts = "abc";
  std::vector<std::int64_t> depths = {0, 4096, 32768, 100000};  // tokens in the cache, ascending
  std::int64_t prefillTokens = 2048;
  double budgetSeconds = 330.0;
  double secondsEach = 0.3;  // of one measurement
  kernels::checks::CheckExtent extent = kernels::checks::CheckExtent::kFull;
  /// What a measurement of memory goes through: more than any cache of the device holds.
  std::uint64_t workingSetBytes = std::uint64_t{768} << 20U;
  std::filesystem::path jsonFile;  // empty: none. Whole and valid after every row.
};

/// A small shape for trying the program itself: "tiny". Others as shapeConfig().
ModelConfig selftestShape(const std::string& name);

/// Writes the table to `table` and what it is doing to `progress`. False when a kernel is wrong or
/// the device failed. Throws Error: kFileUnwritable, kCancelled.
bool runSelftest(kernels::Backend& backend, const SelftestOptions& options, std::ostream& table,
                 std::ostream& progress, const std::stop_token& stop);

/// What the parts b and c should give on a card that is not here, and which of them its memory has
/// no room for; the same rows, with the model of engine/cli/selftest/prediction.h. Throws Error
/// kFileUnwritable.
void predictSelftest(const Card& card, const SelftestOptions& options, std::ostream& table);

}  // namespace longhand::engine::cli
