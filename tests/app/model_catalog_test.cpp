#include "app/model_catalog.h"

#include <QDir>
#include <QFile>
#include <QTemporaryDir>
#include <QtTest>

#include "tests/app/plain_model.h"

namespace longhand::app {

namespace {

void write(const QString& path, const QByteArray& bytes) {
  QFile file(path);
  if (!file.open(QIODevice::WriteOnly) || file.write(bytes) != bytes.size()) qFatal("write");
}

}  // namespace

class ModelCatalogTest : public QObject {
  Q_OBJECT

 private slots:
  void theBundledModelIsFoundInTheSourceTree() {
    const QStringList candidates = demoModelCandidates(QStringLiteral("/opt/longhand/bin"));
    QCOMPARE(candidates.front(), QStringLiteral("/opt/longhand/share/longhand/longhand-demo"));
    const auto demo = findDemoModel(candidates);
    QVERIFY(demo.has_value());
    QVERIFY(QFile::exists(demo->documentPath));
    QCOMPARE(demo->questions.size(), 8);
    QCOMPARE(demo->questions.front(), QStringLiteral("Who keeps the green ledger?"));
    QVERIFY(!findDemoModel({QStringLiteral("/no/such/folder"), QString()}).has_value());
  }

  void onlyAFolderWithItsOwnSamplesIsADemonstration() {
    QTemporaryDir folder;
    QVERIFY(!readDemoModel(tests::makePlainModel(folder.path())).has_value());
    const QString bad = folder.filePath(QStringLiteral("bad"));
    QDir().mkpath(bad);
    write(bad + QStringLiteral("/config.json"), "{}");
    write(bad + QStringLiteral("/sample-questions.json"), "{\"document\": \"../../etc/passwd\"}");
    QVERIFY(!readDemoModel(bad).has_value());
    write(bad + QStringLiteral("/sample-questions.json"), "not json");
    QVERIFY(!readDemoModel(bad).has_value());
  }

  void theUsersModelsAreTheSubfoldersWithAConfig() {
    QTemporaryDir folder;
    tests::makePlainModel(folder.path());
    QDir().mkpath(folder.filePath(QStringLiteral("empty")));
    const std::vector<ModelEntry> models = listModels(folder.path());
    QCOMPARE(models.size(), std::size_t{1});
    QCOMPARE(models.front().name, QStringLiteral("plain-model"));
    QVERIFY(!models.front().isDemo);
    QVERIFY(listModels(folder.filePath(QStringLiteral("missing"))).empty());
  }
};

}  // namespace longhand::app

QTEST_GUILESS_MAIN(longhand::app::ModelCatalogTest)
#include "model_catalog_test.moc"
