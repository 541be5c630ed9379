#include "kernels/memory_limits.h"

#include <sys/resource.h>

#include <fstream>

#include <QTemporaryDir>
#include <QTest>

#include "kernels/host_memory.h"

namespace longhand {

namespace fs = std::filesystem;
using kernels::MemoryLimit;

class MemoryLimitsTest : public QObject {
  Q_OBJECT

 private slots:
  void withoutGroupsThereIsNoLimit();
  void groupOfVersion2LimitsWithItsParents();
  void groupOfVersion1Limits();
  void groupOfAHostIsLookedForAtTheRoot();
  void cachedFilesAreFree();
  void usageAboveTheLimitLeavesNothing();
  void addressSpaceIsLimited();
};

namespace {

/// A tree that looks like /proc/self/cgroup and /sys/fs/cgroup.
struct Tree {
  QTemporaryDir folder;
  fs::path root = fs::path(folder.path().toStdString());

  void write(const char* name, const std::string& text) const {
    fs::create_directories((root / name).parent_path());
    std::ofstream(root / name) << text;
  }
  MemoryLimit limit() const { return kernels::cgroupMemoryLimit(root / "self", root / "cgroup"); }
};

}  // namespace

void MemoryLimitsTest::withoutGroupsThereIsNoLimit() {
  const Tree tree;
  QVERIFY(tree.limit() == MemoryLimit{});
  tree.write("self", "0::/\nnonsense\n3:cpu\n");
  QVERIFY(tree.limit() == MemoryLimit{});
  tree.write("cgroup/memory.max", "max\n");
  tree.write("cgroup/memory.current", "1000\n");
  QVERIFY(tree.limit() == MemoryLimit{});
}

void MemoryLimitsTest::groupOfVersion2LimitsWithItsParents() {
  const Tree tree;
  tree.write("self", "0::/user.slice/app.scope\n");
  tree.write("cgroup/user.slice/memory.max", "8000\n");
  tree.write("cgroup/user.slice/memory.current", "7500\n");
  tree.write("cgroup/user.slice/app.scope/memory.max", "5000\n");
  tree.write("cgroup/user.slice/app.scope/memory.current", "1000\n");
  QVERIFY((tree.limit() == MemoryLimit{5000, 500}));
  tree.write("cgroup/user.slice/memory.current", "2000\n");
  QVERIFY((tree.limit() == MemoryLimit{5000, 4000}));
}

void MemoryLimitsTest::groupOfVersion1Limits() {
  const Tree tree;
  tree.write("self", "5:cpu,cpuacct:/other\n4:memory:/docker/abc\n0::/\n");
  tree.write("cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  tree.write("cgroup/memory/memory.usage_in_bytes", "100\n");
  QVERIFY(tree.limit() == MemoryLimit{});
  tree.write("cgroup/memory/docker/abc/memory.limit_in_bytes", "3000\n");
  tree.write("cgroup/memory/docker/abc/memory.usage_in_bytes", "1000\n");
  QVERIFY((tree.limit() == MemoryLimit{3000, 2000}));
}

void MemoryLimitsTest::groupOfAHostIsLookedForAtTheRoot() {
  const Tree tree;
  tree.write("self", "0::/../../docker/abc\n");
  tree.write("cgroup/memory.max", "3000\n");
  tree.write("cgroup/memory.current", "1000\n");
  QVERIFY((tree.limit() == MemoryLimit{3000, 2000}));
}

void MemoryLimitsTest::cachedFilesAreFree() {
  const Tree tree;
  tree.write("self", "0::/\n");
  tree.write("cgroup/memory.max", "3000\n");
  tree.write("cgroup/memory.current", "2500\n");
  tree.write("cgroup/memory.stat", "anon 500\nfile 2000\ninactive_file 1500\nactive_file 300\n");
  QVERIFY((tree.limit() == MemoryLimit{3000, 2300}));
}

void MemoryLimitsTest::usageAboveTheLimitLeavesNothing() {
  const Tree tree;
  tree.write("self", "0::/\n");
  tree.write("cgroup/memory.max", "3000\n");
  tree.write("cgroup/memory.current", "3500\n");
  QVERIFY((tree.limit() == MemoryLimit{3000, 0}));
}

void MemoryLimitsTest::addressSpaceIsLimited() {
  QVERIFY(kernels::addressSpaceLimit(1000) == MemoryLimit{});
  rlimit before{};
  QCOMPARE(getrlimit(RLIMIT_AS, &before), 0);
  constexpr std::uint64_t kMost = std::uint64_t{1} << 50U;  // more than sanitizers map
  rlimit limited = before;
  limited.rlim_cur = kMost;
  QCOMPARE(setrlimit(RLIMIT_AS, &limited), 0);
  const MemoryLimit limit = kernels::addressSpaceLimit(1000);
  const kernels::DeviceMemoryInfo info = kernels::hostMemoryInfo();
  QCOMPARE(setrlimit(RLIMIT_AS, &before), 0);
  QVERIFY((limit == MemoryLimit{kMost, kMost - 1000}));
  QVERIFY(info.totalBytes <= kMost);
  QVERIFY(info.freeBytes <= info.totalBytes);
}

}  // namespace longhand

QTEST_APPLESS_MAIN(longhand::MemoryLimitsTest)
#include "memory_limits_test.moc"
