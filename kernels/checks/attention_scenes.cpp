#include "kernels/checks/attention_scenes.h"

#include <string>

#include "kernels/checks/attention_check.h"

namespace longhand::kernels::checks {
namespace {

/// A problem begins with the sizes it was met at.
CheckResult named(const std::string& sizes, CheckResult result) {
  if (!result.isGood()) result.problem = sizes + ": " + result.problem;
  return result;
}

}  // namespace

SceneCheck sceneCheck(Backend& backend) {
  return [&backend](KvScene& scene, std::int64_t nRows, std::int64_t chunkOffset) {
    return checkAttention(scene, backend, nRows, chunkOffset);
  };
}

CheckResult checkHeadDims(const SceneCheck& check, SweepSteps steps) {
  CheckResult all;
  for (std::int64_t headDim = 8; headDim <= 256;
       headDim += headDim < 72 ? steps.small : steps.large) {
    for (const int nbits : {8, 4, 2}) {
      for (const std::int64_t nRows : {1, 20}) {
        KvScene scene({2, 1, headDim}, 77);
        scene.addPage(pageFormat(nbits, nbits, 32), 32);
        scene.addSpan(DataType::kF16, 5, 6);
        scene.addSpan(DataType::kF32, 3, 9);
        scene.setChunk(DataType::kF16, nRows, nRows + 2);
        all.add(named(std::to_string(nbits) + " bits", check(scene, nRows, 0)));
      }
    }
  }
  return all;
}

CheckResult checkQueryCounts(const SceneCheck& check, SweepSteps steps) {
  CheckResult all;
  for (const std::int64_t queriesPerKvHead : {1, 2, 3, 5, 8}) {
    for (std::int64_t nRows = 1; nRows <= 140; nRows += nRows < 20 ? steps.small : steps.large) {
      KvScene scene({2 * queriesPerKvHead, 2, 24}, 3);
      scene.addPage(pageFormat(4, 2, 32), 32);
      scene.addSpan(DataType::kF16, 4, 4);
      const std::int64_t offset = nRows % 3 * 5;
      scene.setChunk(nRows % 2 == 0 ? DataType::kF16 : DataType::kF32, offset + nRows + 2,
                     offset + nRows + 5);
      all.add(named("offset " + std::to_string(offset), check(scene, nRows, offset)));
    }
  }
  return all;
}

CheckResult checkValidTokenCounts(const SceneCheck& check, SweepSteps steps) {
  CheckResult all;
  for (int nTokens = 1; nTokens <= 128; nTokens += nTokens < 70 ? steps.small : steps.large) {
    for (const int nbits : {16, 8, 4, 2}) {
      for (const std::int64_t nRows : {1, 9}) {
        KvScene scene({1, 1, 20}, 19);
        const int groupSize = nTokens <= 32 ? 32 : nTokens <= 64 ? 64 : 128;
        scene.addPage(pageFormat(nbits, nbits, groupSize), nTokens);
        scene.addSpan(DataType::kF16, nTokens, nTokens + 1);
        scene.setChunk(DataType::kF16, nRows, nRows);
        all.add(named(std::to_string(nTokens) + " tokens, " + std::to_string(nbits) + " bits",
                      check(scene, nRows, 0)));
      }
    }
  }
  return all;
}

CheckResult checkMixedHistory(const SceneCheck& check, const MixedHistory& history) {
  constexpr std::int64_t kOffset = 70;
  constexpr int kNbits[] = {16, 8, 4, 2};
  KvScene scene({4, 2, history.headDim}, 23);
  scene.addSpan(DataType::kF16, 4, 4);
  for (int i = 0; i < history.nPages; ++i) {
    const int groupSize = 32 << (i % 3);
    const auto scheme = i % 5 == 0 ? QuantScheme::kSymmetric : QuantScheme::kAsymmetric;
    scene.addPage(pageFormat(kNbits[i % 4], kNbits[i / 4 % 4], groupSize, scheme),
                  i % 7 == 0 ? groupSize - i % 31 : groupSize);
  }
  scene.addSpan(DataType::kF32, 0, 4);
  scene.addSpan(DataType::kF16, 150, 200);
  scene.setChunk(history.chunkType, history.nRows + kOffset, history.nRows + kOffset + 10);
  return check(scene, history.nRows, kOffset);
}

}  // namespace longhand::kernels::checks
