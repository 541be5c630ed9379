// The forecast table alone: what its last column says stays readable however narrow it is.
#include "ui/document/forecast_table.h"

#include <QTest>

using namespace Qt::StringLiterals;
using namespace longhand;

class ForecastTableTest final : public QObject {
  Q_OBJECT

 private:
  static constexpr int kTotalColumn = 2;
  static constexpr int kFitsColumn = 3;

  static std::vector<app::PresetForecast> forecasts() {
    std::vector<app::PresetForecast> result;
    for (const QString& name : {u"Exact"_s, u"Throughput"_s, u"Memory limit"_s}) {
      app::PresetForecast forecast;
      forecast.preset.id = name;
      forecast.preset.name = name;
      forecast.use[engine::MemoryCategory::kWeights] = std::uint64_t{3600} << 20U;
      forecast.use[engine::MemoryCategory::kKvCodes] = std::uint64_t{48800} << 20U;
      forecast.budgetBytes = std::uint64_t{16} << 30U;
      forecast.largestContext = 101'120;
      result.push_back(forecast);
    }
    return result;
  }
  /// Shown in a column of this width, as a panel shows it.
  static void showIn(QWidget& window, ui::ForecastTable& table, int width) {
    window.setFixedSize(width, 600);
    table.setFixedWidth(width);
    window.show();
    QCoreApplication::processEvents();
  }
  static void verifyVerdictsAreWhole(const ui::ForecastTable& table) {
    for (int row = 0; row < table.rowCount(); ++row) {
      const QRect cell = table.visualItemRect(table.item(row, kFitsColumn));
      QVERIFY2(cell.right() <= table.viewport()->width(), qPrintable(QString::number(row)));
      QVERIFY(cell.bottom() <= table.viewport()->height());
      const QString text = table.item(row, kFitsColumn)->text();
      const QRect needed = table.fontMetrics().boundingRect(QRect(0, 0, cell.width() - 6, 1000),
                                                            Qt::TextWordWrap, text);
      QVERIFY2(needed.width() <= cell.width() && needed.height() <= cell.height(),
               qPrintable(u"%1 in %2 x %3"_s.arg(text).arg(cell.width()).arg(cell.height())));
    }
  }

 private slots:
  void aWideTableShowsEverything() {
    QWidget window;
    ui::ForecastTable table(&window);
    showIn(window, table, 600);
    table.setForecasts(forecasts(), {2048, 200'000, u"Exact"_s});
    QCOMPARE(table.item(0, kFitsColumn)->text(), u"No, 101,120 at most"_s);
    QVERIFY(!table.isColumnHidden(kTotalColumn));
    verifyVerdictsAreWhole(table);
  }

  void inANarrowOneTheTotalGivesWayToTheVerdict() {
    QWidget window;
    ui::ForecastTable table(&window);
    showIn(window, table, 260);
    table.setForecasts(forecasts(), {2048, 200'000, u"Exact"_s});
    QVERIFY(table.isColumnHidden(kTotalColumn));
    verifyVerdictsAreWhole(table);
    QVERIFY(table.item(0, kFitsColumn)->toolTip().contains(u"in all 51.17 GiB"_s));
  }

  void itComesBackWhenThereIsRoom() {
    QWidget window;
    ui::ForecastTable table(&window);
    showIn(window, table, 260);
    table.setForecasts(forecasts(), {2048, 200'000, u"Exact"_s});
    const int narrowHeight = table.height();
    showIn(window, table, 600);
    QVERIFY(!table.isColumnHidden(kTotalColumn));
    QVERIFY(table.height() <= narrowHeight);
    verifyVerdictsAreWhole(table);
  }
};

QTEST_MAIN(ForecastTableTest)
#include "forecast_table_test.moc"
