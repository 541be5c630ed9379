#include "engine/graph/rope.h"

#include <cmath>
#include <fstream>

#include <QTest>

#include "kernels/reference/reference_backend.h"
#include "tests/support/paths.h"

#include <nlohmann/json.hpp>

namespace longhand {

using engine::RopeConfig;
using engine::RopeFrequencies;
using engine::RopeScaling;

namespace {

RopeConfig makeConfig(const nlohmann::json& args) {
  RopeConfig config;
  const std::string type = args.at("rope_type");
  if (type == "linear") config.scaling = RopeScaling::kLinear;
  if (type == "dynamic") config.scaling = RopeScaling::kDynamic;
  if (type == "yarn") config.scaling = RopeScaling::kYarn;
  config.theta = args.value("theta", 10000.0);
  config.factor = args.value("factor", 1.0);
  config.maxPositionEmbeddings = args.at("max_position_embeddings");
  config.originalMaxPositionEmbeddings = args.value("original_max_position_embeddings", 0);
  return config;
}

void verifyClose(double actual, double expected, double tolerance, const QString& where) {
  QVERIFY2(std::abs(actual - expected) <= tolerance,
           qPrintable(QString("%1: %2, expected %3").arg(where).arg(actual).arg(expected)));
}

}  // namespace

class RopeTest : public QObject {
  Q_OBJECT

 private slots:
  void everyScalingEqualsTheReference_data();
  void everyScalingEqualsTheReference();
  void tableHoldsTheRowsOfTheChunk();

 private:
  static nlohmann::json golden();
};

nlohmann::json RopeTest::golden() {
  std::ifstream file(tests::dataPath("rope.json"));
  return nlohmann::json::parse(file);
}

void RopeTest::everyScalingEqualsTheReference_data() {
  QTest::addColumn<int>("index");
  const nlohmann::json cases = golden().at("cases");
  for (std::size_t i = 0; i < cases.size(); ++i) {
    QTest::newRow(cases[i].at("name").get<std::string>().c_str()) << static_cast<int>(i);
  }
}

void RopeTest::everyScalingEqualsTheReference() {
  QFETCH(int, index);
  const nlohmann::json reference = golden();
  const nlohmann::json& one = reference.at("cases").at(static_cast<std::size_t>(index));
  const std::int64_t dim = one.at("dim");
  const auto half = static_cast<std::size_t>(dim / 2);
  const std::int64_t sequence = one.at("args").value("seq_len", std::int64_t{0});
  const RopeFrequencies frequencies =
      engine::ropeFrequencies(makeConfig(one.at("args")), dim, sequence);

  verifyClose(frequencies.attentionFactor, one.at("attention_factor"), 1e-12, "factor");
  QCOMPARE(frequencies.inverse.size(), half);
  for (std::size_t i = 0; i < half; ++i) {
    const double expected = one.at("inv_freq").at(i);
    verifyClose(frequencies.inverse[i], expected, 1e-12 * expected, QString("inv_freq %1").arg(i));
  }

  const auto backend = kernels::createReferenceBackend();
  const std::vector<float> x = reference.at("x_" + std::to_string(dim)).get<std::vector<float>>();
  for (std::size_t p = 0; p < one.at("positions").size(); ++p) {
    const std::int64_t position = one.at("positions").at(p);
    const std::vector<float> row = engine::ropeRows(frequencies, position, 1);
    std::vector<float> rotated = x;
    backend->rope({rotated.data(), 1, dim, dim}, dim, row.data());
    const QString where = QString("position %1").arg(position);
    for (std::size_t i = 0; i < half; ++i) {
      verifyClose(static_cast<double>(row[i]), one.at("cos").at(p).at(i), 1e-6, where);
      verifyClose(static_cast<double>(row[half + i]), one.at("sin").at(p).at(i), 1e-6, where);
    }
    for (std::size_t i = 0; i < 2 * half; ++i) {
      verifyClose(static_cast<double>(rotated[i]), one.at("rotated").at(p).at(i), 2e-6, where);
    }
  }
}

void RopeTest::tableHoldsTheRowsOfTheChunk() {
  const auto backend = kernels::createReferenceBackend();
  engine::MemoryLedger ledger;
  RopeConfig config;
  config.scaling = RopeScaling::kDynamic;
  config.factor = 2.0;
  config.maxPositionEmbeddings = 16;
  engine::RopeTable table(*backend, ledger, config, 8);
  table.prepare(1000, 1500, 2500);
  const std::vector<float> expected =
      engine::ropeRows(engine::ropeFrequencies(config, 8, 2500), 2400, 1);
  for (std::size_t i = 0; i < 8; ++i) QCOMPARE(table.row(2400)[i], expected[i]);
  QCOMPARE(ledger.use().total(), engine::ropeTableBytes(8, 1500));
  table.prepare(2500, 1, 2501);  // one token: the base grows, the table shrinks
  QCOMPARE(table.row(2500)[0],
           engine::ropeRows(engine::ropeFrequencies(config, 8, 2501), 2500, 1)[0]);
  QCOMPARE(ledger.use().total(), engine::ropeTableBytes(8, 1));
}

}  // namespace longhand

QTEST_APPLESS_MAIN(longhand::RopeTest)
#include "rope_test.moc"
