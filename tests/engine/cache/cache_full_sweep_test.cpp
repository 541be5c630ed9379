// All 2,880 settings of the sweep with 300 steps of decode: minutes, so it is labelled slow.
#include <QTest>

#include "tests/engine/cache/cache_sweep.h"

namespace longhand {

class CacheFullSweepTest : public QObject {
  Q_OBJECT

 private slots:
  void everyStateEqualsTheSlowTwin_data();
  void everyStateEqualsTheSlowTwin();
};

void CacheFullSweepTest::everyStateEqualsTheSlowTwin_data() {
  QTest::addColumn<int>("keyNbits");
  QTest::addColumn<int>("valueNbits");
  for (const int key : {16, 8, 4, 2}) {
    for (const int value : {16, 8, 4, 2}) QTest::addRow("%d/%d bits", key, value) << key << value;
  }
}

void CacheFullSweepTest::everyStateEqualsTheSlowTwin() {
  QFETCH(int, keyNbits);
  QFETCH(int, valueNbits);
  for (const tests::SweepCase& each : tests::sweepCases()) {
    if (each.config.keyNbits != keyNbits || each.config.valueNbits != valueNbits) continue;
    const std::string failure = tests::sweep(each, 300);
    QVERIFY2(failure.empty(), failure.c_str());
  }
}

}  // namespace longhand

QTEST_APPLESS_MAIN(longhand::CacheFullSweepTest)
#include "cache_full_sweep_test.moc"
