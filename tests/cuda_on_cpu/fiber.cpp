#include "tests/cuda_on_cpu/fiber.h"

#include <pthread.h>
#include <sys/mman.h>

#include <cstdint>
#include <new>

#include "tests/cuda_on_cpu/sanitizer_hooks.h"

namespace longhand::cuda_on_cpu {
namespace {

constexpr std::size_t kGuardBytes = 4096;

#if defined(__x86_64__)
// Saves what the System V ABI says a call must keep, swaps the stacks, and restores.
__attribute__((naked, noinline)) void switchStacks(void** /*save*/, void* /*load*/) {
  asm volatile(
      "pushq %rbp\n pushq %rbx\n pushq %r12\n pushq %r13\n pushq %r14\n pushq %r15\n"
      "movq %rsp, (%rdi)\n movq %rsi, %rsp\n"
      "popq %r15\n popq %r14\n popq %r13\n popq %r12\n popq %rbx\n popq %rbp\n retq\n");
}
#endif

}  // namespace

void mapStack(Fiber& fiber, std::size_t stackBytes) {
  void* const memory = mmap(nullptr, stackBytes + kGuardBytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  mprotect(memory, kGuardBytes, PROT_NONE);
  fiber.mapping = static_cast<char*>(memory);
  fiber.stackBottom = fiber.mapping + kGuardBytes;
  fiber.stackBytes = stackBytes;
}

void releaseFiber(Fiber& fiber) noexcept {
#ifdef LONGHAND_EMULATION_TSAN
  if (fiber.tsanFiber != nullptr) __tsan_destroy_fiber(fiber.tsanFiber);
  fiber.tsanFiber = nullptr;
#endif
  if (fiber.mapping != nullptr) munmap(fiber.mapping, fiber.stackBytes + kGuardBytes);
  fiber.mapping = nullptr;
}

LONGHAND_NO_TSAN void prepareFiber(Fiber& fiber, void (*entry)()) {
  allowAccess(fiber.stackBottom, fiber.stackBytes);
#if defined(__x86_64__)
  constexpr int kSavedRegisters = 6;
  char* const top = fiber.mapping + kGuardBytes + fiber.stackBytes;
  auto* slot = static_cast<std::uint64_t*>(static_cast<void*>(top));  // page-aligned
  *--slot = 0;  // the return address of entry: there is none
  *--slot = reinterpret_cast<std::uint64_t>(entry);
  for (int i = 0; i < kSavedRegisters; ++i) *--slot = 0;
  fiber.stackPointer = slot;
#else
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = fiber.mapping + kGuardBytes;
  fiber.context.uc_stack.ss_size = fiber.stackBytes;
  fiber.context.uc_link = nullptr;
  makecontext(&fiber.context, entry, 0);
#endif
#ifdef LONGHAND_EMULATION_TSAN
  if (fiber.tsanFiber == nullptr) fiber.tsanFiber = __tsan_create_fiber(0);
#endif
}

LONGHAND_NO_TSAN void switchFiber(Fiber& from, Fiber& to, [[maybe_unused]] bool fromIsDone) {
#ifdef LONGHAND_EMULATION_TSAN
  __tsan_switch_to_fiber(to.tsanFiber, __tsan_switch_to_fiber_no_sync);
#endif
#ifdef LONGHAND_EMULATION_ASAN
  __sanitizer_start_switch_fiber(fromIsDone ? nullptr : &from.asanFakeStack, to.stackBottom,
                                 to.stackBytes);
#endif
#if defined(__x86_64__)
  switchStacks(&from.stackPointer, to.stackPointer);
#else
  swapcontext(&from.context, &to.context);
#endif
#ifdef LONGHAND_EMULATION_ASAN
  __sanitizer_finish_switch_fiber(from.asanFakeStack, nullptr, nullptr);
#endif
}

LONGHAND_NO_TSAN void finishFirstSwitch() {
#ifdef LONGHAND_EMULATION_ASAN
  __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
#endif
}

LONGHAND_NO_TSAN void describeOsThread([[maybe_unused]] Fiber& fiber) {
#ifdef LONGHAND_EMULATION_TSAN
  fiber.tsanFiber = __tsan_get_current_fiber();
#endif
#ifdef LONGHAND_EMULATION_ASAN
  if (fiber.stackBottom != nullptr) return;  // glibc reads /proc/self/maps for the main thread's
  pthread_attr_t attributes;
  void* bottom = nullptr;
  pthread_getattr_np(pthread_self(), &attributes);
  pthread_attr_getstack(&attributes, &bottom, &fiber.stackBytes);
  pthread_attr_destroy(&attributes);
  fiber.stackBottom = bottom;
#endif
}

}  // namespace longhand::cuda_on_cpu
