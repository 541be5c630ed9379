#include "ui/style/progress_card.h"

#include <QHBoxLayout>
#include <QLabel>
#include <QProgressBar>
#include <QPushButton>
#include <QVBoxLayout>

#include "ui/style/named.h"

using namespace Qt::StringLiterals;

namespace longhand::ui {

namespace {
// The bar counts in parts of a thousand: byte counts do not fit its int.
constexpr int kBarSteps = 1000;
}  // namespace

ProgressCard::ProgressCard(const QString& objectName, QWidget* parent)
    : QFrame(parent),
      title_(named(new QLabel(this), objectName + u"Title"_s, tr("Task"))),
      bar_(named(new QProgressBar(this), objectName + u"Bar"_s, tr("Progress"))),
      detail_(named(new QLabel(this), objectName + u"Detail"_s, tr("Progress in words"))),
      cancel_(named(new QPushButton(tr("Cancel"), this), objectName + u"Cancel"_s, tr("Cancel"))) {
  setObjectName(objectName);
  title_->setProperty("textRole", u"heading"_s);
  detail_->setProperty("textRole", u"secondary"_s);
  for (QLabel* label : {title_, detail_}) {
    label->setTextFormat(Qt::PlainText);
    label->setWordWrap(true);
    label->setMinimumWidth(1);
  }
  bar_->setTextVisible(false);
  bar_->setRange(0, kBarSteps);

  auto* line = new QHBoxLayout;
  line->setSpacing(12);
  line->addWidget(detail_, 1);
  line->addWidget(cancel_);
  auto* layout = new QVBoxLayout(this);
  layout->setContentsMargins(14, 12, 14, 12);
  layout->setSpacing(8);
  layout->addWidget(title_);
  layout->addWidget(bar_);
  layout->addLayout(line);
  connect(cancel_, &QPushButton::clicked, this, [this] {
    setCancelling();
    emit cancelRequested();
  });
  hide();
}

void ProgressCard::begin(const QString& title, const QString& detail) {
  title_->setText(title);
  setAccessibleName(title);
  cancel_->setEnabled(true);
  cancel_->setText(tr("Cancel"));
  setProgress(0, 0, detail);
  show();
}

void ProgressCard::setProgress(quint64 done, quint64 total, const QString& detail) {
  bar_->setRange(0, total == 0 ? 0 : kBarSteps);
  if (total > 0) {
    const double share = static_cast<double>(done) / static_cast<double>(total);
    bar_->setValue(static_cast<int>(share * kBarSteps));
  }
  detail_->setText(detail);
  bar_->setAccessibleDescription(detail);
}

void ProgressCard::setCancelling() {
  cancel_->setEnabled(false);
  cancel_->setText(tr("Cancelling"));
}

}  // namespace longhand::ui
