#include "ui/status_line.h"

#include <QHBoxLayout>
#include <QLabel>
#include <QPushButton>
#include <QTimer>

#include "app/chat_controller.h"
#include "ui/style/format.h"
#include "ui/style/named.h"

using namespace Qt::StringLiterals;

namespace longhand::ui {

namespace {
constexpr int kBriefNoticeMs = 2500;
}

using app::Activity;
using app::ChatController;

StatusLine::StatusLine(ChatController& controller, QWidget* parent)
    : QWidget(parent),
      controller_(controller),
      activity_(named(new QLabel(this), u"statusActivity"_s, tr("Activity"))),
      speed_(named(new QLabel(this), u"statusSpeed"_s, tr("Speed of the last answer"))),
      device_(named(new QLabel(this), u"statusDevice"_s, tr("Computing on"))),
      whyNotDevice_(named(new QPushButton(tr("Why no GPU?"), this), u"statusWhyNotDevice"_s,
                          tr("Why not the graphics card?"))) {
  setObjectName(u"statusLine"_s);
  auto* layout = new QHBoxLayout(this);
  layout->setContentsMargins(14, 0, 14, 6);
  layout->setSpacing(18);
  layout->addWidget(activity_, 1);
  layout->addWidget(speed_);
  layout->addWidget(device_);
  layout->addWidget(whyNotDevice_);
  whyNotDevice_->setProperty("buttonRole", u"link"_s);
  connect(whyNotDevice_, &QPushButton::clicked, this, &StatusLine::deviceReasonWanted);
  for (QLabel* label : {activity_, speed_, device_}) {
    label->setProperty("textRole", u"secondary"_s);
    label->setTextFormat(Qt::PlainText);
  }
  connect(&controller_, &ChatController::activityChanged, this, &StatusLine::showActivity);
  connect(&controller_, &ChatController::modelLoaded, this, &StatusLine::showActivity);
  connect(&controller_, &ChatController::modelFailed, this, &StatusLine::showActivity);
  connect(&controller_, &ChatController::deviceChanged, this, &StatusLine::showActivity);
  connect(&controller_, &ChatController::generationFinished, this,
          [this](qint64, const app::MessageStatistics& statistics) { showStatistics(statistics); });
  connect(&controller_, &ChatController::conversationOpened, this, [this] {
    const std::vector<app::Message> messages = controller_.messages();
    showStatistics(messages.empty() ? app::MessageStatistics() : messages.back().statistics);
  });
  showActivity();
}

void StatusLine::showActivity() {
  const auto text = [this] {
    switch (controller_.activity()) {
      case Activity::kLoadingModel:
        return tr("Loading the model");
      case Activity::kReading:
        return tr("Reading the context. Esc stops.");
      case Activity::kAnswering:
        return tr("Answering. Esc stops.");
      case Activity::kSwitchingPreset:
        return tr("Switching the preset. Esc stops.");
      case Activity::kRestoring:
        return tr("Opening the saved document. Esc stops.");
      case Activity::kCheckingQuality:
        return tr("Checking the quality. Esc stops.");
      case Activity::kIdle:
        break;
    }
    return controller_.model() ? tr("Ready") : tr("No model is loaded");
  };
  activity_->setText(text());
  const std::optional<app::ModelInfo> model = controller_.model();
  device_->setText(model ? model->backendDescription : QString());
  device_->setToolTip(model ? model->whyNotDevice : QString());
  device_->setAccessibleDescription(device_->toolTip());
  whyNotDevice_->setVisible(!device_->toolTip().isEmpty());
  whyNotDevice_->setToolTip(device_->toolTip());
}

void StatusLine::showStatistics(const app::MessageStatistics& statistics) {
  if (statistics.answerTokens == 0) {
    speed_->clear();
    return;
  }
  QString text = formatRate(statistics.tokensPerSecond);
  if (statistics.firstTokenSeconds > 0.0) {
    text += u" \u00b7 "_s +
            tr("first token after %1").arg(formatDuration(statistics.firstTokenSeconds));
  }
  speed_->setText(text);
}

void StatusLine::showBriefly(const QString& text) {
  activity_->setText(text);
  QTimer::singleShot(kBriefNoticeMs, this, &StatusLine::showActivity);
}

}  // namespace longhand::ui
