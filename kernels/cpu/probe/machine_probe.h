#pragma once
// Measures what this machine can do at best: reading memory, and multiply-adds of each kind. The
// loops are those of a kernel that has nothing else to do (roofline model, Williams et al. 2009).

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/base/cpu_path.h"
#include "kernels/cpu/base/thread_pool.h"
#include "kernels/machine_rates.h"

namespace longhand::kernels {

/// The loops of one instruction set. A multiply-add loop of a kind that it lacks is nullptr.
struct ProbeKernels {
  /// Reads every byte and returns something that depends on all of them.
  std::uint64_t (*readAll)(const std::byte* memory, std::size_t bytes);  // multiple of 4 KiB
  /// `nRounds` rounds of independent multiply-adds; returns how many
  /// multiply-adds that were.
  std::int64_t (*multiplyAddFloats)(std::int64_t nRounds);
  std::int64_t (*multiplyAddInt8)(std::int64_t nRounds);
};

/// The loops of a path that isSupported() and is not kAuto.
const ProbeKernels& probeKernelsFor(CpuPath path);

extern const ProbeKernels kPortableProbe;
extern const ProbeKernels kAvx2Probe;        // defined on x86 only
extern const ProbeKernels kAvxVnniProbe;     // likewise
extern const ProbeKernels kAvx512Probe;      // likewise
extern const ProbeKernels kAvx512VnniProbe;  // likewise
/// Beside kAvx512VnniProbe, on machines with AVX-512 BF16.
std::int64_t multiplyAddBf16Avx512(std::int64_t nRounds);

/// The best of some passes of each loop on all threads of the pool, which takes about a third of a
/// second and for that time 256 MiB of memory. `path` isSupported() and is not kAuto. Without that
/// memory the read rate is 0.
MachineRates measureMachineRates(CpuPath path, ThreadPool& pool);

}  // namespace longhand::kernels
