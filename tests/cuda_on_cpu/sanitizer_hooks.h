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
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
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
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  }
  LONGHAND_NO_TSAN ~BookkeepingScope() {
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
  }
  BookkeepingScope(const BookkeepingScope&) = delete;
  BookkeepingScope& operator=(const BookkeepingScope&) = delete;
};
LONGHAND_NO_TSAN inline void releaseOrder(void* address) { __tsan_release(address); }
LONGHAND_NO_TSAN inline void acquireOrder(void* address) { __tsan_acquire(address); }
#else
struct BookkeepingScope {
  BookkeepingScope() {}
};
inline void releaseOrder(void* /*address*/) {}
inline void acquireOrder(void* /*address*/) {}
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
