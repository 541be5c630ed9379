#pragma once
// The two dialogs of the window that only tell something.

#include <QDialog>

namespace longhand::ui {

/// How to add Llama-2-7B (or any Llama in Hugging Face format).
class ModelHelpDialog final : public QDialog {
  Q_OBJECT
  Q_DISABLE_COPY_MOVE(ModelHelpDialog)

 public:
  /// `modelsFolder`: where models are looked for.
  ModelHelpDialog(const QString& modelsFolder, QWidget* parent);

 signals:
  void openModelRequested();
};

/// Version, licences of what is linked, where the data are.
class AboutDialog final : public QDialog {
  Q_OBJECT
  Q_DISABLE_COPY_MOVE(AboutDialog)

 public:
  AboutDialog(const QString& dataFolder, QWidget* parent);
};

}  // namespace longhand::ui
