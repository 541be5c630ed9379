#include "ui/quality/quality_dialog.h"

#include <QClipboard>
#include <QGuiApplication>
#include <QHBoxLayout>
#include <QLabel>
#include <QMimeData>
#include <QPushButton>
#include <QScrollArea>
#include <QShortcut>
#include <QStackedWidget>
#include <QVBoxLayout>

#include "ui/quality/quality_table.h"
#include "ui/quality/quality_words.h"
#include "ui/style/format.h"
#include "ui/style/named.h"
#include "ui/style/plain_widgets.h"
#include "ui/style/progress_card.h"

using namespace Qt::StringLiterals;

namespace longhand::ui {

namespace {

enum Page { kProgressPage, kFailurePage, kResultPage };

constexpr QSize kDialogSize(720, 560);

QLabel* makeLabel(QWidget* parent, const QString& objectName, const QString& accessibleName,
                  const QString& role) {
  auto* label = named(new QLabel(parent), objectName, accessibleName);
  label->setTextFormat(Qt::PlainText);  // file names are not markup
  label->setTextInteractionFlags(Qt::TextSelectableByMouse);
  label->setWordWrap(true);
  label->setMinimumWidth(1);
  label->setProperty("textRole", role);
  return label;
}

/// `parts` in the middle of a page of their own.
QWidget* makeCentredPage(QWidget* parent, std::initializer_list<QWidget*> parts) {
  auto* page = new QWidget(parent);
  auto* layout = new QVBoxLayout(page);
  layout->setContentsMargins(40, 0, 40, 0);
  layout->addStretch(2);
  for (QWidget* part : parts) layout->addWidget(part);
  layout->addStretch(3);
  return page;
}

}  // namespace

QualityDialog::QualityDialog(QWidget* parent)
    : QDialog(parent),
      pages_(new QStackedWidget(this)),
      progress_(new ProgressCard(u"qualityProgress"_s, this)),
      failure_(makeLabel(this, u"qualityFailure"_s, tr("Why there is no result"), u"heading"_s)),
      failureHint_(makeLabel(this, u"qualityFailureHint"_s, tr("What you can do"), u"secondary"_s)),
      verdict_(makeLabel(this, u"qualityVerdict"_s, tr("Result"), u"title"_s)),
      sample_(makeLabel(this, u"qualitySample"_s, tr("What was measured"), u"secondary"_s)),
      table_(new QualityTable(this)),
      caveat_(makeLabel(this, u"qualityCaveat"_s, tr("Note"), u"warning"_s)),
      meanings_(makeLabel(this, u"qualityMeanings"_s, tr("What the columns say"), u"secondary"_s)),
      copy_(named(new QPushButton(tr("Copy"), this), u"qualityCopyButton"_s,
                  tr("Copy the table and what was measured"))),
      again_(named(new QPushButton(tr("Check again"), this), u"qualityAgainButton"_s,
                   tr("Check again"))),
      close_(named(new QPushButton(tr("Close"), this), u"qualityCloseButton"_s, tr("Close"))) {
  named(this, u"qualityDialog"_s, tr("Check quality"));
  setWindowTitle(tr("Check quality"));
  copy_->setToolTip(tr("As text for a message, and as a table for a document (Ctrl+C)"));
  for (QPushButton* button : {copy_, again_}) button->setAutoDefault(false);
  setStyleProperty(*close_, "buttonRole", u"primary"_s);
  meanings_->setTextFormat(Qt::RichText);

  failure_->setAlignment(Qt::AlignCenter);
  failureHint_->setAlignment(Qt::AlignCenter);
  pages_->addWidget(makeCentredPage(this, {progress_}));
  pages_->addWidget(makeCentredPage(this, {failure_, failureHint_}));
  pages_->addWidget(makeResultPage());

  auto* buttons = new QHBoxLayout;
  buttons->addWidget(copy_);
  buttons->addWidget(again_);
  buttons->addStretch(1);
  buttons->addWidget(close_);
  auto* layout = new QVBoxLayout(this);
  layout->setContentsMargins(20, 18, 20, 16);
  layout->setSpacing(12);
  layout->addWidget(pages_, 1);
  layout->addLayout(buttons);
  resize(kDialogSize);

  connect(progress_, &ProgressCard::cancelRequested, this, &QualityDialog::cancelRequested);
  connect(copy_, &QPushButton::clicked, this, &QualityDialog::copy);
  connect(again_, &QPushButton::clicked, this, &QualityDialog::checkRequested);
  connect(close_, &QPushButton::clicked, this, &QualityDialog::reject);
  connect(new QShortcut(QKeySequence::Copy, this), &QShortcut::activated, this,
          &QualityDialog::copy);
  begin();
}

QWidget* QualityDialog::makeResultPage() {
  auto* page = new QWidget(this);
  page->setObjectName(u"qualityContent"_s);
  auto* layout = new QVBoxLayout(page);
  layout->setContentsMargins(0, 0, 0, 0);
  layout->setSpacing(10);
  for (QWidget* part : std::initializer_list<QWidget*>{verdict_, sample_, table_, caveat_}) {
    layout->addWidget(part);
  }
  layout->addSpacing(4);
  layout->addWidget(meanings_);
  layout->addStretch(1);
  return makeScroll(page, u"qualityScroll"_s, tr("Result"), this);
}

void QualityDialog::begin() {
  isChecking_ = true;
  result_.reset();
  copy_->hide();
  again_->hide();
  progress_->begin(tr("Measuring what every preset loses"), tr("Starting"));
  pages_->setCurrentIndex(kProgressPage);
}

void QualityDialog::setProgress(const app::QualityCheckProgress& progress) {
  if (!isChecking_) return;
  constexpr double kSteps = 1000.0;
  const bool isKnown = progress.step != app::QualityCheckStep::kTimingModel;
  progress_->setProgress(static_cast<quint64>(progress.share * kSteps),
                         isKnown ? static_cast<quint64>(kSteps) : 0, qualityStep(progress));
}

void QualityDialog::showResult(const app::QualityCheckResult& result,
                               const QString& currentPresetId) {
  endWork();
  result_ = result;
  verdict_->setText(qualityVerdict(result, currentPresetId));
  sample_->setText(qualitySample(result) + u' ' +
                   tr("It took %1.").arg(formatDuration(result.seconds)));
  table_->setResult(result, currentPresetId);
  const QString caveat = qualityCaveat(result);
  caveat_->setText(caveat);
  caveat_->setVisible(!caveat.isEmpty());
  QString meanings;
  for (int column = kQualityPreset + 1; column < kQualityColumnCount; ++column) {
    const QualityColumn each = qualityColumn(column, result);
    meanings += u"<p style=\"margin: 0 0 5px 0\"><b>%1</b> %2</p>"_s.arg(
        each.title.toHtmlEscaped(), each.meaning.toHtmlEscaped());
  }
  meanings_->setText(meanings);
  copy_->setText(tr("Copy"));
  copy_->show();
  pages_->setCurrentIndex(kResultPage);
}

void QualityDialog::showFailure(const QString& message, const QString& hint) {
  endWork();
  failure_->setText(message);
  failureHint_->setText(hint);
  failureHint_->setVisible(!hint.isEmpty());
  pages_->setCurrentIndex(kFailurePage);
}

void QualityDialog::endWork() {
  isChecking_ = false;
  again_->show();
  close_->setFocus(Qt::OtherFocusReason);
}

void QualityDialog::reject() {
  if (isChecking_) emit cancelRequested();
  QDialog::reject();
}

void QualityDialog::copy() {
  if (!result_) return;
  auto* copied = new QMimeData;  // the clipboard owns it
  copied->setText(qualityMarkdown(*result_));
  copied->setHtml(qualityHtml(*result_));
  QGuiApplication::clipboard()->setMimeData(copied);
  copy_->setText(tr("Copied"));
}

}  // namespace longhand::ui
