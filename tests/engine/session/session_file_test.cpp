// Sessions that are saved and restored: what must be the same, and what must not be touched.
#include "engine/session/session_file.h"

#include <sys/mount.h>
#include <sys/resource.h>

#include <array>
#include <csignal>
#include <cstring>
#include <optional>

#include <QTemporaryDir>
#include <QTest>

#include "engine/cache/presets.h"
#include "engine/session/session_file_format.h"
#include "tests/engine/cache/kv_harness.h"
#include "tests/engine/device_like_backend.h"
#include "tests/engine/engine_harness.h"
#include "tests/engine/session/session_file_tools.h"

namespace longhand {

using namespace tests;  // NOLINT: a test file
using engine::Engine;
using engine::EngineOptions;
using engine::Error;
using engine::ErrorCode;

class SessionFileTest : public QObject {
  Q_OBJECT

 private slots:
  void logitsAfterRestoringAreEqualBitByBit_data();
  void logitsAfterRestoringAreEqualBitByBit();
  void bundledModelGoesOnAsIfNothingHadHappened_data();
  void bundledModelGoesOnAsIfNothingHadHappened();
  void pagesCutShortAreRestored();
  void quantizedPagesCutShortAreRestored();
  void emptySessionIsRestored();
  void oneTokenIsRestored();
  void restoringReplacesAnotherChat();
  void savingAgainReplacesTheFile();
  void infoTellsWhatTheFileHolds();
  void progressRunsToTheEnd();
  void largeFilesHaveManyBlocks();
  void memoryForOneCacheIsEnough();
  void stoppedSavingLeavesTheOldFile();
  void stoppedRestoringLeavesTheChat();
  void missingFolderIsRefused();
  void folderAsTargetIsRefused();
  void fileLimitLeavesTheOldFile();
  void fullDiskLeavesTheOldFile();
  void settingsLieWhereTheyAlwaysLay();

 private:
  std::filesystem::path file(const char* name = "chat.lhkv") const {
    return std::filesystem::path(folder_.path().toStdString()) / name;
  }
  bool hasTemporaryFiles() const {
    const std::filesystem::directory_iterator all(folder_.path().toStdString());
    return std::any_of(begin(all), end(all), [](const std::filesystem::directory_entry& entry) {
      return entry.path().extension() == engine::kSessionTemporaryEnding;
    });
  }

  QTemporaryDir folder_;
};

namespace {

template <typename Work>
Error errorOf(Work&& work) {
  try {
    work();
  } catch (const Error& error) {
    return error;
  }
  return {ErrorCode::kInternal, "nothing was thrown"};
}

bool areBitEqual(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

std::vector<std::int32_t> cachedTokens(const Engine& engine) {
  const std::span<const std::int32_t> tokens = engine.cachedTokens();
  return {tokens.begin(), tokens.end()};
}

/// What both engines say behind the cached tokens and three more, and 80 tokens later.
bool goOnAlike(Engine& a, Engine& b) {
  std::vector<std::int32_t> prompt = cachedTokens(a);
  if (prompt != cachedTokens(b)) return false;
  for (const std::int32_t id : {3, 5, 8}) prompt.push_back(id);
  if (!areBitEqual(a.nextLogits(prompt), b.nextLogits(prompt))) return false;
  engine::GenerateOptions options = greedy(80);
  options.ignoresEndOfText = true;
  if (a.generate(prompt, options, {}, {}).tokens != b.generate(prompt, options, {}, {}).tokens) {
    return false;
  }
  prompt = cachedTokens(a);
  return areBitEqual(a.nextLogits(prompt), b.nextLogits(prompt));
}

void addPresets() {
  QTest::addColumn<QString>("preset");
  for (const engine::Preset& preset : engine::builtInPresets()) {
    QTest::newRow(preset.id.c_str()) << QString::fromStdString(preset.id);
  }
}

}  // namespace

void SessionFileTest::logitsAfterRestoringAreEqualBitByBit_data() { addPresets(); }

void SessionFileTest::logitsAfterRestoringAreEqualBitByBit() {
  QFETCH(QString, preset);
  const engine::KvCacheConfig cache = engine::presetById(preset.toStdString()).cache;
  const auto original = loadSmall(cache);
  original->prefill(someTokens(400), {}, {});
  original->saveSession(file(), {}, {});

  const engine::SessionFileHeader header = headerOf(readBytes(file()));
  QVERIFY(header.pagesPerLayer > 0);
  QVERIFY2(header.ringFirst + header.ringTokens > header.residualLength + header.groupSize,
           "the residual should run over the ring's end, or this test shows less than it claims");

  const auto restored = loadSmall(cache);
  QCOMPARE(restored->restoreSession(file(), {}, {}), 400);
  QCOMPARE(restored->reusableTokens(someTokens(400)), 400);
  QCOMPARE(restored->memory().packedTokens, original->memory().packedTokens);
  QCOMPARE(restored->memory().exactTokens, original->memory().exactTokens);
  QVERIFY(goOnAlike(*original, *restored));
}

void SessionFileTest::bundledModelGoesOnAsIfNothingHadHappened_data() { addPresets(); }

void SessionFileTest::bundledModelGoesOnAsIfNothingHadHappened() {
  QFETCH(QString, preset);
  const engine::KvCacheConfig cache = engine::presetById(preset.toStdString()).cache;
  const auto original = loadEngine(resourcePath("longhand-demo"), cache);
  std::string text;
  while (text.size() < 1500) text += "The old lighthouse stands at the end of the road. ";
  std::vector<std::int32_t> prompt = original->tokenizer().encode(text);
  original->prefill(prompt, {}, {});
  original->saveSession(file(), {}, {});

  const auto restored = loadEngine(resourcePath("longhand-demo"), cache);
  restored->restoreSession(file(), {}, {});
  prompt.push_back(7);
  const engine::GenerateResult a = original->generate(prompt, greedy(20), {}, {});
  const engine::GenerateResult b = restored->generate(prompt, greedy(20), {}, {});
  QCOMPARE(b.reusedTokens, static_cast<std::int64_t>(prompt.size()) - 1);
  QCOMPARE(b.tokens, a.tokens);
  QVERIFY(areBitEqual(original->nextLogits(prompt), restored->nextLogits(prompt)));
}

void SessionFileTest::pagesCutShortAreRestored() {
  // Only pages of 16 bits are cut: others are computed again.
  engine::KvCacheConfig cache = smallCache();
  cache.keyNbits = cache.valueNbits = 16;
  const auto original = loadSmall(cache);
  std::vector<std::int32_t> prompt = someTokens(300);
  original->prefill(prompt, {}, {});
  // Cut inside a page, go on, and cut there again: pages of all kinds of length.
  for (const std::size_t kept : {250U, 180U, 111U}) {
    prompt.resize(kept);
    const std::vector<std::int32_t> other = someTokens(120, static_cast<std::uint32_t>(kept));
    prompt.insert(prompt.end(), other.begin(), other.end());
    original->prefill(prompt, {}, {});
  }
  prompt.resize(200);
  original->prefill(prompt, {}, {});
  QCOMPARE(original->memory().cachedTokens, 200);
  original->saveSession(file(), {}, {});
  const engine::SessionFileHeader header = headerOf(readBytes(file()));
  QVERIFY(header.packedTokens % header.groupSize != 0);

  const auto restored = loadSmall(cache);
  QCOMPARE(restored->restoreSession(file(), {}, {}), 200);
  QVERIFY(goOnAlike(*original, *restored));
}

void SessionFileTest::quantizedPagesCutShortAreRestored() {
  engine::SessionIdentity identity;
  identity.model.nLayers = 2;
  identity.model.nKvHeads = 2;
  identity.model.headDim = 8;
  identity.model.vocabSize = 97;
  KvHarness original(smallCache());
  original.feed(300);
  for (const std::int64_t kept : {250, 180, 111}) {
    original.cache().truncate(kept);
    original.feed(120);
  }
  original.cache().truncate(200);
  QVERIFY(original.cache().packedTokens() % 32 != 0);
  engine::saveSessionFile(file(), identity, original.backend(), original.cache(), someTokens(200),
                          {}, {});

  KvHarness restored(smallCache());
  engine::restoreSessionFile(file(), identity, 200, restored.backend(), restored.cache(), {}, {});
  QVERIFY(restored.snapshot() == original.snapshot());
  // Both go on alike, through pages and cuts.
  for (KvHarness* each : {&original, &restored}) {
    each->feed(90);
    each->cache().truncate(260);
    each->feed(1);
  }
  QVERIFY(restored.snapshot() == original.snapshot());
}

void SessionFileTest::emptySessionIsRestored() {
  const auto original = loadSmall(smallCache());
  original->saveSession(file(), {}, {});
  QCOMPARE(std::filesystem::file_size(file()), std::uintmax_t{512});

  const auto restored = loadSmall(smallCache());
  restored->prefill(someTokens(60), {}, {});
  QCOMPARE(restored->restoreSession(file(), {}, {}), 0);
  QVERIFY(restored->cachedTokens().empty());
  QCOMPARE(restored->memory().cachedTokens, 0);
  QVERIFY(goOnAlike(*original, *restored));
}

void SessionFileTest::oneTokenIsRestored() {
  const auto original = loadSmall(smallCache());
  original->prefill(someTokens(1), {}, {});
  original->saveSession(file(), {}, {});
  const auto restored = loadSmall(smallCache());
  QCOMPARE(restored->restoreSession(file(), {}, {}), 1);
  QVERIFY(goOnAlike(*original, *restored));
}

void SessionFileTest::restoringReplacesAnotherChat() {
  const auto original = loadSmall(smallCache());
  original->prefill(someTokens(100), {}, {});
  original->saveSession(file(), {}, {});
  const auto restored = loadSmall(smallCache());
  restored->prefill(someTokens(500, 99), {}, {});
  restored->restoreSession(file(), {}, {});
  for (const engine::MemoryCategory category :
       {engine::MemoryCategory::kKvCodes, engine::MemoryCategory::kKvScales,
        engine::MemoryCategory::kKvExact}) {
    QCOMPARE(restored->memory().use[category], original->memory().use[category]);
  }
  QVERIFY(goOnAlike(*original, *restored));
  // And back in the engine that saved.
  original->restoreSession(file(), {}, {});
  QCOMPARE(cachedTokens(*original), someTokens(100));
}

void SessionFileTest::savingAgainReplacesTheFile() {
  const auto engine = loadSmall(smallCache());
  engine->prefill(someTokens(200), {}, {});
  engine->saveSession(file(), {}, {});
  engine->prefill(someTokens(20), {}, {});
  const std::uint64_t bytes = engine->saveSession(file(), {}, {});
  QCOMPARE(std::filesystem::file_size(file()), bytes);
  QVERIFY(!hasTemporaryFiles());
  QCOMPARE(engine->restoreSession(file(), {}, {}), 20);
}

void SessionFileTest::infoTellsWhatTheFileHolds() {
  const auto engine = loadSmall(smallCache());
  engine->prefill(someTokens(77), {}, {});
  const std::uint64_t bytes = engine->saveSession(file(), {}, {});
  const engine::SessionInfo info = engine::readSessionInfo(file());
  QCOMPARE(info.modelName, std::string("small"));
  QCOMPARE(info.nTokens, 77);
  QCOMPARE(info.fileBytes, bytes);
  QVERIFY(info.cache == smallCache());
}

void SessionFileTest::progressRunsToTheEnd() {
  const auto engine = loadSmall(smallCache());
  engine->prefill(someTokens(200), {}, {});
  std::uint64_t done = 0;
  std::uint64_t total = 0;
  const auto note = [&](std::uint64_t doneBytes, std::uint64_t totalBytes) {
    QVERIFY(doneBytes >= done && doneBytes <= totalBytes);
    done = doneBytes;
    total = totalBytes;
  };
  engine->saveSession(file(), note, {});
  QVERIFY(total > 0);
  QCOMPARE(done, total);
  done = total = 0;
  engine->restoreSession(file(), note, {});
  QVERIFY(total > 0);
  QCOMPARE(done, total);
}

void SessionFileTest::largeFilesHaveManyBlocks() {
  // 3 layers of 8 kv heads of 128 channels in 16 bits: 12 KiB a token.
  engine::KvCacheConfig config = f16Cache();
  KvHarness original(config, 3, {8, 8, 128});
  original.feed(1500);
  engine::SessionIdentity identity;
  identity.model.name = "wide";
  identity.model.nLayers = 3;
  identity.model.nKvHeads = 8;
  identity.model.headDim = 128;
  identity.model.vocabSize = 97;
  const std::vector<std::int32_t> tokens = someTokens(1500);
  engine::saveSessionFile(file(), identity, original.backend(), original.cache(), tokens, {}, {});
  QVERIFY(engine::sessionBlockCount(headerOf(readBytes(file()))) >= 4);

  KvHarness restored(config, 3, {8, 8, 128});
  QCOMPARE(engine::restoreSessionFile(file(), identity, 1500, restored.backend(), restored.cache(),
                                      {}, {}),
           tokens);
  QVERIFY(restored.snapshot() == original.snapshot());
}

void SessionFileTest::memoryForOneCacheIsEnough() {
  engine::SessionIdentity identity;
  identity.model.nLayers = 2;
  identity.model.nKvHeads = 2;
  identity.model.headDim = 8;
  identity.model.vocabSize = 97;
  KvHarness first(smallCache());
  first.feed(300);
  engine::saveSessionFile(file("first"), identity, first.backend(), first.cache(), someTokens(300),
                          {}, {});
  KvHarness second(smallCache());
  second.feed(250);
  engine::saveSessionFile(file("second"), identity, second.backend(), second.cache(),
                          someTokens(250, 2), {}, {});

  const auto inner = kernels::createReferenceBackend();
  engine::DeviceLikeBackend device(*inner);
  engine::MemoryLedger ledger;
  engine::KvCache cache(device, ledger, {4, 2, 8}, 2, smallCache());
  const auto restore = [&](const char* name) {
    return engine::restoreSessionFile(file(name), identity, 300, device, cache, {}, {});
  };
  const auto save = [&] {
    const auto tokens = cache.length() == 300 ? someTokens(300) : someTokens(250, 2);
    engine::saveSessionFile(file("again"), identity, device, cache, tokens, {}, {});
    return readBytes(file("again"));
  };
  QCOMPARE(restore("first"), someTokens(300));
  QVERIFY(save() == readBytes(file("first")));

  // Now the device has hardly anything left, except what the old contents hold.
  device.reportedMemory = kernels::DeviceMemoryInfo{1U << 20U, 100, 0};
  std::vector<std::byte> damaged = readBytes(file("second"));
  damaged[damaged.size() - 20] ^= std::byte{1};
  writeBytes(file("damaged"), damaged);
  QCOMPARE(errorOf([&] { restore("damaged"); }).code(), ErrorCode::kFileDamaged);
  QVERIFY(save() == readBytes(file("first")));
  QCOMPARE(restore("second"), someTokens(250, 2));
  QVERIFY(save() == readBytes(file("second")));
  // The larger one does not fit in place of the smaller one.
  QCOMPARE(errorOf([&] { restore("first"); }).code(), ErrorCode::kOutOfMemory);
  QVERIFY(save() == readBytes(file("second")));
}

void SessionFileTest::stoppedSavingLeavesTheOldFile() {
  const auto engine = loadSmall(smallCache());
  engine->prefill(someTokens(50), {}, {});
  engine->saveSession(file(), {}, {});
  const std::vector<std::byte> before = readBytes(file());
  engine->prefill(someTokens(90), {}, {});
  std::stop_source stop;
  stop.request_stop();
  const Error error = errorOf([&] { engine->saveSession(file(), {}, stop.get_token()); });
  QCOMPARE(error.code(), ErrorCode::kCancelled);
  QVERIFY(readBytes(file()) == before);
  QVERIFY(!hasTemporaryFiles());
}

void SessionFileTest::stoppedRestoringLeavesTheChat() {
  const auto engine = loadSmall(smallCache());
  engine->prefill(someTokens(50), {}, {});
  engine->saveSession(file(), {}, {});
  engine->prefill(someTokens(90, 7), {}, {});
  std::stop_source stop;
  stop.request_stop();
  const Error error = errorOf([&] { engine->restoreSession(file(), {}, stop.get_token()); });
  QCOMPARE(error.code(), ErrorCode::kCancelled);
  QCOMPARE(cachedTokens(*engine), someTokens(90, 7));
}

void SessionFileTest::missingFolderIsRefused() {
  const auto engine = loadSmall(smallCache());
  const Error error = errorOf([&] { engine->saveSession(file("no/such/folder"), {}, {}); });
  QCOMPARE(error.code(), ErrorCode::kFileUnwritable);
  QVERIFY(error.message().find("no/such/folder") != std::string::npos);
}

void SessionFileTest::folderAsTargetIsRefused() {
  const auto engine = loadSmall(smallCache());
  std::filesystem::create_directory(file("folder"));
  const Error error = errorOf([&] { engine->saveSession(file("folder"), {}, {}); });
  QCOMPARE(error.code(), ErrorCode::kFileUnwritable);
  QVERIFY(std::filesystem::is_directory(file("folder")));
  QCOMPARE(errorOf([&] { engine->restoreSession(file("folder"), {}, {}); }).code(),
           ErrorCode::kFileUnreadable);
}

void SessionFileTest::fileLimitLeavesTheOldFile() {
  const auto engine = loadSmall(smallCache());
  engine->prefill(someTokens(50), {}, {});
  engine->saveSession(file(), {}, {});
  const std::vector<std::byte> before = readBytes(file());
  engine->prefill(someTokens(400), {}, {});

  rlimit old{};
  QCOMPARE(getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto oldHandler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{16384, old.rlim_max};
  QCOMPARE(setrlimit(RLIMIT_FSIZE, &small), 0);
  const Error error = errorOf([&] { engine->saveSession(file(), {}, {}); });
  setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, oldHandler);
  QVERIFY2(error.code() == ErrorCode::kFileUnwritable, error.line().c_str());
  QVERIFY(readBytes(file()) == before);
  QVERIFY(!hasTemporaryFiles());
  QCOMPARE(engine->memory().cachedTokens, 400);
}

void SessionFileTest::fullDiskLeavesTheOldFile() {
  const std::filesystem::path disk = file("disk");
  std::filesystem::create_directory(disk);
  if (mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=64k") != 0) {
    QSKIP("only root can mount a tiny disk");
  }
  const std::unique_ptr<const char, void (*)(const char*)> mounted(
      disk.c_str(), [](const char* folder) { umount(folder); });
  const auto engine = loadSmall(smallCache());
  engine->prefill(someTokens(20), {}, {});
  engine->saveSession(disk / "chat.lhkv", {}, {});
  const std::vector<std::byte> before = readBytes(disk / "chat.lhkv");
  engine->prefill(someTokens(900), {}, {});
  const Error error = errorOf([&] { engine->saveSession(disk / "chat.lhkv", {}, {}); });
  const bool isWhole = readBytes(disk / "chat.lhkv") == before;
  const std::filesystem::directory_iterator left(disk);
  const auto nLeft = std::distance(begin(left), end(left));
  QVERIFY2(error.code() == ErrorCode::kFileUnwritable, error.line().c_str());
  QVERIFY2(error.line().find("Free some disk space") != std::string::npos, error.line().c_str());
  QVERIFY(isWhole);
  QCOMPARE(nLeft, 1);
}

// Files of earlier versions are read: each setting of the cache has its bytes for ever.
void SessionFileTest::settingsLieWhereTheyAlwaysLay() {
  engine::KvCacheConfig config{8, 2, 128, 0x0123, 0x0456, 0x01020304, 0x0107, 16, 4};
  config.scheme = kernels::QuantScheme::kSymmetric;
  config.solver = kernels::QuantSolver::kHqq;
  config.exactType = kernels::DataType::kF16;
  engine::SessionFileHeader header;
  engine::setSessionCache(header, config, {});
  const std::array<std::uint8_t, 24> expected = {
      0x23, 0x01, 0, 0, 0x56, 0x04, 0, 0, 0x07, 0x01, 0, 0,  // residual, sink, first layers
      8, 2, 128, 16, 4, 1, 1, 1,  // bits, group, first layers' bits, scheme, solver,
                                  // type
      0x04, 0x03, 0x02, 0x01};    // sliding window
  std::array<std::uint8_t, 24> written{};
  constexpr std::size_t kPlace = 64;
  std::memcpy(written.data(), reinterpret_cast<const std::byte*>(&header) + kPlace, written.size());
  QVERIFY(written == expected);
  QVERIFY(engine::sessionCacheConfig(header) == config);
}

}  // namespace longhand

QTEST_APPLESS_MAIN(longhand::SessionFileTest)
#include "session_file_test.moc"
