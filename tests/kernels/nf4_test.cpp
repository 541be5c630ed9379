#include "kernels/nf4.h"

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include <QtTest>

#include "kernels/half.h"
#include "tests/support/golden_file.h"
#include "tests/support/paths.h"

using namespace longhand::kernels;
using longhand::tests::dataPath;
using longhand::tests::GoldenFile;

namespace {

/// One matrix of the reference file, quantized by us.
struct Nf4Matrix {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::vector<std::uint8_t> codes;
  std::vector<float> absmax;
  std::vector<std::uint8_t> absmaxCodes;
  std::vector<float> nestedAbsmax;
  float offset = 0.0F;

  Nf4Matrix(const GoldenFile& file, const std::string& name) {
    const auto& tensor = file.at(name + ".w");
    rows = tensor.shape[0];
    cols = tensor.shape[1];
    const std::vector<float> values = tensor.floats();
    codes.resize((values.size() + 1) / 2);
    absmax.resize((values.size() + 63) / 64);
    quantizeNf4(values, codes, absmax);
    absmaxCodes.resize(absmax.size());
    nestedAbsmax.resize((absmax.size() + 255) / 256);
    offset = quantizeAbsmax(absmax, absmaxCodes, nestedAbsmax);
  }

  WeightView view(bool isDoubleQuantized) const {
    WeightView weight;
    weight.type = DataType::kNf4;
    weight.rows = rows;
    weight.cols = cols;
    weight.data = reinterpret_cast<const std::byte*>(codes.data());
    weight.codebook = kNf4Codebook.data();
    if (isDoubleQuantized) {
      weight.absmaxCodes = absmaxCodes.data();
      weight.nestedAbsmax = nestedAbsmax.data();
      weight.nestedCodebook = dynamicCodebook().data();
      weight.nestedOffset = offset;
    } else {
      weight.absmax = absmax.data();
    }
    return weight;
  }
};

bool isWithinUlps(float a, float b, int ulps) {
  if (a == b) return true;
  const float unit = std::ldexp(1.0F, std::ilogb(b) - 23);
  return std::fabs(a - b) <= static_cast<float>(ulps) * unit;
}

}  // namespace

class Nf4Test : public QObject {
  Q_OBJECT

 private slots:
  void codebooksEqualTheReference();
  void codesAndAbsmaxEqualBitsandbytes_data();
  void codesAndAbsmaxEqualBitsandbytes();
  void dequantizedValuesEqualTheReference_data();
  void dequantizedValuesEqualTheReference();
  void doubleQuantizationEqualsTheReference_data();
  void doubleQuantizationEqualsTheReference();
  void productsWithAVectorEqualTheReference_data();
  void productsWithAVectorEqualTheReference();
  void plainTypesAreReadExactlyAtAnyAddress();
  void aRowMayEndInsideABlock();

 private:
  static void addMatrices() {
    QTest::addColumn<QString>("name");
    for (const char* name : {"gauss", "outliers", "odd_tail", "tall_row", "rows344", "edge"}) {
      QTest::newRow(name) << name;
    }
  }
  const GoldenFile file_{dataPath("nf4/nf4.safetensors")};
};

void Nf4Test::codebooksEqualTheReference() {
  const std::vector<float> codebook = file_.at("codebook").floats();
  for (std::size_t i = 0; i < 16; ++i) QCOMPARE(kNf4Codebook[i], codebook[i]);
  const std::vector<float> dynamic = file_.at("dynamic_map").floats();
  for (std::size_t i = 0; i < 256; ++i) {
    QVERIFY2(dynamicCodebook()[i] == dynamic[i], std::to_string(i).c_str());
  }
}

void Nf4Test::codesAndAbsmaxEqualBitsandbytes_data() { addMatrices(); }

void Nf4Test::codesAndAbsmaxEqualBitsandbytes() {
  QFETCH(QString, name);
  const Nf4Matrix ours(file_, name.toStdString());
  QCOMPARE(ours.absmax, file_.at(name.toStdString() + ".absmax").floats());
  // All-zero blocks have codes 7 in the reference and here.
  QCOMPARE(ours.codes, file_.at(name.toStdString() + ".packed").bytes);
}

void Nf4Test::dequantizedValuesEqualTheReference_data() { addMatrices(); }

void Nf4Test::dequantizedValuesEqualTheReference() {
  QFETCH(QString, name);
  const Nf4Matrix ours(file_, name.toStdString());
  const std::vector<float> expected = file_.at(name.toStdString() + ".dequant").floats();
  std::vector<float> row(static_cast<std::size_t>(ours.cols));
  for (std::int64_t r = 0; r < ours.rows; ++r) {
    dequantizeRow(ours.view(false), r, row.data());
    for (std::int64_t c = 0; c < ours.cols; ++c) {
      const float value = expected[static_cast<std::size_t>(r * ours.cols + c)];
      QCOMPARE(row[static_cast<std::size_t>(c)], value);
      QCOMPARE(weightAt(ours.view(false), r, c), value);
    }
  }
}

void Nf4Test::doubleQuantizationEqualsTheReference_data() { addMatrices(); }

void Nf4Test::doubleQuantizationEqualsTheReference() {
  QFETCH(QString, name);
  const std::string prefix = name.toStdString() + ".dq.";
  const Nf4Matrix ours(file_, name.toStdString());
  QVERIFY(isWithinUlps(ours.offset, file_.at(prefix + "offset").floats()[0], 1));
  QCOMPARE(ours.absmaxCodes, file_.at(prefix + "absmax").bytes);
  const std::vector<float> nested = file_.at(prefix + "nested_absmax").floats();
  for (std::size_t i = 0; i < nested.size(); ++i) {
    QVERIFY(isWithinUlps(ours.nestedAbsmax[i], nested[i], 2));
  }
  const std::vector<float> expected = file_.at(prefix + "dequant").floats();
  std::vector<float> row(static_cast<std::size_t>(ours.cols));
  for (std::int64_t r = 0; r < ours.rows; ++r) {
    dequantizeRow(ours.view(true), r, row.data());
    for (std::int64_t c = 0; c < ours.cols; ++c) {
      QVERIFY(isWithinUlps(row[static_cast<std::size_t>(c)],
                           expected[static_cast<std::size_t>(r * ours.cols + c)], 2));
    }
  }
}

void Nf4Test::productsWithAVectorEqualTheReference_data() { addMatrices(); }

void Nf4Test::productsWithAVectorEqualTheReference() {
  QFETCH(QString, name);
  const Nf4Matrix ours(file_, name.toStdString());
  const std::vector<double> x = file_.at(name.toStdString() + ".x").doubles();
  for (const bool isDoubleQuantized : {false, true}) {
    const std::vector<double> expected =
        file_.at(name.toStdString() + (isDoubleQuantized ? ".dq.matvec" : ".matvec")).doubles();
    for (std::int64_t r = 0; r < ours.rows; ++r) {
      double sum = 0.0;
      double magnitude = 0.0;
      for (std::int64_t c = 0; c < ours.cols; ++c) {
        const double product = static_cast<double>(weightAt(ours.view(isDoubleQuantized), r, c)) *
                               x[static_cast<std::size_t>(c)];
        sum += product;
        magnitude += std::fabs(product);
      }
      QVERIFY(std::fabs(sum - expected[static_cast<std::size_t>(r)]) <= 1e-5 * magnitude);
    }
  }
}

void Nf4Test::plainTypesAreReadExactlyAtAnyAddress() {
  const std::vector<float> values = {0.0F, -1.5F, 3.0F, 0.25F, 65504.0F, -0x1p-14F};
  for (const DataType type : {DataType::kF32, DataType::kF16, DataType::kBF16}) {
    std::vector<std::byte> memory(values.size() * 4 + 1);
    WeightView weight;
    weight.type = type;
    weight.rows = 2;
    weight.cols = 3;
    weight.data = memory.data() + 1;
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (type == DataType::kF32) {
        std::memcpy(memory.data() + 1 + i * 4, &values[i], 4);
      } else {
        const std::uint16_t bits =
            type == DataType::kF16 ? floatToHalf(values[i]) : floatToBfloat(values[i]);
        std::memcpy(memory.data() + 1 + i * 2, &bits, 2);
      }
    }
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float expected =
          type == DataType::kBF16 ? bfloatToFloat(floatToBfloat(values[i])) : values[i];
      QCOMPARE(weightAt(weight, static_cast<std::int64_t>(i / 3), static_cast<std::int64_t>(i % 3)),
               expected);
    }
  }
}

void Nf4Test::aRowMayEndInsideABlock() {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  for (std::int64_t count = 1; count <= 200; ++count) {
    std::vector<float> values(static_cast<std::size_t>(count));
    for (float& value : values) value = normal(random);
    std::vector<std::uint8_t> codes(static_cast<std::size_t>((count + 1) / 2));
    std::vector<float> absmax(static_cast<std::size_t>((count + 63) / 64));
    quantizeNf4(values, codes, absmax);
    if (count % 2 == 1) QCOMPARE(codes.back() & 15, 7);
    WeightView weight;
    weight.type = DataType::kNf4;
    weight.rows = 1;
    weight.cols = count;
    weight.data = reinterpret_cast<const std::byte*>(codes.data());
    weight.codebook = kNf4Codebook.data();
    weight.absmax = absmax.data();
    for (std::int64_t i = 0; i < count; ++i) {
      // Half the widest step of the codebook (-1 to -0.696) times absmax.
      const float error = std::fabs(weightAt(weight, 0, i) - values[static_cast<std::size_t>(i)]);
      QVERIFY(error <= 0.152F * absmax[static_cast<std::size_t>(i / 64)]);
    }
  }
}

QTEST_APPLESS_MAIN(Nf4Test)
#include "nf4_test.moc"
