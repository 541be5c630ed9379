#pragma once
// A block's shared memory. Arrays named by SHARED get a place of their own with a guard gap behind
// it; DYN_SHARED memory is one area. Both are filled with kSharedPoison before each block, so that
// what is read before it was written shows. Under asan the gaps may not be touched.

#include <cstddef>
#include <string>
#include <vector>

namespace longhand::cuda_on_cpu {

class SharedMemory {
 public:
  SharedMemory() = default;
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  /// A new block: no arrays, `dynamicBytes` of dynamic memory.
  void reset(std::size_t dynamicBytes);
  /// The array that SHARED declares at `site`, the same for each thread of the block; nullptr when
  /// the block's arrays grow too large.
  void* array(const char* site, std::size_t bytes);
  void* dynamic() const { return dynamic_; }
  /// What was written outside of the arrays of the block that has ended, in words; or empty. (Under
  /// asan nothing: it has ended the process by then.)
  std::string overrun() const;
  std::size_t staticBytes() const { return staticBytes_; }

 private:
  struct Array {
    const char* site;
    unsigned char* memory;
    std::size_t bytes;
  };

  unsigned char* mapping_ = nullptr;  // [kCapacityBytes], static arrays from its start
  unsigned char* dynamicMapping_ = nullptr;
  void* dynamic_ = nullptr;
  std::size_t dynamicBytes_ = 0;
  std::vector<Array> arrays_;
  std::size_t usedBytes_ = 0;    // of mapping_, gaps included
  std::size_t staticBytes_ = 0;  // without gaps
};

}  // namespace longhand::cuda_on_cpu
