#include "app/model_catalog.h"

#include <QDir>
#include <QFile>
#include <QFileInfo>
#include <QJsonArray>
#include <QJsonDocument>
#include <QJsonObject>

namespace longhand::app {

QStringList demoModelCandidates(const QString& executableFolder) {
  const QString demo = QStringLiteral("longhand-demo");
  QStringList folders;
  folders << QDir::cleanPath(executableFolder + QStringLiteral("/../share/longhand/") + demo)
          << QDir::cleanPath(QStringLiteral(LONGHAND_INSTALL_PREFIX "/share/longhand/") + demo)
          << QDir::cleanPath(QStringLiteral(LONGHAND_SOURCE_DIR "/resources/") + demo);
  folders.removeDuplicates();
  return folders;
}

std::optional<DemoModel> findDemoModel(const QStringList& candidates) {
  for (const QString& folder : candidates) {
    if (auto demo = readDemoModel(folder)) return demo;
  }
  return std::nullopt;
}

std::optional<DemoModel> readDemoModel(const QString& modelFolder) {
  if (modelFolder.isEmpty()) return std::nullopt;
  const QDir folder(modelFolder);
  if (!folder.exists(QStringLiteral("config.json"))) return std::nullopt;
  QFile file(folder.filePath(QStringLiteral("sample-questions.json")));
  if (!file.open(QIODevice::ReadOnly)) return std::nullopt;
  const QJsonObject root = QJsonDocument::fromJson(file.readAll()).object();
  const QString documentName = root.value(u"document").toString();
  // A name only: the file lies in the model's folder, nowhere else.
  if (documentName.isEmpty() || QFileInfo(documentName).fileName() != documentName ||
      !folder.exists(documentName)) {
    return std::nullopt;
  }
  DemoModel demo;
  demo.folder = folder.absolutePath();
  demo.documentPath = folder.absoluteFilePath(documentName);
  for (const QJsonValue& entry : root.value(u"questions").toArray()) {
    const QString question = entry.toObject().value(u"question").toString();
    if (!question.isEmpty()) demo.questions.append(question);
  }
  return demo;
}

std::vector<ModelEntry> listModels(const QString& modelsFolder) {
  std::vector<ModelEntry> models;
  if (modelsFolder.isEmpty()) return models;
  const QDir root(modelsFolder);
  for (const QString& name : root.entryList(QDir::Dirs | QDir::NoDotAndDotDot, QDir::Name)) {
    const QString folder = root.absoluteFilePath(name);
    if (!QFileInfo::exists(folder + QStringLiteral("/config.json"))) continue;
    models.push_back({folder, name, readDemoModel(folder).has_value()});
  }
  return models;
}

}  // namespace longhand::app
