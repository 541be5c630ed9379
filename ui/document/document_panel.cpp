#include "ui/document/document_panel.h"

#include <algorithm>

#include <QHBoxLayout>
#include <QLabel>
#include <QPlainTextEdit>
#include <QPushButton>
#include <QScrollArea>
#include <QStackedWidget>
#include <QVBoxLayout>

#include "ui/style/format.h"
#include "ui/style/named.h"
#include "ui/style/plain_widgets.h"
#include "ui/style/progress_card.h"
#include "ui/transcript/message_display.h"

using namespace Qt::StringLiterals;

namespace longhand::ui {

namespace {

constexpr int kMargin = 16;
constexpr int kSpacing = 8;

QLabel* makeLabel(QWidget* parent, const QString& objectName, const QString& accessibleName,
                  const QString& role) {
  auto* label = named(new QLabel(parent), objectName, accessibleName);
  label->setTextFormat(Qt::PlainText);  // file names are not markup
  label->setWordWrap(true);
  label->setMinimumWidth(1);
  label->setProperty("textRole", role);
  return label;
}

}  // namespace

DocumentPanel::DocumentPanel(QWidget* parent)
    : QWidget(parent),
      pages_(new QStackedWidget(this)),
      name_(makeLabel(this, u"documentName"_s, tr("Document"), u"title"_s)),
      facts_(makeLabel(this, u"documentFacts"_s, tr("About the document"), u"secondary"_s)),
      losses_(makeLabel(this, u"documentLosses"_s, tr("What was lost"), u"warning"_s)),
      advice_(makeLabel(this, u"documentAdvice"_s, tr("Advice"), u"plain"_s)),
      forecastTitle_(makeLabel(this, u"forecastTitle"_s, tr("Forecast"), u"heading"_s)),
      forecastHead_(new QHBoxLayout),
      forecasts_(new ForecastTable(this)),
      actions_(new QWidget(this)),
      firstActions_(new QHBoxLayout),
      moreActions_(new QHBoxLayout),
      readNow_(named(new QPushButton(tr("Read now")), u"documentReadButton"_s,
                     tr("Use in this chat and read now"))),
      useInChat_(named(new QPushButton(tr("Use in this chat")), u"documentUseButton"_s,
                       tr("Use in this chat, read with the first question"))),
      discard_(named(new QPushButton(tr("Cancel")), u"documentDiscardButton"_s,
                     tr("Do not use this document"))),
      remove_(named(new QPushButton(tr("Remove from this chat")), u"documentRemoveButton"_s,
                    tr("Remove from this chat"))),
      raiseContext_(named(new QPushButton(this), u"documentRaiseContextButton"_s,
                          tr("Set the context so that the document fits"))),
      checkQuality_(named(new QPushButton(tr("Check quality"), this), u"documentQualityButton"_s,
                          tr("Check what every preset loses on this document"))),
      progress_(new ProgressCard(u"documentProgress"_s, this)),
      text_(named(new QPlainTextEdit(this), u"documentText"_s, tr("Text of the document"))) {
  setObjectName(u"documentPanel"_s);
  setAccessibleName(tr("Document"));
  auto* layout = new QVBoxLayout(this);
  layout->setContentsMargins(0, 0, 0, 0);
  layout->addWidget(pages_);
  pages_->addWidget(makeEmptyPage());
  pages_->addWidget(makeDocumentPage());

  connect(readNow_, &QPushButton::clicked, this, &DocumentPanel::readRequested);
  connect(useInChat_, &QPushButton::clicked, this, &DocumentPanel::useRequested);
  connect(discard_, &QPushButton::clicked, this, &DocumentPanel::discardRequested);
  connect(remove_, &QPushButton::clicked, this, &DocumentPanel::removeRequested);
  connect(raiseContext_, &QPushButton::clicked, this,
          [this] { emit raiseContextRequested(contextToOffer_); });
  connect(checkQuality_, &QPushButton::clicked, this, &DocumentPanel::qualityCheckRequested);
  connect(progress_, &ProgressCard::cancelRequested, this, &DocumentPanel::cancelWorkRequested);
  showEmpty();
}

QWidget* DocumentPanel::makeEmptyPage() {
  auto* page = new QWidget(this);
  auto* text = makeLabel(page, u"documentEmptyText"_s, tr("No document"), u"secondary"_s);
  text->setText(
      tr("No document in this chat.\n\nOpen a text, Markdown or PDF file, or drop one here. You "
         "see what it needs before anything is computed."));
  text->setAlignment(Qt::AlignCenter);
  auto* open = named(new QPushButton(tr("Open a document"), page), u"documentOpenButton"_s,
                     tr("Open a document"));
  open->setToolTip(tr("Ctrl+O"));
  connect(open, &QPushButton::clicked, this, &DocumentPanel::openRequested);
  auto* layout = new QVBoxLayout(page);
  layout->setContentsMargins(24, 24, 24, 24);
  layout->setSpacing(16);
  layout->addStretch(2);
  layout->addWidget(text);
  layout->addWidget(open, 0, Qt::AlignHCenter);
  layout->addStretch(3);
  return page;
}

QWidget* DocumentPanel::makeDocumentPage() {
  auto* page = new QWidget(this);
  page->setObjectName(u"documentContent"_s);
  readNow_->setProperty("buttonRole", u"primary"_s);
  readNow_->setToolTip(tr("Compute the document's keys and values now: questions start at once."));
  checkQuality_->setToolTip(
      tr("Measures on a sample of this document what every preset loses: a minute or less."));
  useInChat_->setToolTip(tr("Add it to this chat; it is read with the first question."));
  forecastTitle_->setText(tr("What it would need"));
  text_->setReadOnly(true);
  text_->setFrameShape(QFrame::NoFrame);
  text_->setUndoRedoEnabled(false);
  text_->setTabChangesFocus(true);
  text_->setMinimumHeight(24);  // a low window keeps forecast and buttons whole, and scrolls

  auto* rows = new QVBoxLayout(actions_);
  rows->setContentsMargins(0, 0, 0, 0);
  rows->addLayout(firstActions_);
  rows->addLayout(moreActions_);
  for (QHBoxLayout* row : {firstActions_, moreActions_}) {
    row->setSpacing(kSpacing);
    row->addStretch(1);
  }
  int place = 0;
  for (QPushButton* button : {readNow_, useInChat_, remove_}) {
    firstActions_->insertWidget(place++, button);
  }
  arrangeActions();

  auto* head = new QVBoxLayout;
  head->setContentsMargins(kMargin, 14, kMargin, 4);
  head->setSpacing(6);
  for (QWidget* part : std::initializer_list<QWidget*>{name_, facts_, losses_}) {
    head->addWidget(part);
  }
  head->addSpacing(6);
  forecastHead_->addWidget(forecastTitle_, 1);
  forecastHead_->addWidget(checkQuality_);
  head->addLayout(forecastHead_);
  head->addWidget(forecasts_);
  head->addWidget(advice_);
  head->addWidget(raiseContext_, 0, Qt::AlignLeft);
  head->addSpacing(4);
  head->addWidget(actions_);
  head->addWidget(progress_);

  auto* layout = new QVBoxLayout(page);
  layout->setContentsMargins(0, 0, 0, 0);
  layout->setSpacing(8);
  layout->addLayout(head);
  layout->addWidget(text_, 1);

  return makeScroll(page, u"documentScroll"_s, tr("Document"), this);
}

void DocumentPanel::resizeEvent(QResizeEvent* event) {
  QWidget::resizeEvent(event);
  arrangeActions();
}

void DocumentPanel::arrangeActions() {
  constexpr int kScrollBarWidth = 12;
  const int needed = readNow_->sizeHint().width() + useInChat_->sizeHint().width() +
                     discard_->sizeHint().width() + 2 * kSpacing + 2 * kMargin + kScrollBarWidth;
  const bool isOneRow = needed <= width();
  firstActions_->removeWidget(discard_);
  moreActions_->removeWidget(discard_);
  (isOneRow ? firstActions_ : moreActions_)->insertWidget(isOneRow ? 2 : 0, discard_);
}

void DocumentPanel::showEmpty() {
  text_->clear();
  progress_->hide();
  pages_->setCurrentIndex(0);
}

void DocumentPanel::showCandidate(const DocumentSummary& summary, const DocumentAdvice& advice) {
  showSummary(summary);
  readNow_->setEnabled(advice.canUse);
  useInChat_->setEnabled(advice.canUse);
  useInChat_->show();
  discard_->show();
  readNow_->show();
  remove_->hide();
  advice_->setText(advice.text);
  advice_->setVisible(!advice.text.isEmpty());
  contextToOffer_ = advice.contextToOffer;
  raiseContext_->setText(tr("Set the context to %1").arg(formatTokens(contextToOffer_)));
  raiseContext_->setVisible(contextToOffer_ > 0);
  actions_->show();
}

void DocumentPanel::showInUse(const DocumentSummary& summary, const QString& state, bool canRead) {
  showSummary(summary);
  advice_->setText(state);
  advice_->setVisible(!state.isEmpty());
  setForecasts({}, {});
  raiseContext_->hide();
  readNow_->setEnabled(true);
  useInChat_->hide();
  discard_->hide();
  readNow_->setVisible(canRead);
  remove_->show();
  actions_->show();
}

void DocumentPanel::setForecasts(const std::vector<app::PresetForecast>& forecasts,
                                 const ForecastNeeds& needs) {
  forecasts_->setForecasts(forecasts, needs);
  forecasts_->setVisible(!forecasts.empty());
  forecastTitle_->setVisible(!forecasts.empty());
  forecastHead_->setAlignment(checkQuality_, forecasts.empty() ? Qt::AlignLeft : Qt::AlignRight);
}

void DocumentPanel::showSummary(const DocumentSummary& summary) {
  name_->setText(summary.name);
  QStringList facts;
  if (!summary.encoding.isEmpty()) facts << summary.encoding;
  facts << tr("%1 characters").arg(formatCount(summary.characters));
  facts << (summary.tokens >= 0 ? formatTokens(summary.tokens) : tr("tokens not counted yet"));
  facts_->setText(facts.join(u" \u00b7 "_s));
  losses_->setText(summary.losses.join(u'\n'));
  losses_->setVisible(!summary.losses.isEmpty());
  if (text_->toPlainText() != summary.text) text_->setPlainText(summary.text);
  progress_->hide();
  checkQuality_->setVisible(summary.tokens >= 0);
  pages_->setCurrentIndex(1);
}

void DocumentPanel::beginExamining(const QString& name) {
  name_->setText(name);
  facts_->clear();
  losses_->hide();
  advice_->hide();
  actions_->hide();
  raiseContext_->hide();
  checkQuality_->hide();
  setForecasts({}, {});
  text_->clear();
  pages_->setCurrentIndex(1);
  progress_->begin(tr("Opening the document"), tr("Extracting text and counting tokens"));
}

void DocumentPanel::beginReading(const QString& name) {
  actions_->hide();
  raiseContext_->hide();
  checkQuality_->hide();
  advice_->hide();
  pages_->setCurrentIndex(1);
  progress_->begin(tr("Reading %1").arg(name), tr("Starting"));
}

void DocumentPanel::setExaminingProgress(double share) { setShare(share, tr("Extracting text")); }

void DocumentPanel::setCountingProgress(double share) { setShare(share, tr("Counting tokens")); }

void DocumentPanel::setShare(double share, const QString& detail) {
  constexpr double kSteps = 1000.0;
  progress_->setProgress(static_cast<quint64>(share * kSteps), static_cast<quint64>(kSteps),
                         detail);
}

void DocumentPanel::setReadingProgress(const engine::PrefillProgress& progress) {
  progress_->setProgress(static_cast<quint64>(std::max<qint64>(0, progress.tokensDone)),
                         static_cast<quint64>(std::max<qint64>(0, progress.tokensTotal)),
                         readingFooter(progress));
}

void DocumentPanel::endWork() { progress_->hide(); }

}  // namespace longhand::ui
