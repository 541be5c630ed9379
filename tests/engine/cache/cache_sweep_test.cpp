// A spread of the cases of cache_full_sweep_test, in seconds.
#include "tests/engine/cache/cache_sweep.h"

#include <QTest>

namespace longhand {

class CacheSweepTest : public QObject {
  Q_OBJECT

 private slots:
  void everyStateEqualsTheSlowTwin_data();
  void everyStateEqualsTheSlowTwin();
};

void CacheSweepTest::everyStateEqualsTheSlowTwin_data() {
  QTest::addColumn<int>("keyNbits");
  for (const int nbits : {16, 8, 4, 2}) QTest::addRow("keys of %d bits", nbits) << nbits;
}

void CacheSweepTest::everyStateEqualsTheSlowTwin() {
  QFETCH(int, keyNbits);
  // A prime that visits all values of all dimensions.
  constexpr int kEvery = 31;
  for (const tests::SweepCase& each : tests::sweepCases()) {
    if (each.config.keyNbits != keyNbits || each.index % kEvery != 0) continue;
    const std::string failure = tests::sweep(each, 70);
    QVERIFY2(failure.empty(), failure.c_str());
  }
}

}  // namespace longhand

QTEST_APPLESS_MAIN(longhand::CacheSweepTest)
#include "cache_sweep_test.moc"
