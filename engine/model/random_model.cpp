// makeRandomModel: weights of a shape without files, for benchmarks and tests of memory.

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "engine/model/loaded_model.h"
#include "engine/model/model.h"
#include "engine/model/parallel_load.h"
#include "engine/model/weight_format.h"
#include "engine/model/weight_specs.h"
#include "kernels/half.h"
#include "kernels/nf4.h"

namespace longhand::engine {
namespace {

using kernels::DataType;
using kernels::WeightView;

constexpr float kStandardDeviation = 0.02F;  // initializer_range of Llama's training
constexpr std::int64_t kChunkBytes = 1 << 20;

/// SplitMix64 (Steele, Lea, Flood 2014): one state for each chunk, so that the numbers do not
/// depend on the threads.
class Random {
 public:
  Random(std::uint64_t seed, std::uint64_t weight, std::uint64_t chunk)
      : state_(seed + weight * 0xd1342543de82ef95U + chunk * 0x2545f4914f6cdd1dU) {
    next();
  }
  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15U;
    z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31U);
  }

 private:
  std::uint64_t state_;
};

/// A value for each random byte: as fast as copying.
std::array<float, 256> normalTable() {
  std::array<float, 256> table{};
  // Quantiles of the logistic distribution, the normal one's likeness in closed form. Its standard
  // deviation is pi / sqrt(3); cutting the tails at 1/512 takes 0.6 % off.
  constexpr float kLogisticDeviation = 1.8138F * 0.994F;
  for (std::size_t i = 0; i < table.size(); ++i) {
    const float p = (static_cast<float>(i) + 0.5F) / 256.0F;
    table[i] = kStandardDeviation * std::log(p / (1.0F - p)) / kLogisticDeviation;
  }
  return table;
}

/// Writes `count` values of a plain type (`wordBytes` of each entry of `words`).
void fillPlain(Random random, const std::array<std::uint32_t, 256>& words, std::size_t wordBytes,
               std::byte* at, std::int64_t count) {
  std::uint64_t bits = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    if (i % 8 == 0) bits = random.next();
    const std::uint32_t word = words[bits & 0xffU];
    bits >>= 8U;
    std::memcpy(at, &word, wordBytes);  // little-endian: the low bytes
    at += wordBytes;
  }
}

void fillBytes(Random random, std::byte* at, std::int64_t count) {
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const std::uint64_t bits = random.next();
    std::memcpy(at + i, &bits, sizeof bits);
  }
  const std::uint64_t bits = random.next();
  std::memcpy(at + i, &bits, static_cast<std::size_t>(count - i));
}

class RandomWeights {
 public:
  RandomWeights(std::uint64_t seed, LoadedModel& model, std::stop_token stop)
      : seed_(seed), model_(model), runner_(0, noProgress_, std::move(stop)) {}

  /// The bytes of `original`, in a format of `target`, in memory of their own.
  WeightView repeat(const WeightView& original, const WeightTarget& target) {
    const WeightLayout layout = weightLayout(target, original.rows, original.cols);
    std::byte* const memory = model_.allocate(layout.totalBytes);
    model_.backend().copy(memory, original.data, layout.totalBytes);
    WeightView view = viewOf(target, original.rows, original.cols, memory);
    view.codebook = original.codebook;
    view.nestedCodebook = original.nestedCodebook;
    view.nestedOffset = original.nestedOffset;
    return view;
  }

  WeightView make(const WeightSpec& spec, const WeightTarget& target) {
    ++weight_;
    const WeightLayout layout = weightLayout(target, spec.rows, spec.cols);
    std::byte* memory = model_.allocate(layout.totalBytes);
    const bool isHost = model_.backend().usesHostMemory();
    std::vector<std::byte> staging(isHost ? 0 : layout.totalBytes);
    std::byte* host = isHost ? memory : staging.data();
    WeightView view = viewOf(target, spec.rows, spec.cols, memory);
    if (spec.role == WeightRole::kNorm) {
      fillOnes(host, spec.cols);
    } else if (target.type == DataType::kInt8) {
      fillInt8(layout, host);
    } else if (target.type == DataType::kNf4) {
      fillNf4(target, layout, host, view);
    } else {
      fillNumbers(target.type, host, spec.rows * spec.cols);
    }
    if (!isHost) model_.upload(memory, staging);
    return view;
  }

 private:
  static void fillOnes(std::byte* at, std::int64_t count) {
    const std::vector<float> ones(static_cast<std::size_t>(count), 1.0F);
    std::memcpy(at, ones.data(), ones.size() * sizeof(float));
  }

  void fillNumbers(DataType type, std::byte* at, std::int64_t count) {
    std::array<std::uint32_t, 256> words{};
    for (std::size_t i = 0; i < words.size(); ++i) {
      words[i] = type == DataType::kF32   ? std::bit_cast<std::uint32_t>(normal_[i])
                 : type == DataType::kF16 ? kernels::floatToHalf(normal_[i])
                                          : kernels::floatToBfloat(normal_[i]);
    }
    const std::size_t wordBytes = kernels::bytesOf(type, 1);
    forChunks(count, kChunkBytes / static_cast<std::int64_t>(wordBytes),
              [&](const Random& random, std::int64_t first, std::int64_t n) {
                fillPlain(random, words, wordBytes, at + kernels::bytesOf(type, first), n);
              });
  }

  /// Codes are uniform, so their root mean square is 256 / sqrt(12).
  void fillInt8(const WeightLayout& layout, std::byte* at) {
    constexpr float kScale = kStandardDeviation / 73.9F;
    forChunks(static_cast<std::int64_t>(layout.dataBytes), kChunkBytes,
              [&](const Random& random, std::int64_t first, std::int64_t n) {
                fillBytes(random, at + first, n);
                // Codes are symmetric: -128 does not occur (kernels/int8_weights.h).
                std::replace(at + first, at + first + n, std::byte{0x80}, std::byte{0x81});
              });
    const std::vector<float> scales(static_cast<std::size_t>(layout.nBlocks), kScale);
    std::memcpy(at + layout.absmaxOffset, scales.data(), scales.size() * sizeof(float));
  }

  /// Codes are uniform: their root mean square is that of the codebook, 0.517, so this absmax
  /// gives the same deviation as the plain formats.
  void fillNf4(const WeightTarget& target, const WeightLayout& layout, std::byte* at,
               WeightView& view) {
    constexpr float kAbsmax = kStandardDeviation / 0.517F;
    constexpr float kNestedAbsmax = 0.25F * kAbsmax;
    forChunks(static_cast<std::int64_t>(layout.dataBytes), kChunkBytes,
              [&](const Random& random, std::int64_t first, std::int64_t n) {
                fillBytes(random, at + first, n);
              });
    view.codebook = model_.table(kernels::kNf4Codebook);
    if (!target.doubleQuantization) {
      std::vector<float> absmax(static_cast<std::size_t>(layout.nBlocks));
      Random random(seed_, weight_, kAbsmaxChunk);
      for (float& value : absmax) {
        const auto part = static_cast<float>(random.next() >> 40U) * 0x1p-24F;  // [0, 1)
        value = kAbsmax * (0.75F + 0.5F * part);
      }
      std::memcpy(at + layout.absmaxOffset, absmax.data(), absmax.size() * sizeof(float));
      return;
    }
    fillBytes(Random(seed_, weight_, kAbsmaxChunk), at + layout.absmaxOffset, layout.nBlocks);
    const std::vector<float> nested(static_cast<std::size_t>(layout.nNestedBlocks), kNestedAbsmax);
    std::memcpy(at + layout.nestedOffset, nested.data(), nested.size() * sizeof(float));
    view.nestedCodebook = model_.table(kernels::dynamicCodebook());
    view.nestedOffset = kAbsmax;
  }

  template <typename Fill>
  void forChunks(std::int64_t count, std::int64_t step, const Fill& fill) {
    runner_.run((count + step - 1) / step, 0, [&](std::int64_t chunk) {
      const std::int64_t first = chunk * step;
      fill(Random(seed_, weight_, static_cast<std::uint64_t>(chunk)), first,
           std::min(step, count - first));
    });
  }

  static constexpr std::uint64_t kAbsmaxChunk = 1U << 30U;  // behind all chunks of codes

  std::uint64_t seed_;
  std::uint64_t weight_ = 0;
  LoadedModel& model_;
  LoadProgress noProgress_;
  ChunkRunner runner_;
  std::array<float, 256> normal_ = normalTable();
};

std::unique_ptr<Model> makeModel(const ModelConfig& config, WeightFormat format, std::uint64_t seed,
                                 bool repeatsLayers, kernels::Backend& backend,
                                 MemoryLedger& ledger, std::stop_token stop) {
  if (format == WeightFormat::kAuto) {
    format = autoQuantizes(config) ? WeightFormat::kNf4 : WeightFormat::kF16;
  }
  auto model = std::make_unique<LoadedModel>(config, backend, ledger);
  const auto targetOfSpec = [&](const WeightSpec& spec) {
    return chooseTarget(format, spec, {DataType::kF32});
  };
  std::vector<std::uint64_t> sizes;
  for (const WeightSpec& spec : weightSpecs(config)) {
    sizes.push_back(weightLayout(targetOfSpec(spec), spec.rows, spec.cols).totalBytes);
  }
  model->checkRoom(std::accumulate(sizes.begin(), sizes.end(), std::uint64_t{0}));
  model->reserve(sizes);
  RandomWeights weights(seed, *model, std::move(stop));
  for (const WeightSpec& spec : weightSpecs(config)) {
    const WeightTarget target = targetOfSpec(spec);
    const bool isRepeated = repeatsLayers && spec.matrix != nullptr && spec.layer > 0;
    model->place(spec, isRepeated ? weights.repeat(model->layers().front().*spec.matrix, target)
                                  : weights.make(spec, target));
  }
  model->finish(format, seed);
  return model;
}

}  // namespace

std::unique_ptr<Model> makeRandomModel(const ModelConfig& config, WeightFormat format,
                                       std::uint64_t seed, kernels::Backend& backend,
                                       MemoryLedger& ledger, std::stop_token stop) {
  return makeModel(config, format, seed, false, backend, ledger, std::move(stop));
}

std::unique_ptr<Model> makeRepeatedModel(const ModelConfig& config, WeightFormat format,
                                         std::uint64_t seed, kernels::Backend& backend,
                                         MemoryLedger& ledger, std::stop_token stop) {
  return makeModel(config, format, seed, true, backend, ledger, std::move(stop));
}

}  // namespace longhand::engine
