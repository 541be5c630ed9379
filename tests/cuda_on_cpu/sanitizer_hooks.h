#pragma once
// Tells ThreadSanitizer and AddressSanitizer about fibers. Without a sanitizer all of it is empty.
//
// ThreadSanitizer: each CUDA thread is one of its fibers; switching does not order two fibers, only
// the release/acquire pairs of barriers and collectives do. The engine's own bookkeeping is shared
// by all fibers of an OS thread and would be reported, so it runs inside a BookkeepingScope.

#include <cstddef>

#if defined(__SANITIZE_THREAD__)
#define LONGHAND_EMULATION_TSAN 1
#include <sanitizer/tsan_interface.h>
extern "C" {
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void __tsan_read_range(void* address, unsigned long bytes);  // what the compiler calls
}
#endif
#if defined(__SANITIZE_ADDRESS__)
#define LONGHAND_EMULATION_ASAN 1
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#define LONGHAND_NO_TSAN __attribute__((no_sanitize("thread")))

namespace longhand::cuda_on_cpu {

#ifdef LONGHAND_EMULATION_TSAN
struct BookkeepingScope {
  LONGHAND_NO_TSAN BookkeepingScope() {
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);  // and writes, in ThreadSanitizer
  }
  LONGHAND_NO_TSAN ~BookkeepingScope() { AnnotateIgnoreReadsEnd(__FILE__, __LINE__); }
  BookkeepingScope(const BookkeepingScope&) = delete;
  BookkeepingScope& operator=(const BookkeepingScope&) = delete;
};
LONGHAND_NO_TSAN inline void releaseOrder(void* address) { __tsan_release(address); }
LONGHAND_NO_TSAN inline void acquireOrder(void* address) { __tsan_acquire(address); }
/// The running thread reads this, through code that tsan does not look at.
LONGHAND_NO_TSAN inline void noteRead(const void* address, std::size_t bytes) {
  __tsan_read_range(const_cast<void*>(address), bytes);
}
#else
struct BookkeepingScope {
  BookkeepingScope() {}
};
inline void releaseOrder(void* /*address*/) {}
inline void acquireOrder(void* /*address*/) {}
inline void noteRead(const void* /*address*/, std::size_t /*bytes*/) {}
#endif

#ifdef LONGHAND_EMULATION_ASAN
inline void forbidAccess(const void* address, std::size_t bytes) {
  ASAN_POISON_MEMORY_REGION(address, bytes);
}
inline void allowAccess(const void* address, std::size_t bytes) {
  ASAN_UNPOISON_MEMORY_REGION(address, bytes);
}
#else
inline void forbidAccess(const void* /*address*/, std::size_t /*bytes*/) {}
inline void allowAccess(const void* /*address*/, std::size_t /*bytes*/) {}
#endif

}  // namespace longhand::cuda_on_cpu
