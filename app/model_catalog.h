#pragma once
// Where models are: the bundled demonstration model with its sample document, and the user's own.

#include <optional>
#include <vector>

#include <QString>
#include <QStringList>

namespace longhand::app {

/// A model folder that brings its own sample document and questions is a demonstration: the window
/// says so, and it decodes greedily.
struct DemoModel {
  QString folder;
  QString documentPath;
  QStringList questions;
};

struct ModelEntry {
  QString folder;
  QString name;  // for people
  bool isDemo = false;
};

/// Folders where the bundled model may lie, best first: beside an installed program
/// (EXECUTABLE/../share/longhand), under the compiled install prefix, in the source tree.
QStringList demoModelCandidates(const QString& executableFolder);
/// The first candidate that holds a demonstration model.
std::optional<DemoModel> findDemoModel(const QStringList& candidates);
/// Nothing when the folder is no demonstration model.
std::optional<DemoModel> readDemoModel(const QString& modelFolder);

/// Subfolders of `modelsFolder` that hold a config.json, by name. Empty when there is no folder.
std::vector<ModelEntry> listModels(const QString& modelsFolder);

}  // namespace longhand::app
