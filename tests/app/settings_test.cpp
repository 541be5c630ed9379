#include "app/settings.h"

#include <QSqlQuery>
#include <QTemporaryDir>
#include <QtTest>

#include "app/database.h"
#include "app/preset_store.h"
#include "engine/cache/presets.h"
#include "tests/app/error_check.h"

namespace longhand::app {

using engine::ErrorCode;
using tests::errorOf;

class SettingsTest : public QObject {
  Q_OBJECT

 private:
  QTemporaryDir folder_;
  std::unique_ptr<Database> database_;

  void replaceSetting(const QString& key, const QString& value) {
    QSqlQuery query =
        database_->prepare(QStringLiteral("UPDATE settings SET value = ? WHERE key = ?"));
    query.addBindValue(value);
    query.addBindValue(key);
    database_->run(query);
  }

 private slots:
  void init() {
    static int number = 0;
    database_ =
        std::make_unique<Database>(folder_.filePath(QStringLiteral("%1.sqlite").arg(++number)));
  }

  void allValuesComeBack() {
    Settings settings;
    settings.modelFolder = QStringLiteral("/models/Llama");
    settings.weights = engine::WeightFormat::kNf4NoDoubleQuantization;
    settings.presetId = QStringLiteral("balanced");
    settings.customCache.keyNbits = 8;
    settings.customCache.residualLength = 17;
    settings.customCache.solver = kernels::QuantSolver::kHqq;
    settings.customCache.scheme = kernels::QuantScheme::kSymmetric;
    settings.contextLength = 100000;
    settings.sampler = {0.5, 7, 0.5, 0.25, 1.5, 9, 0xFFFFFFFFFFFFFFFFU};
    settings.maxAnswerTokens = 321;
    settings.threads = 3;
    settings.lastConversationId = 12;
    settings.newChatDraft = QStringLiteral("What if");
    settings.windowGeometry = QByteArray("\0\1\2", 3);
    settings.windowState = QByteArray("\xFF\0", 2);
    SettingsStore(*database_).save(settings);

    QStringList reset;
    const Settings loaded = SettingsStore(*database_).load(&reset);
    QVERIFY2(reset.isEmpty(), qPrintable(reset.join(QLatin1Char(' '))));
    QCOMPARE(loaded.modelFolder, settings.modelFolder);
    QVERIFY(loaded.weights == settings.weights);
    QCOMPARE(loaded.presetId, settings.presetId);
    QVERIFY(loaded.customCache == settings.customCache);
    QCOMPARE(loaded.contextLength, settings.contextLength);
    QVERIFY(loaded.sampler == settings.sampler);
    QCOMPARE(loaded.maxAnswerTokens, settings.maxAnswerTokens);
    QCOMPARE(loaded.threads, settings.threads);
    QCOMPARE(loaded.lastConversationId, settings.lastConversationId);
    QCOMPARE(loaded.newChatDraft, settings.newChatDraft);
    QCOMPARE(loaded.windowGeometry, settings.windowGeometry);
    QCOMPARE(loaded.windowState, settings.windowState);
  }

  void aDamagedValueCostsOnlyItself() {
    Settings settings;
    settings.contextLength = 5000;
    SettingsStore(*database_).save(settings);
    const QList<QPair<QString, QString>> damage = {
        {QStringLiteral("threads"), QStringLiteral("-3")},
        {QStringLiteral("temperature"), QStringLiteral("hot")},
        {QStringLiteral("top_p"), QStringLiteral("9")},
        {QStringLiteral("weights"), QStringLiteral("nf5")},
        {QStringLiteral("custom_cache"), QStringLiteral("{\"key_bits\": 5}")}};
    for (const auto& [key, value] : damage) {
      replaceSetting(key, value);
    }
    QStringList reset;
    const Settings loaded = SettingsStore(*database_).load(&reset);
    QCOMPARE(reset.size(), damage.size());
    QCOMPARE(loaded.threads, 0);
    QVERIFY(loaded.sampler == engine::SamplerConfig());
    QVERIFY(loaded.weights == engine::WeightFormat::kAuto);
    QVERIFY(loaded.customCache == engine::KvCacheConfig());
    QCOMPARE(loaded.contextLength, std::int64_t{5000});
  }

  void valuesOutOfRangeAreNotStored() {
    SettingsStore store(*database_);
    Settings settings;
    settings.threads = 2;
    store.save(settings);
    settings.threads = 4;
    settings.sampler.topP = 3.0;
    LONGHAND_COMPARE_CODE(errorOf([&] { store.save(settings); }), ErrorCode::kInvalidArgument);
    settings.sampler.topP = 0.5;
    settings.contextLength = -1;
    LONGHAND_COMPARE_CODE(errorOf([&] { store.save(settings); }), ErrorCode::kInvalidArgument);
    QCOMPARE(store.load().threads, 2);
  }

  void theUsersPresetsStandBehindTheBuiltInOnes() {
    PresetStore store(*database_);
    const std::size_t nBuiltIn = engine::builtInPresets().size();
    QCOMPARE(store.presets().size(), nBuiltIn);
    engine::KvCacheConfig cache;
    cache.keyNbits = 8;
    cache.valueNbits = 2;
    const QString id = store.addUserPreset(QStringLiteral("  My own "), cache);
    const std::vector<PresetInfo> presets = store.presets();
    QCOMPARE(presets.size(), nBuiltIn + 1);
    QCOMPARE(presets.back().id, id);
    QCOMPARE(presets.back().name, QStringLiteral("My own"));
    QVERIFY(presets.back().cache == cache);
    QVERIFY(!presets.back().builtIn);
    QVERIFY(presets.front().builtIn);

    cache.groupSize = 65;
    LONGHAND_COMPARE_CODE(errorOf([&] { store.addUserPreset(QStringLiteral("bad"), cache); }),
                          ErrorCode::kInvalidArgument);
    LONGHAND_COMPARE_CODE(errorOf([&] { store.addUserPreset(QStringLiteral(" "), {}); }),
                          ErrorCode::kInvalidArgument);
    store.removeUserPreset(QStringLiteral("quality"));  // built-in ones stay
    store.removeUserPreset(id);
    QCOMPARE(store.presets().size(), nBuiltIn);
  }

  void whatEarlierVersionsStoredIsStillRead() {
    const QString stored = QStringLiteral(
        R"({"first_layers":3,"first_layers_key_bits":16,"first_layers_value_bits":8,)"
        R"("group_size":32,"key_bits":8,"residual_length":17,"scheme":"symmetric",)"
        R"("sink_length":9,"sliding_window":20000,"solver":"hqq","value_bits":2})");
    engine::KvCacheConfig expected{8, 2, 32, 17, 9, 20000, 3, 16, 8};
    expected.scheme = static_cast<decltype(expected.scheme)>(1);
    expected.solver = static_cast<decltype(expected.solver)>(1);
    QVERIFY(cacheConfigFromJson(stored) == expected);
    QCOMPARE(cacheConfigToJson(expected), stored);

    SettingsStore(*database_).save(Settings());
    // Before there was a sliding window.
    replaceSetting(QStringLiteral("custom_cache"),
                   QStringLiteral(R"({"key_bits":8,"scheme":"asymmetric","solver":"minmax"})"));
    replaceSetting(QStringLiteral("weights"), QStringLiteral("nf4-no-double-quantization"));
    QSqlQuery preset = database_->prepare(
        QStringLiteral("INSERT INTO user_presets (name, cache) VALUES ('Old', ?)"));
    preset.addBindValue(stored);
    database_->run(preset);

    QStringList reset;
    const Settings loaded = SettingsStore(*database_).load(&reset);
    QVERIFY2(reset.isEmpty(), qPrintable(reset.join(QLatin1Char(' '))));
    QVERIFY(loaded.weights == engine::WeightFormat::kNf4NoDoubleQuantization);
    QCOMPARE(loaded.customCache.keyNbits, 8);
    QCOMPARE(loaded.customCache.residualLength, engine::KvCacheConfig().residualLength);
    const std::vector<PresetInfo> presets = PresetStore(*database_).presets();
    QCOMPARE(presets.back().name, QStringLiteral("Old"));
    QVERIFY(presets.back().cache == expected);
    QCOMPARE(presets.back().description,
             QStringLiteral("K8 V2, groups of 32, residual 17, first 3 layers K16 V8, window of "
                            "20000 tokens."));
  }

  void unknownCacheSettingsAreRefusedWithASentence() {
    const auto refusal = [](const char* json) -> std::string {
      try {
        cacheConfigFromJson(QString::fromUtf8(json));
      } catch (const engine::Error& error) {
        return error.code() == ErrorCode::kFileDamaged ? error.message() : "wrong code";
      }
      return "";
    };
    QCOMPARE(refusal(R"({"solver": "best"})"),
             std::string("\"solver\" has an unknown value; it must be minmax or hqq."));
    QCOMPARE(refusal(R"({"scheme": 1})"),
             std::string("\"scheme\" has an unknown value; it must be asymmetric or symmetric."));
    QCOMPARE(refusal(R"({"key_bits": "4"})"), std::string("\"key_bits\" is no whole number."));
    QCOMPARE(refusal(R"({"keybits": 4})"), std::string("\"keybits\" is no setting of the cache."));
    QCOMPARE(refusal(R"({"id": "mine"})"), std::string("\"id\" is no setting of the cache."));
    QCOMPARE(refusal(R"({"residual_length": 4097})"),
             std::string("\"residual_length\" (the residual length) must be between 0 and 4096, "
                         "not 4097."));
    QCOMPARE(refusal(R"({"sink_length": 18446744073709551615})"),
             std::string("\"sink_length\" must be between 0 and 4096."));
    QCOMPARE(refusal("4/2"), std::string("Cache settings are no JSON."));
    QCOMPARE(refusal("[]"), std::string("Cache settings are no object."));
  }

  void theDefaultPresetExists() {
    bool exists = false;
    for (const PresetInfo& preset : PresetStore(*database_).presets()) {
      exists = exists || preset.id == Settings().presetId;
    }
    QVERIFY(exists);
    QCOMPARE(Settings().presetId.toStdString(), std::string(engine::kDefaultPresetId));
  }
};

}  // namespace longhand::app

QTEST_GUILESS_MAIN(longhand::app::SettingsTest)
#include "settings_test.moc"
