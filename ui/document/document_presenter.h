#pragma once
// Connects the controller with the document panel: opening, forecast, attaching, reading.

#include <QObject>

#include "app/chat_controller.h"

namespace longhand::ui {

class DocumentPanel;

class DocumentPresenter final : public QObject {
  Q_OBJECT
  Q_DISABLE_COPY_MOVE(DocumentPresenter)

 public:
  /// Both must outlive the presenter.
  DocumentPresenter(app::ChatController& controller, DocumentPanel& panel, QObject* parent);

  void open(const QString& path);
  void openSample();
  /// Shows a document of the open chat.
  void show(qint64 documentId);

 signals:
  /// The panel shows something the user asked for: bring it to the front.
  void panelWanted();
  /// A document is being opened: its preview, an error or documentDiscarded() follows.
  void openingStarted();
  /// A file dialog is needed.
  void openDialogRequested();
  void composerWanted();
  /// What every preset loses on the document is to be measured.
  void qualityCheckRequested();
  /// The panel shows the progress of the reading that begins or has ended.
  void readingHere(bool isHere);

 private:
  void showCandidate(const app::DocumentPreview& preview);
  void refresh();
  void showCurrent();
  void showReading(const engine::PrefillProgress& progress);
  void readNow();
  void endReading();
  void cancelWork();
  void raiseContext(qint64 contextLength);

  app::ChatController& controller_;
  DocumentPanel& panel_;
  qint64 shownDocument_ = 0;  // of the chat; 0: a candidate or none
  bool isReading_ = false;    // a reading that the panel began
  bool showsAsRead_ = false;  // the panel says that the context is read
  bool isOpening_ = false;    // from open() to the preview
};

}  // namespace longhand::ui
