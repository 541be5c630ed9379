#pragma once
// The centre of the window: notices on top, then the chat (or what an empty one shows, or a model
// being loaded), progress of a reading, and the composer. Layout only; ChatPresenter fills it.

#include <QWidget>

#include "ui/style/theme.h"

class QStackedWidget;

namespace longhand::ui {

class Composer;
class FindBar;
class NoticeBar;
class ProgressCard;
class TranscriptView;
class WelcomePanel;

class ChatPane final : public QWidget {
  Q_OBJECT
  Q_DISABLE_COPY_MOVE(ChatPane)

 public:
  enum class Page { kLoading, kWelcome, kTranscript };

  ChatPane(const Theme& theme, QWidget* parent);

  void setTheme(const Theme& theme);
  void showPage(Page page);

  TranscriptView& transcript() { return *transcript_; }
  Composer& composer() { return *composer_; }
  FindBar& findBar() { return *findBar_; }
  NoticeBar& errorBar() { return *errorBar_; }
  NoticeBar& presetBar() { return *presetBar_; }
  WelcomePanel& welcome() { return *welcome_; }
  /// Loading a model.
  ProgressCard& loadingCard() { return *loadingCard_; }
  /// What the user is told without being asked.
  NoticeBar& noticeBar() { return *noticeBar_; }
  /// Converting a cache, opening a saved one.
  ProgressCard& workCard() { return *workCard_; }
  /// Reading the context again, after a switch of the preset.
  ProgressCard& readingCard() { return *readingCard_; }

 signals:
  void fileDropped(const QString& path);

 protected:
  void dragEnterEvent(QDragEnterEvent* event) override;
  void dropEvent(QDropEvent* event) override;

 private:
  NoticeBar* errorBar_;
  NoticeBar* presetBar_;
  NoticeBar* noticeBar_;
  QStackedWidget* pages_;
  QWidget* loadingPage_;
  ProgressCard* loadingCard_;
  WelcomePanel* welcome_;
  TranscriptView* transcript_;
  FindBar* findBar_;
  ProgressCard* workCard_;
  ProgressCard* readingCard_;
  Composer* composer_;
};

}  // namespace longhand::ui
