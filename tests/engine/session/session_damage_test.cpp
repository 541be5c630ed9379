// Session files that are damaged or belong to something else: each is refused with its reason, and
// the chat at hand goes on as if nothing had been tried.
#include <cstddef>
#include <functional>
#include <random>

#include <QTemporaryDir>
#include <QTest>

#include "engine/session/session_file.h"
#include "tests/engine/engine_harness.h"
#include "tests/engine/session/session_file_tools.h"

namespace longhand {

using namespace tests;  // NOLINT: a test file
using engine::Engine;
using engine::EngineOptions;
using engine::Error;
using engine::ErrorCode;
using engine::SessionFileHeader;

class SessionDamageTest : public QObject {
  Q_OBJECT

 private slots:
  void initTestCase();
  void truncatedFilesAreRefused();
  void flippedBitsAreRefused();
  void appendedBytesAreRefused();
  void swappedBlocksAreRefused();
  void otherFilesAreRefused();
  void otherVersionsAreRefused();
  void otherModelIsRefused();
  void otherRopeIsRefused();
  void otherTokenizerIsRefused();
  void otherCacheSettingsAreRefused();
  void shorterContextIsRefused();
  void headersThatContradictThemselvesAreRefused_data();
  void headersThatContradictThemselvesAreRefused();
  void pagesThatContradictThemselvesAreRefused_data();
  void pagesThatContradictThemselvesAreRefused();
  void tokensOutsideTheVocabularyAreRefused();
  void mutationsBehindRightChecksumsDoNoHarm();

 private:
  /// Tries to restore these bytes into the engine with the chat; checks that the chat is untouched
  /// when they are refused.
  Error refusalOf(std::span<const std::byte> bytes);
  Error refusalBy(Engine& engine) const;

  std::filesystem::path path() const {
    return std::filesystem::path(folder_.path().toStdString()) / "damaged.lhkv";
  }
  /// A changed header with the right checksums.
  std::vector<std::byte> withHeader(const std::function<void(SessionFileHeader&)>& change) const;
  std::vector<std::byte> withPage(
      std::size_t index, const std::function<void(engine::SessionFilePage&)>& change) const;

  QTemporaryDir folder_;
  std::vector<std::byte> good_;  // 200 tokens, with pages and a residual
  std::unique_ptr<Engine> chat_;
  std::vector<std::int32_t> chatTokens_ = someTokens(90, 77);
  std::vector<float> chatLogits_;
};

void SessionDamageTest::initTestCase() {
  const auto engine = loadSmall(smallCache());
  engine->prefill(someTokens(200), {}, {});
  engine->saveSession(path(), {}, {});
  good_ = readBytes(path());
  chat_ = loadSmall(smallCache());
  chat_->prefill(chatTokens_, {}, {});
  chatLogits_ = chat_->nextLogits(chatTokens_);
}

Error SessionDamageTest::refusalBy(Engine& engine) const {
  try {
    engine.restoreSession(path(), {}, {});
  } catch (const Error& error) {
    return error;
  }
  return {ErrorCode::kInternal, "it was restored"};
}

Error SessionDamageTest::refusalOf(std::span<const std::byte> bytes) {
  writeBytes(path(), bytes);
  Error error = refusalBy(*chat_);
  const std::span<const std::int32_t> cached = chat_->cachedTokens();
  const bool isUntouched =
      std::equal(cached.begin(), cached.end(), chatTokens_.begin(), chatTokens_.end()) &&
      chat_->nextLogits(chatTokens_) == chatLogits_;
  if (!isUntouched) return {ErrorCode::kInternal, "the chat at hand was changed"};
  const std::string line = error.line();
  const bool isReason = line.find("damaged.lhkv") != std::string::npos && !error.hint().empty() &&
                        line.find('\n') == std::string::npos;
  if (!isReason) return {ErrorCode::kInternal, "no reason: " + line};
  return error;
}

std::vector<std::byte> SessionDamageTest::withHeader(
    const std::function<void(SessionFileHeader&)>& change) const {
  std::vector<std::byte> bytes = good_;
  SessionFileHeader header = headerOf(bytes);
  change(header);
  std::memcpy(bytes.data(), &header, sizeof(header));
  reseal(bytes);
  return bytes;
}

std::vector<std::byte> SessionDamageTest::withPage(
    std::size_t index, const std::function<void(engine::SessionFilePage&)>& change) const {
  std::vector<std::byte> bytes = good_;
  std::byte* place = bytes.data() + sizeof(SessionFileHeader) + 200 * sizeof(std::int32_t) +
                     index * sizeof(engine::SessionFilePage);
  engine::SessionFilePage page;
  std::memcpy(&page, place, sizeof(page));
  change(page);
  std::memcpy(place, &page, sizeof(page));
  reseal(bytes);
  return bytes;
}

#define LONGHAND_COMPARE_REFUSAL(error, expected)                     \
  do {                                                                \
    const Error refusal_ = (error);                                   \
    QVERIFY2(refusal_.code() == (expected), refusal_.line().c_str()); \
  } while (false)

void SessionDamageTest::truncatedFilesAreRefused() {
  std::vector<std::size_t> lengths = {0, 1, 7, 8, 11, 12, 100, 503, 504, 511, 512, 513, 1000};
  for (std::size_t i = 1; i <= 16; ++i) lengths.push_back(good_.size() * i / 17);
  for (std::size_t i = 1; i <= 9; ++i) lengths.push_back(good_.size() - i);
  for (const std::size_t length : lengths) {
    LONGHAND_COMPARE_REFUSAL(refusalOf(std::span(good_).first(length)), ErrorCode::kFileDamaged);
  }
}

void SessionDamageTest::flippedBitsAreRefused() {
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < 512; i += 19) places.push_back(i);
  for (std::size_t i = 1; i <= 40; ++i) places.push_back(512 + (good_.size() - 513) * i / 40);
  for (const std::size_t place : places) {
    std::vector<std::byte> bytes = good_;
    bytes[place] ^= static_cast<std::byte>(1U << (place % 8));
    const Error error = refusalOf(bytes);
    const bool isVersion = place >= 8 && place < 12;
    QVERIFY2(error.code() == ErrorCode::kFileDamaged ||
                 (isVersion && error.code() == ErrorCode::kInvalidArgument),
             qPrintable(QString("byte %1: %2").arg(place).arg(error.line().c_str())));
  }
}

void SessionDamageTest::appendedBytesAreRefused() {
  std::vector<std::byte> bytes = good_;
  bytes.push_back(std::byte{0});
  LONGHAND_COMPARE_REFUSAL(refusalOf(bytes), ErrorCode::kFileDamaged);
}

void SessionDamageTest::swappedBlocksAreRefused() {
  // Small blocks, so that there are two of a size.
  std::vector<std::byte> bytes(good_.begin(), good_.begin() + sizeof(SessionFileHeader));
  SessionFileHeader header = headerOf(good_);
  constexpr std::size_t kBlock = 4096;
  const std::span<const std::byte> payload =
      std::span(good_).subspan(sizeof(header), header.payloadBytes);
  header.blockBytes = kBlock;
  std::memcpy(bytes.data(), &header, sizeof(header));
  for (std::size_t done = 0; done < payload.size(); done += kBlock) {
    const auto block = payload.subspan(done, std::min(kBlock, payload.size() - done));
    bytes.insert(bytes.end(), block.begin(), block.end());
    bytes.resize(bytes.size() + engine::kSessionChecksumBytes);
  }
  reseal(bytes);
  const auto other = loadSmall(smallCache());
  writeBytes(path(), bytes);
  QCOMPARE(other->restoreSession(path(), {}, {}), 200);

  constexpr std::size_t kStep = kBlock + engine::kSessionChecksumBytes;
  const auto third = bytes.begin() + sizeof(header) + 2 * kStep;
  std::swap_ranges(third, third + kStep, third + kStep);
  LONGHAND_COMPARE_REFUSAL(refusalOf(bytes), ErrorCode::kFileDamaged);
}

void SessionDamageTest::otherFilesAreRefused() {
  const std::string text(2000, 'x');
  LONGHAND_COMPARE_REFUSAL(refusalOf(std::as_bytes(std::span(text))), ErrorCode::kFileDamaged);
  QCOMPARE(chat_->cachedTokens().size(), chatTokens_.size());
}

void SessionDamageTest::otherVersionsAreRefused() {
  for (const std::uint32_t version : {0U, engine::kSessionVersion + 1, 0xffffffffU}) {
    const Error error =
        refusalOf(withHeader([&](SessionFileHeader& header) { header.version = version; }));
    LONGHAND_COMPARE_REFUSAL(error, ErrorCode::kInvalidArgument);
    const char* word = version == 0 ? "older" : "newer";
    QVERIFY2(error.line().find(word) != std::string::npos, error.line().c_str());
  }
}

void SessionDamageTest::otherModelIsRefused() {
  writeBytes(path(), good_);
  const auto other = loadSmall(smallCache(), {}, 12);
  const Error error = refusalBy(*other);
  LONGHAND_COMPARE_REFUSAL(error, ErrorCode::kInvalidArgument);
  QVERIFY2(error.line().find("another model") != std::string::npos, error.line().c_str());
  QVERIFY(other->cachedTokens().empty());
}

void SessionDamageTest::otherRopeIsRefused() {
  writeBytes(path(), good_);
  EngineOptions options;
  options.rope = smallModel().rope;
  options.rope->scaling = engine::RopeScaling::kLinear;
  options.rope->factor = 2.0;
  const auto other = loadSmall(smallCache(), options);
  const Error error = refusalBy(*other);
  LONGHAND_COMPARE_REFUSAL(error, ErrorCode::kInvalidArgument);
  QVERIFY2(error.line().find("RoPE") != std::string::npos, error.line().c_str());
}

void SessionDamageTest::otherTokenizerIsRefused() {
  const Error error =
      refusalOf(withHeader([](SessionFileHeader& header) { header.tokenizerFingerprint = 5; }));
  LONGHAND_COMPARE_REFUSAL(error, ErrorCode::kInvalidArgument);
  QVERIFY2(error.line().find("tokenizer") != std::string::npos, error.line().c_str());
}

void SessionDamageTest::otherCacheSettingsAreRefused() {
  writeBytes(path(), good_);
  const std::vector<std::function<void(engine::KvCacheConfig&)>> changes = {
      [](engine::KvCacheConfig& config) { config.keyNbits = 8; },
      [](engine::KvCacheConfig& config) { config.valueNbits = 2; },
      [](engine::KvCacheConfig& config) { config.groupSize = 64; },
      [](engine::KvCacheConfig& config) { config.residualLength = 17; },
      [](engine::KvCacheConfig& config) { config.sinkLength = 3; },
      [](engine::KvCacheConfig& config) { config.firstLayers = 1; },
      [](engine::KvCacheConfig& config) { config.scheme = kernels::QuantScheme::kSymmetric; },
      [](engine::KvCacheConfig& config) { config.solver = kernels::QuantSolver::kHqq; },
      [](engine::KvCacheConfig& config) { config.exactType = kernels::DataType::kF32; },
  };
  for (const auto& change : changes) {
    engine::KvCacheConfig config = smallCache();
    change(config);
    const auto other = loadSmall(config);
    const Error error = refusalBy(*other);
    LONGHAND_COMPARE_REFUSAL(error, ErrorCode::kInvalidArgument);
    QVERIFY2(error.line().find("cache settings") != std::string::npos, error.line().c_str());
  }
}

void SessionDamageTest::shorterContextIsRefused() {
  writeBytes(path(), good_);
  EngineOptions options;
  options.contextLength = 199;
  LONGHAND_COMPARE_REFUSAL(refusalBy(*loadSmall(smallCache(), options)), ErrorCode::kContextFull);
  options.contextLength = 200;
  QCOMPARE(loadSmall(smallCache(), options)->restoreSession(path(), {}, {}), 200);
}

using HeaderChange = std::function<void(SessionFileHeader&)>;

void SessionDamageTest::headersThatContradictThemselvesAreRefused_data() {
  QTest::addColumn<HeaderChange>("change");
  constexpr std::uint64_t kHuge = ~std::uint64_t{0};
  const auto add = [](const char* name, const HeaderChange& change) {
    QTest::newRow(name) << change;
  };
  add("a token more", [](SessionFileHeader& h) { ++h.nTokens; });
  add("huge tokens", [](SessionFileHeader& h) { h.nTokens = kHuge; });
  add("huge counts", [](SessionFileHeader& h) { h.nTokens = h.packedTokens = kHuge / 2; });
  add("a sink too long", [](SessionFileHeader& h) { h.sinkTokens = 5, --h.packedTokens; });
  add("a sink not full", [](SessionFileHeader& h) { h.sinkTokens = 3, ++h.packedTokens; });
  add("more pages", [](SessionFileHeader& h) { ++h.pagesPerLayer; });
  add("huge pages", [](SessionFileHeader& h) { h.pagesPerLayer = kHuge; });
  add("no pages", [](SessionFileHeader& h) { h.pagesPerLayer = 0; });
  add("many pages", [](SessionFileHeader& h) { h.pagesPerLayer = h.packedTokens; });
  add("ring behind its end", [](SessionFileHeader& h) { h.ringFirst = 48; });
  add("huge ring", [](SessionFileHeader& h) { h.ringFirst = kHuge; });
  add("a ring of another size", [](SessionFileHeader& h) { ++h.ringCapacity; });
  add("forgotten tokens", [](SessionFileHeader& h) { ++h.forgottenTokens, ++h.nTokens; });
  add("ring overfull", [](SessionFileHeader& h) { h.ringTokens += 32, h.packedTokens -= 32; });
  add("other split", [](SessionFileHeader& h) { ++h.ringTokens, --h.packedTokens; });
  add("no layers", [](SessionFileHeader& h) { h.nLayers = 0; });
  add("huge layers", [](SessionFileHeader& h) { h.nLayers = ~0U; });
  add("no blocks", [](SessionFileHeader& h) { h.blockBytes = 0; });
  add("small blocks", [](SessionFileHeader& h) { h.blockBytes = 1; });
  add("huge blocks", [](SessionFileHeader& h) { h.blockBytes = ~0U; });
  add("no payload", [](SessionFileHeader& h) { h.payloadBytes = 0; });
  add("more payload", [](SessionFileHeader& h) { ++h.payloadBytes; });
  add("huge payload", [](SessionFileHeader& h) { h.payloadBytes = kHuge; });
  add("other header size", [](SessionFileHeader& h) { h.headerBytes = 256; });
  add("impossible bits", [](SessionFileHeader& h) { h.keyNbits = 5; });
  add("impossible group", [](SessionFileHeader& h) { h.groupSize = 0; });
  add("impossible scheme", [](SessionFileHeader& h) { h.scheme = 2; });
  add("impossible type", [](SessionFileHeader& h) { h.exactType = 3; });
  add("line break in the name", [](SessionFileHeader& h) { h.modelName[2] = '\n'; });
}

void SessionDamageTest::headersThatContradictThemselvesAreRefused() {
  QFETCH(HeaderChange, change);
  LONGHAND_COMPARE_REFUSAL(refusalOf(withHeader(change)), ErrorCode::kFileDamaged);
}

using PageChange = std::function<void(engine::SessionFilePage&)>;

void SessionDamageTest::pagesThatContradictThemselvesAreRefused_data() {
  QTest::addColumn<PageChange>("change");
  const auto add = [](const char* name, const PageChange& change) {
    QTest::newRow(name) << change;
  };
  using engine::SessionFilePage;
  add("other bits", [](SessionFilePage& p) { p.keyNbits = 8; });  // another size
  add("impossible bits", [](SessionFilePage& p) { p.valueNbits = 7; });
  add("other group", [](SessionFilePage& p) { p.groupSize = 64; });
  add("impossible group", [](SessionFilePage& p) { p.groupSize = 33; });
  add("impossible scheme", [](SessionFilePage& p) { p.scheme = 9; });
  add("other exact type", [](SessionFilePage& p) { p.exactType = 0; });
  add("no tokens", [](SessionFilePage& p) { p.nTokens = 0; });
  add("a token less", [](SessionFilePage& p) { p.nTokens = 31; });
  add("a token more", [](SessionFilePage& p) { p.nTokens = 33; });
}

void SessionDamageTest::pagesThatContradictThemselvesAreRefused() {
  QFETCH(PageChange, change);
  for (const std::size_t index : {0U, 7U}) {
    LONGHAND_COMPARE_REFUSAL(refusalOf(withPage(index, change)), ErrorCode::kFileDamaged);
  }
}

void SessionDamageTest::tokensOutsideTheVocabularyAreRefused() {
  for (const std::int32_t id : {-1, 97, INT32_MAX}) {
    std::vector<std::byte> bytes = good_;
    std::memcpy(bytes.data() + sizeof(SessionFileHeader) + 4 * 150, &id, sizeof(id));
    reseal(bytes);
    LONGHAND_COMPARE_REFUSAL(refusalOf(bytes), ErrorCode::kFileDamaged);
  }
}

/// What the fuzzer does, with a fixed seed: one to three bytes of header, tokens or page table
/// change, and the checksums are right again. The file is refused, or restored to something that
/// can be worked with (its numbers may be nonsense).
void SessionDamageTest::mutationsBehindRightChecksumsDoNoHarm() {
  std::mt19937 random(20240607);  // NOLINT: the same in every run
  const std::size_t indexEnd = 512 + 200 * 4 + 5 * 5 * 8;
  int nRestored = 0;
  for (int round = 0; round < 600; ++round) {
    std::vector<std::byte> bytes = good_;
    const std::size_t nChanges = 1 + random() % 3;
    for (std::size_t i = 0; i < nChanges; ++i) {
      const std::size_t place = 16 + random() % (indexEnd - 16);
      bytes[place] = static_cast<std::byte>(random() % 4 == 0 ? 0xffU : random() % 256);
    }
    reseal(bytes);
    writeBytes(path(), bytes);
    const Error error = refusalBy(*chat_);
    if (error.code() != ErrorCode::kInternal) {
      QVERIFY2(!error.message().empty() && error.line().find('\n') == std::string::npos,
               error.line().c_str());
      continue;
    }
    QCOMPARE(error.message(), std::string("it was restored"));
    ++nRestored;
    std::vector<std::int32_t> prompt = {chat_->cachedTokens().begin(), chat_->cachedTokens().end()};
    prompt.insert(prompt.end(), 40, 3);
    try {
      chat_->nextLogits(prompt);
    } catch (const Error&) {
      // Nonsense may be refused later, but it must not break anything.
    }
  }
  QVERIFY(nRestored > 20);  // else the rounds show nothing of what comes after the checks
  QVERIFY(nRestored < 580);
}

}  // namespace longhand

Q_DECLARE_METATYPE(std::function<void(longhand::engine::SessionFileHeader&)>)
Q_DECLARE_METATYPE(std::function<void(longhand::engine::SessionFilePage&)>)

QTEST_APPLESS_MAIN(longhand::SessionDamageTest)
#include "session_damage_test.moc"
