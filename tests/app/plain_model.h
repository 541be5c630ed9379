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

/// The same, with the byte 0 for the end of text: no answer comes to an end before the context is
/// full, however fast the machine is.
inline QString makeEndlessModel(const QString& parent) {
  const QString folder = makePlainModel(parent + QStringLiteral("/endless"));
  QFile config(folder + QStringLiteral("/generation_config.json"));
  config.remove();  // the link
  if (config.open(QIODevice::WriteOnly)) config.write(R"({"eos_token_id": 3, "do_sample": true})");
  return folder;
}

}  // namespace longhand::tests
