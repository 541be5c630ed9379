#include "app/forecast.h"

#include <QtTest>

#include "engine/cache/presets.h"

namespace longhand::app {

namespace {

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

std::vector<PresetInfo> builtIn() {
  std::vector<PresetInfo> presets;
  for (const engine::Preset& preset : engine::builtInPresets()) {
    presets.push_back({QString::fromStdString(preset.id), {}, {}, preset.cache, true});
  }
  return presets;
}

std::vector<PresetForecast> forecast(std::int64_t tokens, std::uint64_t budgetBytes) {
  ForecastRequest request;
  request.model = engine::shapeConfig("llama-2-7b");
  request.weights = engine::WeightFormat::kNf4;
  request.contextTokens = tokens;
  request.budgetBytes = budgetBytes;
  return forecastPresets(request, builtIn());
}

const PresetForecast& of(const std::vector<PresetForecast>& forecasts, QStringView id) {
  for (const PresetForecast& forecast : forecasts) {
    if (forecast.preset.id == id) return forecast;
  }
  qFatal("no such preset");
}

}  // namespace

/// The truths of DESIGN.md section 4: Llama-2-7B, 100,000 tokens.
class ForecastTest : public QObject {
  Q_OBJECT

 private slots:
  void a24GiBDeviceHolds100kTokensAtFourBitsButNotExactly() {
    const auto forecasts = forecast(100000, 24 * kGiB);
    QCOMPARE(forecasts.size(), engine::builtInPresets().size());
    QVERIFY(!of(forecasts, u"exact").fits);
    QVERIFY(!of(forecasts, u"throughput").fits);
    QVERIFY(of(forecasts, u"quality").fits);
    QVERIFY(of(forecasts, u"balanced").fits);
    QVERIFY(of(forecasts, u"memory-limit").fits);
  }

  void a16GiBDeviceNeedsFewerBitsAndAn8GiBDeviceCannotDoIt() {
    const auto on16 = forecast(100000, 16 * kGiB);
    QVERIFY(!of(on16, u"quality").fits);
    QVERIFY(of(on16, u"memory-limit").fits);
    for (const PresetForecast& each : forecast(100000, 8 * kGiB)) QVERIFY(!each.fits);
  }

  void theLargestContextFitsAndALittleMoreDoesNot() {
    for (const PresetForecast& each : forecast(4096, 16 * kGiB)) {
      QVERIFY2(each.largestContext > 4096, qPrintable(each.preset.id));
      const auto at = forecast(each.largestContext, 16 * kGiB);
      QVERIFY2(of(at, each.preset.id).fits, qPrintable(each.preset.id));
      const auto beyond = forecast(each.largestContext * 102 / 100, 16 * kGiB);
      QVERIFY2(!of(beyond, each.preset.id).fits, qPrintable(each.preset.id));
    }
  }

  void whereNotEvenTheWeightsFitThereIsNoContext() {
    for (const PresetForecast& each : forecast(1000, kGiB)) {
      QVERIFY(!each.fits);
      QCOMPARE(each.largestContext, std::int64_t{0});
      QVERIFY(each.use.total() > 3 * kGiB);  // the need is shown all the same
    }
  }
};

}  // namespace longhand::app

QTEST_GUILESS_MAIN(longhand::app::ForecastTest)
#include "forecast_test.moc"
