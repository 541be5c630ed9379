// Tokenizer and StreamDetokenizer: against the encodings that the original sentencepiece library
// gave (shared/reference, where it is there), and against each other on the bundled model.

#include "engine/text/tokenizer.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iterator>
#include <optional>
#include <random>

#include <QFile>
#include <QTemporaryDir>
#include <QTest>

#include "engine/base/error.h"
#include "tests/support/golden_file.h"
#include "tests/support/paths.h"

#include <nlohmann/json.hpp>

using longhand::engine::Error;
using longhand::engine::ErrorCode;
using longhand::engine::StreamDetokenizer;
using longhand::engine::Tokenizer;
using nlohmann::json;
namespace engine = longhand::engine;
namespace tests = longhand::tests;

namespace {

std::string readText(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::string bytesOfHex(const std::string& hex) {
  return QByteArray::fromHex(QByteArray::fromStdString(hex)).toStdString();
}

std::string withoutReplacementCharacters(std::string text) {
  for (auto at = text.find("\uFFFD"); at != std::string::npos; at = text.find("\uFFFD")) {
    text.erase(at, 3);
  }
  return text;
}

std::string streamed(const Tokenizer& tokenizer, const std::vector<std::int32_t>& ids) {
  StreamDetokenizer stream(tokenizer);
  std::string text;
  for (const std::int32_t id : ids) text += stream.append(id);
  return text + stream.finish();
}

void compareWithCases(const Tokenizer& tokenizer, const json& cases, const char* decodedHexKey) {
  for (const json& expected : cases) {
    const auto name = expected["name"].get<std::string>();
    const std::string text = bytesOfHex(expected["utf8_hex"].get<std::string>());
    const auto ids = expected["ids"].get<std::vector<std::int32_t>>();
    const std::string decoded = decodedHexKey != nullptr
                                    ? bytesOfHex(expected[decodedHexKey].get<std::string>())
                                    : expected["decoded"].get<std::string>();
    QVERIFY2(tokenizer.encode(text) == ids, name.c_str());
    QVERIFY2(tokenizer.decode(ids) == decoded, name.c_str());
    QVERIFY2(streamed(tokenizer, ids) == decoded, name.c_str());
    for (std::size_t i = 0; i < ids.size(); ++i) {
      QVERIFY2(tokenizer.piece(ids[i]) == expected["pieces"][i].get<std::string>(), name.c_str());
      QVERIFY2(!tokenizer.isControl(ids[i]), name.c_str());
    }
  }
}

/// Random ids, with runs of byte pieces (ids 3 to 258 in all our models) and of control tokens
/// mixed in, because those are where a stream can go wrong.
std::vector<std::int32_t> randomIds(std::mt19937& random, std::int32_t vocabSize) {
  std::vector<std::int32_t> ids(random() % 24);
  unsigned kind = 0;
  for (std::int32_t& id : ids) {
    if (random() % 3 == 0) kind = random() % 4;
    const auto any = static_cast<std::int32_t>(random() % static_cast<unsigned>(vocabSize));
    const auto byte = static_cast<std::int32_t>(3 + 0x80 + random() % 0x80);
    const auto special = static_cast<std::int32_t>(random() % 4);
    id = kind == 0 ? any : kind == 1 ? byte : kind == 2 ? special : 3 + any % 256;
  }
  return ids;
}

/// As randomIds, but starting with blanks: a third of the pieces begins with one.
void checkStreamEqualsDecode(const Tokenizer& tokenizer, unsigned seed, int rounds) {
  std::mt19937 random(seed);
  const std::vector<std::int32_t> blanks = tokenizer.encode("x x  x");
  for (int round = 0; round < rounds; ++round) {
    std::vector<std::int32_t> ids = randomIds(random, tokenizer.vocabSize() + 2);
    for (unsigned n = random() % 4; n > 0; --n) {
      ids.insert(ids.begin(), blanks[random() % blanks.size()]);
    }
    StreamDetokenizer stream(tokenizer);
    std::string text;
    for (const std::int32_t id : ids) {
      const std::string piece = stream.append(id);
      // Nothing but whole characters comes out. (Qt drops a byte order mark at the start.)
      QVERIFY(QString::fromStdString("x" + piece).toStdString() == "x" + piece);
      text += piece;
    }
    text += stream.finish();
    const std::string decoded = tokenizer.decode(ids);
    const std::string details = json{{"ids", ids}, {"stream", text}, {"decode", decoded}}.dump();
    QVERIFY2(text == decoded, details.c_str());
  }
}

}  // namespace

class TokenizerTest : public QObject {
  Q_OBJECT

 private slots:
  void encodesAndDecodesAsSentencepieceDoesForLlama2();
  void replacesNulAndBadUtf8AsSentencepieceDoes();
  void encodesLongTextsInUnderASecond();
  void slicesGiveTheIdsOfTheWhole_data();
  void slicesGiveTheIdsOfTheWhole();
  void encodingStopsBetweenTwoSlices();
  void everyPrefixOfAStreamEqualsDecodeWithoutHalfCharacters();
  void readsTheFlagsOfTheFileNotOfLlama2();
  void tellsVocabularyAndControlTokensOfTheBundledModel();
  void bundledModelRoundTripsItsSampleDocument();
  void textNeverBecomesAControlToken();
  void controlTokensAndIdsOutsideTheVocabularyGiveNoText();
  void holdsBackTheBytesOfAnUnfinishedCharacter();
  void streamEqualsDecodeForRandomIds_data();
  void streamEqualsDecodeForRandomIds();
  void refusesMissingAndDamagedFiles();
  void fingerprintsDifferByFile();

 private:
  Tokenizer demo_{tests::resourcePath("longhand-demo/tokenizer.model")};
};

void TokenizerTest::encodesAndDecodesAsSentencepieceDoesForLlama2() {
  LONGHAND_SKIP_WITHOUT(tests::modelPath("llama2-tokenizer/tokenizer.model"));
  LONGHAND_SKIP_WITHOUT(tests::referencePath("tokenizer.json"));
  const Tokenizer tokenizer(tests::modelPath("llama2-tokenizer/tokenizer.model"));
  const json expected = json::parse(readText(tests::referencePath("tokenizer.json")));
  QCOMPARE(tokenizer.vocabSize(), expected["vocab_size"].get<int>());
  QCOMPARE(tokenizer.bosToken(), expected["bos_id"].get<int>());
  QCOMPARE(tokenizer.eosToken(), expected["eos_id"].get<int>());
  QCOMPARE(expected["cases"].size(), std::size_t{68});
  compareWithCases(tokenizer, expected["cases"], nullptr);
  for (const auto& [id, piece] : expected["pieces_sample"].items()) {
    QCOMPARE(tokenizer.piece(std::stoi(id)), piece["piece"].get<std::string>());
    QCOMPARE(tokenizer.isControl(std::stoi(id)), piece["control"].get<bool>());
  }
}

void TokenizerTest::replacesNulAndBadUtf8AsSentencepieceDoes() {
  LONGHAND_SKIP_WITHOUT(tests::modelPath("llama2-tokenizer/tokenizer.model"));
  LONGHAND_SKIP_WITHOUT(tests::referencePath("tokenizer.json"));
  const Tokenizer tokenizer(tests::modelPath("llama2-tokenizer/tokenizer.model"));
  const json expected = json::parse(readText(tests::referencePath("tokenizer.json")));
  QCOMPARE(expected["byte_cases"].size(), std::size_t{6});
  compareWithCases(tokenizer, expected["byte_cases"], "decoded_hex");
}

void TokenizerTest::encodesLongTextsInUnderASecond() {
  LONGHAND_SKIP_WITHOUT(tests::modelPath("llama2-tokenizer/tokenizer.model"));
  LONGHAND_SKIP_WITHOUT(tests::referencePath("tokenizer-long.safetensors"));
  const Tokenizer tokenizer(tests::modelPath("llama2-tokenizer/tokenizer.model"));
  const json expected = json::parse(readText(tests::referencePath("tokenizer.json")));
  const tests::GoldenFile golden(tests::referencePath("tokenizer-long.safetensors"));
  for (const json& item : expected["long_cases"]) {
    const auto name = item["name"].get<std::string>();
    std::string text;
    if (item.contains("file")) {
      text = readText(tests::referencePath(item["file"].get<std::string>()));
    } else {
      for (int i = 0; i < item["count"].get<int>(); ++i) text += item["repeat"].get<std::string>();
    }
    QCOMPARE(text.size(), item["n_bytes"].get<std::size_t>());

    const auto start = std::chrono::steady_clock::now();
    const std::vector<std::int32_t> ids = tokenizer.encode(text);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    QVERIFY2(ids == golden.at("ids." + name).ints(), name.c_str());
    QVERIFY2(seconds.count() < 1.0, (name + " took too long").c_str());
    QVERIFY2(tokenizer.decode(ids) == text, name.c_str());
    QVERIFY2(streamed(tokenizer, ids) == text, name.c_str());
  }
}

void TokenizerTest::everyPrefixOfAStreamEqualsDecodeWithoutHalfCharacters() {
  LONGHAND_SKIP_WITHOUT(tests::modelPath("llama2-tokenizer/tokenizer.model"));
  LONGHAND_SKIP_WITHOUT(tests::referencePath("tokenizer.json"));
  const Tokenizer tokenizer(tests::modelPath("llama2-tokenizer/tokenizer.model"));
  const json expected = json::parse(readText(tests::referencePath("tokenizer.json")));
  for (const json& item : expected["streaming"]) {
    const auto ids = item["ids"].get<std::vector<std::int32_t>>();
    StreamDetokenizer stream(tokenizer);
    std::string text;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      text += stream.append(ids[i]);
      const auto prefix = item["prefix_decoded"][i].get<std::string>();
      QCOMPARE(tokenizer.decode(std::span(ids).first(i + 1)), prefix);
      QCOMPARE(text, withoutReplacementCharacters(prefix));
    }
    QCOMPARE(text + stream.finish(), item["text"].get<std::string>());
  }
}

void TokenizerTest::readsTheFlagsOfTheFileNotOfLlama2() {
  LONGHAND_SKIP_WITHOUT(tests::modelPath("stories260K/tokenizer.model"));
  LONGHAND_SKIP_WITHOUT(tests::referencePath("tokenizer-tok512.json"));
  const Tokenizer tokenizer(tests::modelPath("stories260K/tokenizer.model"));
  const json expected = json::parse(readText(tests::referencePath("tokenizer-tok512.json")));
  QVERIFY(expected["cases"].size() > 60);
  compareWithCases(tokenizer, expected["cases"], nullptr);
}

void TokenizerTest::tellsVocabularyAndControlTokensOfTheBundledModel() {
  QCOMPARE(demo_.vocabSize(), 1536);
  QCOMPARE(demo_.bosToken(), 1);
  QCOMPARE(demo_.eosToken(), 2);
  QVERIFY(demo_.isControl(1));
  QVERIFY(demo_.isControl(2));
  QVERIFY(!demo_.isControl(0));
  QVERIFY(!demo_.isControl(13));
  QVERIFY(!demo_.isControl(-1));
  QVERIFY(!demo_.isControl(1536));
  QCOMPARE(demo_.piece(13), std::string("<0x0A>"));
  QVERIFY_EXCEPTION_THROWN(demo_.piece(-1), Error);
  QVERIFY_EXCEPTION_THROWN(demo_.piece(1536), Error);
}

void TokenizerTest::bundledModelRoundTripsItsSampleDocument() {
  const std::string text = readText(tests::resourcePath("longhand-demo/sample-document.txt"));
  QVERIFY(text.size() > 1000);
  const std::vector<std::int32_t> ids = demo_.encode(text);
  QCOMPARE(demo_.decode(ids), text);
  QCOMPARE(streamed(demo_, ids), text);
  for (const std::string same :
       {"", " ", "  two", "a\nb\r\n\tc", "You 你好 😀 e\u0301", "1234567890", "[INST] </s>"}) {
    QCOMPARE(streamed(demo_, demo_.encode(same)), same);
  }
}

void TokenizerTest::textNeverBecomesAControlToken() {
  for (const std::string text : {"</s>", "<s>", "<unk>", "[INST] <<SYS>> </s><s>", "a</s>b"}) {
    for (const std::int32_t id : demo_.encode(text)) QVERIFY(!demo_.isControl(id));
    QCOMPARE(demo_.decode(demo_.encode(text)), text);
  }
}

void TokenizerTest::controlTokensAndIdsOutsideTheVocabularyGiveNoText() {
  std::vector<std::int32_t> ids = demo_.encode("Hello!");
  ids.insert(ids.begin(), {demo_.bosToken(), 100000, -5});
  ids.push_back(demo_.eosToken());
  QCOMPARE(demo_.decode(ids), demo_.decode(ids));
  QCOMPARE(streamed(demo_, {demo_.bosToken(), demo_.eosToken(), 100000, -1}), std::string());
  QVERIFY(demo_.decode(ids).ends_with("Hello!"));
}

void TokenizerTest::holdsBackTheBytesOfAnUnfinishedCharacter() {
  StreamDetokenizer stream(demo_);
  const auto byte = [](unsigned value) { return static_cast<std::int32_t>(3 + value); };
  // U+1F600 is F0 9F 98 80.
  QCOMPARE(stream.append(byte(0xF0)), std::string());
  QCOMPARE(stream.append(byte(0x9F)), std::string());
  QCOMPARE(stream.append(byte(0x98)), std::string());
  QCOMPARE(stream.append(byte(0x80)), std::string("😀"));
  // Cut short by another character, by the end, or by a byte that cannot follow.
  QCOMPARE(stream.append(byte(0xE2)), std::string());
  QCOMPARE(stream.append(byte('x')), std::string("\uFFFDx"));
  QCOMPARE(stream.append(byte(0xED)), std::string());
  QCOMPARE(stream.append(byte(0xA0)), std::string("\uFFFD\uFFFD"));
  QCOMPARE(stream.append(byte(0xC0)), std::string("\uFFFD"));
  QCOMPARE(stream.append(byte(0xC3)), std::string());
  QCOMPARE(stream.finish(), std::string("\uFFFD"));
  QCOMPARE(stream.finish(), std::string());
}

void TokenizerTest::streamEqualsDecodeForRandomIds_data() {
  QTest::addColumn<QString>("path");
  QTest::addRow("longhand-demo") << QString::fromStdString(
      tests::resourcePath("longhand-demo/tokenizer.model").string());
  QTest::addRow("llama2") << QString::fromStdString(
      tests::modelPath("llama2-tokenizer/tokenizer.model").string());
  QTest::addRow("tok512") << QString::fromStdString(
      tests::modelPath("stories260K/tokenizer.model").string());
}

void TokenizerTest::streamEqualsDecodeForRandomIds() {
  QFETCH(QString, path);
  LONGHAND_SKIP_WITHOUT(path.toStdString());
  const Tokenizer tokenizer(path.toStdString());
  checkStreamEqualsDecode(tokenizer, 20260101, 20000);
}

void TokenizerTest::refusesMissingAndDamagedFiles() {
  QTemporaryDir folder;
  const std::filesystem::path path = folder.filePath("tokenizer.model").toStdString();
  const auto codeOf = [&path] {
    try {
      const Tokenizer tokenizer(path);
    } catch (const Error& error) {
      if (error.message().find(path.string()) == std::string::npos) return ErrorCode::kInternal;
      return error.code();
    }
    return ErrorCode::kInternal;
  };
  QCOMPARE(codeOf(), ErrorCode::kFileNotFound);

  const std::string good = readText(tests::resourcePath("longhand-demo/tokenizer.model"));
  for (const std::string& bad :
       {std::string(), std::string("{\"model\": {}}"), good.substr(0, good.size() / 2),
        good.substr(0, good.size() - 1), good.substr(5), std::string(1000, '\0')}) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bad;
    QCOMPARE(codeOf(), ErrorCode::kFileDamaged);
  }
  std::filesystem::remove(path);
  std::filesystem::create_directory(path);
  QCOMPARE(codeOf(), ErrorCode::kFileUnreadable);
}

void TokenizerTest::fingerprintsDifferByFile() {
  const Tokenizer again(tests::resourcePath("longhand-demo/tokenizer.model"));
  QCOMPARE(again.fingerprint(), demo_.fingerprint());
  LONGHAND_SKIP_WITHOUT(tests::modelPath("stories260K/tokenizer.model"));
  const Tokenizer other(tests::modelPath("stories260K/tokenizer.model"));
  QVERIFY(other.fingerprint() != demo_.fingerprint());
}

void TokenizerTest::slicesGiveTheIdsOfTheWhole_data() {
  QTest::addColumn<QString>("tokenizerModel");
  QTest::newRow("longhand-demo") << QString::fromStdString(
      (tests::resourcePath("longhand-demo") / "tokenizer.model").string());
  QTest::newRow("llama2") << QString::fromStdString(
      (tests::modelPath("llama2-tokenizer") / "tokenizer.model").string());
}

void TokenizerTest::slicesGiveTheIdsOfTheWhole() {
  QFETCH(QString, tokenizerModel);
  if (!QFile::exists(tokenizerModel)) QSKIP("the model is not there");
  const Tokenizer tokenizer(tokenizerModel.toStdString());
  std::vector<std::string> texts = {
      "",
      "\n",
      " ",
      " \n \n  \n\n ",
      "  two blanks\r\nand   three\t\ttabs  \n   ",
      "Zürich, Straße: 𝄞 and 漢字\nかな\n \u2581x \u0301e",
      "bad \xFF\xE4\xB8\nand \xE4\xB8 q \xC3",
      "</s> [INST] <0x0A> <unk> qZ9xJv#kQ==",
      std::string(300, 'a'),
      std::string(300, ' ') + "x",
  };
  // Any bytes at all, of an alphabet in which everything that matters is frequent.
  const std::vector<std::string> alphabet = {" ", " ", "\n", "a", "e",  "th",   "Q",    "z",
                                             "7", ".", "\t", "é", "漢", "\xE4", "\x80", "\u2581"};
  std::mt19937 random(5);
  for (int round = 0; round < 300; ++round) {
    std::string text;
    for (unsigned n = random() % 60; n > 0; --n) text += alphabet[random() % alphabet.size()];
    texts.push_back(text);
  }
  std::string prose = readText(tests::resourcePath("longhand-demo") / "sample-document.txt");
  texts.push_back(prose);
  std::replace(prose.begin(), prose.end(), '\n', ' ');
  texts.push_back(prose);

  bool isCut = false;
  for (const std::string& text : texts) {
    const std::vector<std::int32_t> whole = tokenizer.encode(text);
    for (const std::size_t sliceBytes : {1U, 7U, 100U}) {
      std::size_t nSlices = 0;
      engine::EncodeOptions options;
      options.sliceBytes = sliceBytes;
      options.progress = [&](std::uint64_t /*done*/, std::uint64_t total) {
        ++nSlices;
        QCOMPARE(total, std::uint64_t{text.size()});
      };
      QVERIFY2(tokenizer.encode(text, options) == whole, text.c_str());
      isCut = isCut || nSlices > 10;
    }
  }
  QVERIFY(isCut);
}

void TokenizerTest::encodingStopsBetweenTwoSlices() {
  const Tokenizer tokenizer(tests::resourcePath("longhand-demo") / "tokenizer.model");
  std::string text;
  while (text.size() < std::size_t{1} << 20U) text += "The old mill was built in 1712. ";
  std::stop_source stop;
  std::uint64_t doneBytes = 0;
  engine::EncodeOptions options;
  options.stop = stop.get_token();
  options.progress = [&](std::uint64_t done, std::uint64_t /*total*/) {
    doneBytes = done;
    if (done > text.size() / 4) stop.request_stop();
  };
  std::optional<ErrorCode> code;
  try {
    tokenizer.encode(text, options);
  } catch (const Error& error) {
    code = error.code();
  }
  QVERIFY(code == ErrorCode::kCancelled);
  QVERIFY(doneBytes < text.size() / 2);
}

QTEST_GUILESS_MAIN(TokenizerTest)
#include "tokenizer_test.moc"
