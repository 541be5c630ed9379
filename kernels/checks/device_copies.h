#pragma once
// Host memory in the memory of a backend, for comparing a device with the slow twin.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/backend.h"
#include "kernels/checks/kv_scene.h"
#include "kernels/checks/test_matrix.h"

namespace longhand::kernels::checks {

/// Copies that are freed together. Where the backend uses host memory there is nothing to copy:
/// addresses are then those of the originals, which must outlive this. The backend must outlive it,
/// too. Throws std::bad_alloc when the device has no room.
class DeviceCopies {
 public:
  explicit DeviceCopies(Backend& backend) : backend_(backend) {}
  DeviceCopies(const DeviceCopies&) = delete;
  DeviceCopies& operator=(const DeviceCopies&) = delete;
  ~DeviceCopies();

  Backend& backend() const { return backend_; }

  /// `bytes` > 0. The copy is as many bytes behind a 64-byte line as the original.
  std::byte* copy(std::byte* host, std::size_t bytes);
  const std::byte* copy(const std::byte* host, std::size_t bytes) {
    return copy(const_cast<std::byte*>(host), bytes);  // host memory is never written
  }
  const float* copy(const float* host, std::size_t count);
  /// Brings all that was copied back to where it came from.
  void fetch(std::byte* host);

  MatrixView copy(TestMatrix& matrix);
  /// Brings a copied matrix back, with what lies between its rows.
  void fetch(TestMatrix& matrix);
  WeightView copy(const WeightView& weight);
  ExactSpan copy(const AttentionShape& shape, const ExactSpan& span);
  void fetch(const ExactSpan& span);
  PageRef copy(const AttentionShape& shape, const PageRef& page);

 private:
  struct Copy {
    std::byte* host;
    std::byte* memory;  // on the device
    std::size_t offset;
    std::size_t bytes;
  };

  Backend& backend_;
  std::vector<Copy> copies_;
};

/// A scene's history and chunk on the device. Both must outlive it.
class DeviceScene {
 public:
  DeviceScene(DeviceCopies& copies, const KvScene& scene);
  KvView history() const { return {pages_, nPages_, nPagedTokens_, spans_}; }
  const ExactSpan& chunk() const { return chunk_; }

 private:
  std::vector<PageRef> table_;  // pages with addresses of the device
  const PageRef* pages_ = nullptr;
  std::int64_t nPages_ = 0;
  std::int64_t nPagedTokens_ = 0;
  std::vector<ExactSpan> spans_;
  ExactSpan chunk_;
};

}  // namespace longhand::kernels::checks
