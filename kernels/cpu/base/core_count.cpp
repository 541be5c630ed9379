#include "kernels/cpu/base/core_count.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <thread>

namespace longhand::kernels {
namespace {

// Cores with at least one hardware thread in the affinity mask.
int coresInAffinityMask() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (sched_getaffinity(0, sizeof(mask), &mask) != 0) {  // more CPUs than the mask has room for
    return static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  }
  std::set<std::string> cores;  // named by the list of their hardware threads
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(static_cast<unsigned>(cpu), &mask)) continue;
    const std::string number = std::to_string(cpu);
    std::ifstream file("/sys/devices/system/cpu/cpu" + number + "/topology/thread_siblings_list");
    std::string siblings;
    cores.insert(file >> siblings ? siblings : number);
  }
  return static_cast<int>(cores.size());
}

std::optional<double> quotaV2(const std::filesystem::path& group) {
  std::ifstream file(group / "cpu.max");
  std::string quota;
  double periodMicroseconds = 0;
  if (!(file >> quota >> periodMicroseconds) || quota == "max" || periodMicroseconds <= 0)
    return {};
  return std::atof(quota.c_str()) / periodMicroseconds;
}

std::optional<double> quotaV1(const std::filesystem::path& group) {
  std::ifstream quotaFile(group / "cpu.cfs_quota_us");
  std::ifstream periodFile(group / "cpu.cfs_period_us");
  double quotaMicroseconds = 0;
  double periodMicroseconds = 0;
  if (!(quotaFile >> quotaMicroseconds) || !(periodFile >> periodMicroseconds)) return {};
  if (quotaMicroseconds <= 0 || periodMicroseconds <= 0) return {};
  return quotaMicroseconds / periodMicroseconds;
}

// CPUs that the tightest quota on the way from this process's cgroup up to the root allows. A
// container sees its own group as the root of the mount, so the root is asked too.
double cpusByQuota() {
  const std::filesystem::path mount = "/sys/fs/cgroup";
  double cpus = std::numeric_limits<double>::infinity();
  if (const auto quota = quotaV1(mount / "cpu")) cpus = std::min(cpus, *quota);
  std::string path = "/";
  std::ifstream memberships("/proc/self/cgroup");
  for (std::string line; std::getline(memberships, line);) {
    if (line.starts_with("0::/")) path = line.substr(3);
  }
  while (true) {
    if (const auto quota = quotaV2(mount / path.substr(1))) cpus = std::min(cpus, *quota);
    if (path == "/") break;
    path.erase(std::max<std::size_t>(1, path.rfind('/')));
  }
  return cpus;
}

}  // namespace

int usableCoreCount() {
  const int cores = std::max(1, coresInAffinityMask());
  const double quota = cpusByQuota();
  if (quota >= cores) return cores;
  return std::max(1, static_cast<int>(std::ceil(quota)));
}

}  // namespace longhand::kernels
