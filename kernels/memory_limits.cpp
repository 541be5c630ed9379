#include "kernels/memory_limits.h"

#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <string>

namespace longhand::kernels {
namespace {

namespace fs = std::filesystem;

/// How the two versions name the same things.
struct CgroupNames {
  const char* limit;
  const char* usage;
  const char* inactiveFile;
  const char* activeFile;
};
constexpr CgroupNames kVersion1 = {"memory.limit_in_bytes", "memory.usage_in_bytes",
                                   "total_inactive_file", "total_active_file"};
constexpr CgroupNames kVersion2 = {"memory.max", "memory.current", "inactive_file", "active_file"};

/// Nothing for "max" and for files that cannot be read.
std::optional<std::uint64_t> readNumber(const fs::path& path) {
  std::ifstream file(path);
  std::uint64_t number = 0;
  if (!(file >> number)) return {};
  return number;
}

std::uint64_t cachedFileBytes(const fs::path& folder, const CgroupNames& names) {
  std::ifstream file(folder / "memory.stat");
  std::uint64_t sum = 0;
  std::string key;
  std::uint64_t bytes = 0;
  while (file >> key >> bytes) {
    if (key == names.inactiveFile || key == names.activeFile) sum += bytes;
  }
  return sum;
}

void tighten(MemoryLimit& limit, const fs::path& folder, const CgroupNames& names) {
  constexpr std::uint64_t kNoLimit = std::uint64_t{1} << 62U;  // version 1 writes 2^63 - 4096
  const auto most = readNumber(folder / names.limit);
  const auto usage = readNumber(folder / names.usage);
  if (!most || !usage || *most >= kNoLimit) return;
  const std::uint64_t used = *usage - std::min(*usage, cachedFileBytes(folder, names));
  limit.totalBytes = std::min(limit.totalBytes, *most);
  limit.freeBytes = std::min(limit.freeBytes, *most - std::min(*most, used));
}

/// The group and its parents. In a container the path may be one of the host's, which is not to be
/// seen; the root is the container's own group then.
void tightenAll(MemoryLimit& limit, const fs::path& root, const std::string& group,
                const CgroupNames& names) {
  fs::path relative = fs::path(group).relative_path().lexically_normal();
  while (!relative.empty() && relative != "." && *relative.begin() != "..") {
    tighten(limit, root / relative, names);
    relative = relative.parent_path();
  }
  tighten(limit, root, names);
}

bool namesMemory(const std::string& controllers) {
  return ("," + controllers + ",").find(",memory,") != std::string::npos;
}

}  // namespace

MemoryLimit cgroupMemoryLimit(const fs::path& procSelfCgroup, const fs::path& cgroupRoot) {
  MemoryLimit limit;
  std::ifstream file(procSelfCgroup);
  std::string line;  // "4:memory:/user.slice" or "0::/user.slice"
  while (std::getline(file, line)) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    if (controllers.empty()) {
      tightenAll(limit, cgroupRoot, group, kVersion2);
    } else if (namesMemory(controllers)) {
      tightenAll(limit, cgroupRoot / "memory", group, kVersion1);
    }
  }
  return limit;
}

MemoryLimit addressSpaceLimit(std::uint64_t mappedBytes) {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return {};
  const std::uint64_t most = limit.rlim_cur;
  return {most, most - std::min(most, mappedBytes)};
}

}  // namespace longhand::kernels
