#include "kernels/cpu/base/cache_size.h"

#include <sched.h>

#include <fstream>
#include <set>
#include <string>

namespace longhand::kernels {
namespace {

/// A file of one cache of a CPU; empty where there is none. Level 3 is index 3, as each core has
/// two caches of the first level.
std::string cacheFile(int cpu, int index, const char* name) {
  std::ifstream file("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/cache/index" +
                     std::to_string(index) + "/" + name);
  std::string text;
  file >> text;
  return text;
}

/// Of "32768K" or "32M".
std::int64_t bytesOfSize(const std::string& size) {
  if (size.empty()) return 0;
  const std::int64_t number = std::atoll(size.c_str());
  if (size.back() == 'K') return number << 10;
  if (size.back() == 'M') return number << 20;
  return number;
}

}  // namespace

std::int64_t lastLevelCacheBytes() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (sched_getaffinity(0, sizeof(mask), &mask) != 0) return 0;
  std::int64_t bytes = 0;
  std::set<std::string> seen;  // caches, named by the CPUs that share them
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(static_cast<unsigned>(cpu), &mask)) continue;
    for (const int index : {3, 2}) {
      const std::string size = cacheFile(cpu, index, "size");
      if (size.empty()) continue;
      if (seen.insert(cacheFile(cpu, index, "shared_cpu_list")).second) bytes += bytesOfSize(size);
      break;
    }
  }
  return bytes;
}

}  // namespace longhand::kernels
