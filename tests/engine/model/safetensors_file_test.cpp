// Reading .safetensors: the good corner cases are read, everything that contradicts itself is
// refused with file, tensor and reason.

#include "engine/model/safetensors_file.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include <QTest>

#include "engine/base/error.h"
#include "tests/support/paths.h"

namespace longhand::engine {
namespace {

namespace fs = std::filesystem;

std::vector<std::byte> readBytes(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  std::vector<std::byte> bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

/// A file of a header (its length is put before it) and data.
std::vector<std::byte> fileOf(const std::string& header, std::size_t dataBytes) {
  std::vector<std::byte> bytes(8 + header.size() + dataBytes);
  const std::uint64_t length = header.size();
  std::memcpy(bytes.data(), &length, sizeof length);
  std::memcpy(bytes.data() + 8, header.data(), header.size());
  return bytes;
}

template <typename T>
std::vector<T> valuesOf(const FileTensor& tensor) {
  std::vector<T> values(tensor.data.size() / sizeof(T));
  std::memcpy(values.data(), tensor.data.data(), tensor.data.size());
  return values;
}

std::string refusalOf(const std::vector<std::byte>& bytes) {
  try {
    parseSafetensors(bytes, "m.safetensors");
  } catch (const Error& error) {
    return error.message();
  }
  return "accepted";
}

/// The edge-case files are copied into the repository's test data.
fs::path edgePath(const std::string& name) {
  return tests::dataPath("safetensors-edge/" + name + ".safetensors");
}

}  // namespace

class SafetensorsFileTest : public QObject {
  Q_OBJECT

 private slots:
  void readsMisalignedData();
  void readsScalarsAndEmptyTensors();
  void readsNamesOutsideAscii();
  void readsPaddedHeadersAndAnyOrder();
  void readsAllTypes();
  void refusesDamagedFilesWithTheReason_data();
  void refusesDamagedFilesWithTheReason();
  void refusesHeadersThatAreNoTensorLists_data();
  void refusesHeadersThatAreNoTensorLists();
  void namesMissingFilesAndFolders();
  void keepsMessagesOnOneLine();
  void survivesMutationsOfValidFiles();
};

void SafetensorsFileTest::readsMisalignedData() {
  const SafetensorsFile file(edgePath("ok-misaligned"));
  const FileTensor* tensor = file.find("f");
  QVERIFY(tensor != nullptr);
  QCOMPARE(valuesOf<float>(*tensor), (std::vector<float>{1.5F, -2.0F}));
  QCOMPARE(tensor->shape, std::vector<std::int64_t>{2});
  QCOMPARE(file.find("nothing"), nullptr);
}

void SafetensorsFileTest::readsScalarsAndEmptyTensors() {
  const SafetensorsFile file(edgePath("ok-scalar-empty"));
  QCOMPARE(valuesOf<float>(*file.find("s")), std::vector<float>{3.25F});
  QVERIFY(file.find("s")->shape.empty());
  QCOMPARE(file.find("e")->shape, (std::vector<std::int64_t>{0, 4}));
  QVERIFY(file.find("e")->data.empty());
}

void SafetensorsFileTest::readsNamesOutsideAscii() {
  const SafetensorsFile file(edgePath("ok-metadata-unicode"));
  QCOMPARE(file.tensors().size(), std::size_t{1});
  QVERIFY(file.find("层.weight") != nullptr);
}

void SafetensorsFileTest::readsPaddedHeadersAndAnyOrder() {
  const SafetensorsFile padded(edgePath("ok-padded-header"));
  QCOMPARE(valuesOf<std::int64_t>(*padded.find("a")), std::vector<std::int64_t>{-7});
  const SafetensorsFile order(edgePath("ok-order-differs"));
  QCOMPARE(valuesOf<float>(*order.find("a")), std::vector<float>{1.0F});
  QCOMPARE(valuesOf<float>(*order.find("b")), std::vector<float>{2.0F});
}

void SafetensorsFileTest::readsAllTypes() {
  const SafetensorsFile file(edgePath("ok-all-dtypes"));
  QCOMPARE(valuesOf<double>(*file.find("f64")), std::vector<double>{0.5});
  QCOMPARE(valuesOf<std::int64_t>(*file.find("i64")), std::vector<std::int64_t>{-5});
  QCOMPARE(valuesOf<float>(*file.find("f32")), std::vector<float>{0.25F});
  QCOMPARE(valuesOf<std::int32_t>(*file.find("i32")), std::vector<std::int32_t>{-4});
  QCOMPARE(valuesOf<std::uint16_t>(*file.find("f16")), std::vector<std::uint16_t>{0x3000});
  QCOMPARE(valuesOf<std::uint16_t>(*file.find("bf16")), std::vector<std::uint16_t>{0x3fc0});
  QCOMPARE(valuesOf<std::int16_t>(*file.find("i16")), std::vector<std::int16_t>{-3});
  QCOMPARE(valuesOf<std::int8_t>(*file.find("i8")), std::vector<std::int8_t>{-2});
  QCOMPARE(valuesOf<std::uint8_t>(*file.find("u8")), std::vector<std::uint8_t>{200});
  QCOMPARE(file.find("b")->type, TensorType::kBool);
}

void SafetensorsFileTest::refusesDamagedFilesWithTheReason_data() {
  QTest::addColumn<QString>("reason");
  QTest::newRow("bad-duplicate-key") << "tensor 'a' stands twice in the header";
  QTest::newRow("bad-empty-file") << "has only 0 bytes and no header";
  QTest::newRow("bad-header-huge") << "announces a header of 9223372036854775808 bytes";
  QTest::newRow("bad-header-too-long") << "ends inside its header: 65 of 1000000 bytes";
  QTest::newRow("bad-hole") << "tensor 'b' begins at byte 8 of the data, but the one before it ends"
                               " at 4: bytes between them belong to no tensor";
  QTest::newRow("bad-json-array") << "a header that is not a JSON object";
  QTest::newRow("bad-negative-offset") << "tensor 'a' has the negative number -4";
  QTest::newRow("bad-not-json") << "not valid JSON at byte 16";
  QTest::newRow("bad-overlap") << "tensor 'b' begins at byte 4 of the data, but the one before it"
                                  " ends at 8: they overlap";
  QTest::newRow("bad-reversed-offsets") << "tensor 'a' ends before it begins";
  QTest::newRow("bad-shape-overflow") << "tensor 'a' has the shape [4294967296, 4294967296], which"
                                         " is too large";
  QTest::newRow("bad-short-file") << "has only 3 bytes and no header";
  QTest::newRow("bad-size-mismatch") << "tensor 'a' of type F32 and shape [3] has 8 bytes instead"
                                        " of 12";
  QTest::newRow("bad-trailing-bytes") << "4 bytes behind the last tensor";
  QTest::newRow("bad-truncated-data") << "tensor 'a' needs the data up to byte 16, but the file"
                                         " ends at 8";
  QTest::newRow("bad-unknown-dtype") << "tensor 'a' has the unknown type 'Q4'";
}

void SafetensorsFileTest::refusesDamagedFilesWithTheReason() {
  QFETCH(QString, reason);
  const std::string name = QTest::currentDataTag();
  QVERIFY(fs::exists(edgePath(name)));
  try {
    const SafetensorsFile file(edgePath(name));
    QFAIL("accepted");
  } catch (const Error& error) {
    QCOMPARE(error.code(), ErrorCode::kFileDamaged);
    const QString message = QString::fromStdString(error.message());
    QVERIFY2(message.startsWith(QString::fromStdString(name + ".safetensors: ")),
             qPrintable(message));
    QVERIFY2(message.contains(reason), qPrintable(message));
  }
}

void SafetensorsFileTest::refusesHeadersThatAreNoTensorLists_data() {
  QTest::addColumn<QByteArray>("header");
  QTest::addColumn<QString>("reason");
  const auto row = [](const char* name, const char* header, const char* reason) {
    QTest::newRow(name) << QByteArray(header) << QString::fromUtf8(reason);
  };
  row("a number for a tensor", R"({"a":5})", "tensor 'a' has a number");
  row("a list for a tensor", R"({"a":[5]})", "tensor 'a' has a list");
  row("a text for a tensor", R"({"a":"F32"})", "tensor 'a' has a text");
  row("null for a tensor", R"({"a":null})", "tensor 'a' has a null");
  row("no dtype", R"({"a":{"shape":[1],"data_offsets":[0,4]}})", "tensor 'a' has no dtype");
  row("no shape", R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", "tensor 'a' has no shape");
  row("no offsets", R"({"a":{"dtype":"F32","shape":[1]}})", "tensor 'a' has no data_offsets");
  row("one offset", R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4]}})",
      "tensor 'a' has not two data_offsets");
  row("three offsets", R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4,8]}})",
      "tensor 'a' has more than two data_offsets");
  row("dtype twice", R"({"a":{"dtype":"F32","dtype":"F16","shape":[2],"data_offsets":[0,4]}})",
      "tensor 'a' has its dtype twice");
  row("shape twice", R"({"a":{"dtype":"F32","shape":[1],"shape":[1],"data_offsets":[0,4]}})",
      "tensor 'a' has its shape twice");
  row("offsets twice",
      R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"data_offsets":[0,4]}})",
      "tensor 'a' has its data_offsets twice");
  row("unknown field", R"({"a":{"dtype":"F32","shape":[1],"offsets":[0,4]}})",
      "tensor 'a' has the unknown field 'offsets'");
  row("number as dtype", R"({"a":{"dtype":7,"shape":[1],"data_offsets":[0,4]}})",
      "tensor 'a' has a number");
  row("object as shape", R"({"a":{"dtype":"F32","shape":{},"data_offsets":[0,4]}})",
      "tensor 'a' has a header that nests deeper");
  row("nested shape", R"({"a":{"dtype":"F32","shape":[[1]],"data_offsets":[0,4]}})",
      "tensor 'a' has a list");
  row("fraction as extent", R"({"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}})",
      "tensor 'a' has the number '1.0'");
  row("extent beyond 63 bits",
      R"({"a":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,4]}})",
      "tensor 'a' has a shape that is too large");
  row("offset beyond 64 bits",
      R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,99999999999999999999]}})",
      "which is not a whole number");
  row("true as extent", R"({"a":{"dtype":"F32","shape":[true],"data_offsets":[0,4]}})",
      "tensor 'a' has a true or false");
  row("object in metadata", R"({"__metadata__":{"x":{}}})", "nests deeper");
  row("list in metadata", R"({"__metadata__":{"x":[]}})", "the file has a list");
  row("metadata twice", R"({"__metadata__":{},"__metadata__":{}})", "__metadata__ twice");
  row("text after the header", R"({} {})", "not valid JSON");
  row("no end", R"({"a":{"dtype":"F32")", "not valid JSON");
  row("invalid UTF-8", "{\"\xff\xfe\":1}", "not valid JSON");
}

void SafetensorsFileTest::refusesHeadersThatAreNoTensorLists() {
  QFETCH(QByteArray, header);
  QFETCH(QString, reason);
  const QString refusal = QString::fromStdString(refusalOf(fileOf(header.toStdString(), 4)));
  QVERIFY2(refusal.startsWith("m.safetensors: ") && refusal.contains(reason), qPrintable(refusal));
}

void SafetensorsFileTest::namesMissingFilesAndFolders() {
  try {
    const SafetensorsFile file(tests::dataPath("no-such.safetensors"));
    QFAIL("accepted");
  } catch (const Error& error) {
    QCOMPARE(error.code(), ErrorCode::kFileNotFound);
    QVERIFY(error.message().find("no-such.safetensors does not exist") != std::string::npos);
  }
  try {
    const SafetensorsFile file(tests::dataPath(""));
    QFAIL("accepted");
  } catch (const Error& error) {
    QCOMPARE(error.code(), ErrorCode::kFileUnreadable);
  }
}

void SafetensorsFileTest::keepsMessagesOnOneLine() {
  const std::string longName(5000, 'x');
  const std::string refusal = refusalOf(fileOf("{\"a\\nb" + longName + "\":5}", 0));
  QVERIFY(refusal.find('\n') == std::string::npos);
  QVERIFY2(refusal.size() < 250, refusal.c_str());
  QVERIFY(refusal.find("'a?bxxx") != std::string::npos);
}

/// Whatever a mutated file says, it is either refused with an Error, or all its tensors lie inside
/// the file. Together with the asan preset this is the fuzzer that always runs.
void SafetensorsFileTest::survivesMutationsOfValidFiles() {
  std::mt19937 random(7);
  const auto below = [&](std::size_t limit) { return random() % static_cast<unsigned>(limit); };
  int accepted = 0;
  int refused = 0;
  for (const char* name : {"ok-all-dtypes", "ok-order-differs", "ok-scalar-empty"}) {
    const std::vector<std::byte> original = readBytes(edgePath(name));
    for (int round = 0; round < 2000; ++round) {
      std::vector<std::byte> bytes = original;
      for (std::size_t change = 0; change <= below(2); ++change) {
        const std::size_t at = below(bytes.size());
        switch (below(4)) {
          case 0:
            bytes[at] = static_cast<std::byte>(random());
            break;
          case 1:  // a digit for a digit keeps the JSON valid
            bytes[at] = static_cast<std::byte>('0' + below(10));
            break;
          case 2:
            bytes.erase(bytes.begin() + static_cast<std::ptrdiff_t>(at));
            break;
          default:
            bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(at),
                         bytes[below(bytes.size())]);
        }
      }
      try {
        for (const auto& [tensorName, tensor] : parseSafetensors(bytes, "mutated")) {
          if (tensor.data.empty()) continue;
          QVERIFY(tensor.data.data() >= bytes.data());
          QVERIFY(tensor.data.data() + tensor.data.size() <= bytes.data() + bytes.size());
        }
        ++accepted;
      } catch (const Error& error) {
        QCOMPARE(error.code(), ErrorCode::kFileDamaged);
        ++refused;
      }
    }
  }
  QVERIFY2(accepted > 50 && refused > 1000,  // the mutations must reach both outcomes
           (std::to_string(accepted) + " " + std::to_string(refused)).c_str());
}

}  // namespace longhand::engine

QTEST_GUILESS_MAIN(longhand::engine::SafetensorsFileTest)
#include "safetensors_file_test.moc"
