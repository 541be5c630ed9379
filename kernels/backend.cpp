#include "kernels/backend.h"

#include <algorithm>
#include <limits>
#include <vector>

namespace longhand::kernels {

std::int64_t Backend::topLogits(const float* logits, std::int64_t count,
                                std::span<ScoredToken> best) {
  std::vector<float> host(static_cast<std::size_t>(count));
  const void* const source = logits;
  const std::span<std::byte> bytes = std::as_writable_bytes(std::span(host));
  download(bytes.data(), static_cast<const std::byte*>(source), bytes.size());
  std::vector<ScoredToken> all;
  all.reserve(host.size());
  for (std::size_t i = 0; i < host.size(); ++i) {
    if (host[i] > -std::numeric_limits<float>::infinity()) {  // false for NaN
      all.push_back({host[i], static_cast<std::int32_t>(i)});
    }
  }
  const std::size_t nBest = std::min(all.size(), best.size());
  const auto end = all.begin() + static_cast<std::ptrdiff_t>(nBest);
  std::partial_sort(all.begin(), end, all.end(), [](const ScoredToken& a, const ScoredToken& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  });
  std::copy(all.begin(), end, best.begin());
  return static_cast<std::int64_t>(nBest);
}

}  // namespace longhand::kernels
