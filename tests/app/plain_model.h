#pragma once
// The bundled model as a plain one: without its sample files, so that it is sampled like any other
// and can be made to talk until its context is full.

#include <QDir>
#include <QFile>
#include <QString>

#include "tests/support/paths.h"

namespace longhand::tests {

inline QString demoFolder() {
  return QString::fromStdString(resourcePath("longhand-demo").string());
}

/// Links the model's own files into a new folder below `parent`, and returns that folder.
inline QString makePlainModel(const QString& parent) {
  const QString folder = parent + QStringLiteral("/plain-model");
  QDir().mkpath(folder);
  for (const QString& name :
       {QStringLiteral("config.json"), QStringLiteral("generation_config.json"),
        QStringLiteral("model.safetensors"), QStringLiteral("tokenizer.model"),
        QStringLiteral("tokenizer_config.json"), QStringLiteral("special_tokens_map.json")}) {
    QFile::link(demoFolder() + QLatin1Char('/') + name, folder + QLatin1Char('/') + name);
  }
  return folder;
}

}  // namespace longhand::tests
