#include "ui/chat/welcome_panel.h"

#include <QGridLayout>
#include <QHBoxLayout>
#include <QLabel>
#include <QPushButton>
#include <QVBoxLayout>

#include "ui/style/named.h"

using namespace Qt::StringLiterals;

namespace longhand::ui {

namespace {

constexpr int kColumnWidth = 640;
constexpr int kButtonRowWidth = 480;   // two buttons and the margins
constexpr int kTwoColumnsWidth = 600;  // the longest sample question fits half of it

QLabel* makeText(QWidget* parent, const QString& objectName, const QString& role) {
  auto* label = new QLabel(parent);
  label->setObjectName(objectName);
  label->setProperty("textRole", role);
  label->setTextFormat(Qt::PlainText);  // file names are not markup
  label->setWordWrap(true);
  label->setMinimumWidth(1);
  return label;
}

}  // namespace

WelcomePanel::WelcomePanel(QWidget* parent)
    : QScrollArea(parent),
      title_(makeText(this, u"welcomeTitle"_s, u"display"_s)),
      text_(makeText(this, u"welcomeText"_s, u"plain"_s)),
      demoText_(makeText(this, u"welcomeDemoText"_s, u"secondary"_s)),
      modelHelp_(named(new QPushButton(tr("How to add Llama-2-7B"), this), u"modelHelpButton"_s,
                       tr("How to add Llama-2-7B"))),
      sampleDocument_(named(new QPushButton(tr("Open the sample document"), this),
                            u"sampleDocumentButton"_s, tr("Open the sample document"))),
      openDocument_(named(new QPushButton(tr("Open a document"), this),
                          u"welcomeOpenDocumentButton"_s, tr("Open a document"))),
      openModel_(named(new QPushButton(tr("Open a model folder"), this),
                       u"welcomeOpenModelButton"_s, tr("Open a model folder"))),
      demoModel_(named(new QPushButton(tr("Use the demonstration model"), this),
                       u"welcomeDemoModelButton"_s, tr("Use the demonstration model"))),
      questionsTitle_(makeText(this, u"questionsTitle"_s, u"section"_s)),
      questionArea_(new QWidget(this)),
      buttons_(new QBoxLayout(QBoxLayout::LeftToRight)) {
  named(this, u"welcomePanel"_s, tr("Empty chat"));
  setFrameShape(QFrame::NoFrame);
  setWidgetResizable(true);
  setFocusPolicy(Qt::NoFocus);
  setHorizontalScrollBarPolicy(Qt::ScrollBarAlwaysOff);

  buttons_->setSpacing(8);
  for (QPushButton* button : {sampleDocument_, openDocument_, openModel_, demoModel_}) {
    buttons_->addWidget(button);
  }
  buttons_->addStretch(1);
  auto* column = new QWidget;
  column->setMaximumWidth(kColumnWidth);
  auto* inColumn = new QVBoxLayout(column);
  inColumn->setContentsMargins(0, 0, 0, 0);
  inColumn->setSpacing(10);
  inColumn->addWidget(title_);
  inColumn->addWidget(text_);
  inColumn->addSpacing(6);
  inColumn->addLayout(buttons_);
  inColumn->addSpacing(14);
  inColumn->addWidget(questionsTitle_);
  inColumn->addWidget(questionArea_);
  inColumn->addSpacing(14);
  inColumn->addWidget(demoText_);
  inColumn->addWidget(modelHelp_, 0, Qt::AlignLeft);

  auto* content = new QWidget;
  content->setObjectName(u"welcomeContent"_s);
  auto* centred = new QHBoxLayout;
  centred->addStretch(1);
  centred->addWidget(column, 100);
  centred->addStretch(1);
  auto* layout = new QVBoxLayout(content);
  layout->setContentsMargins(28, 28, 28, 20);
  layout->addStretch(2);
  layout->addLayout(centred);
  layout->addStretch(3);
  setWidget(content);

  connect(sampleDocument_, &QPushButton::clicked, this, &WelcomePanel::sampleDocumentRequested);
  connect(openDocument_, &QPushButton::clicked, this, &WelcomePanel::openDocumentRequested);
  connect(openModel_, &QPushButton::clicked, this, &WelcomePanel::openModelRequested);
  connect(demoModel_, &QPushButton::clicked, this, &WelcomePanel::demoModelRequested);
  connect(modelHelp_, &QPushButton::clicked, this, &WelcomePanel::modelHelpRequested);
  setContent({});
}

void WelcomePanel::setContent(const WelcomeContent& content) {
  title_->setText(content.hasModel ? tr("Ask about a document") : tr("No model is loaded"));
  text_->setText(
      !content.hasModel ? tr("Open a folder with a Llama model in Hugging Face format, or use the "
                             "demonstration model.")
      : content.hasDocument
          ? tr("The document is part of this chat. Ask a question about it below.")
      : !content.openDocument.isEmpty()
          ? tr("Ask a question about %1 below: with it the document becomes part of this chat.")
                .arg(content.openDocument)
          : tr("Open a text, Markdown or PDF file, see what it needs, and ask. Everything stays on "
               "this machine."));
  const bool showsQuestions = content.hasModel && content.isDemo && !content.questions.isEmpty();
  sampleDocument_->setVisible(showsQuestions && !content.hasDocument);
  sampleDocument_->setProperty("buttonRole", u"primary"_s);
  openDocument_->setVisible(content.hasModel && !content.hasDocument);
  openModel_->setVisible(!content.hasModel);
  demoModel_->setVisible(!content.hasModel);
  demoText_->setText(
      tr("This is a very small demonstration model. It finds facts in simple English texts and "
         "repeats them; it knows nothing else and is often wrong on other documents."));
  demoText_->setVisible(content.isDemo);
  modelHelp_->setVisible(content.isDemo || !content.hasModel);
  questionsTitle_->setText(content.hasDocument ? tr("Sample questions")
                                               : tr("Sample questions on the sample document"));
  questionsTitle_->setVisible(showsQuestions);
  questionArea_->setVisible(showsQuestions);
  questionArea_->setEnabled(!content.isBusy);
  sampleDocument_->setEnabled(!content.isBusy);
  if (showsQuestions) setQuestions(content.questions);
}

void WelcomePanel::setQuestions(const QStringList& questions) {
  if (questions == questions_) return;
  questions_ = questions;
  qDeleteAll(questionArea_->findChildren<QPushButton*>());
  for (int i = 0; i < questions.size(); ++i) {
    const QString& question = questions[i];
    auto* button = named(new QPushButton(questionArea_), u"sampleQuestion%1"_s.arg(i), question);
    button->setText(QString(question).replace(u'&', u"&&"_s));
    button->setProperty("buttonRole", u"question"_s);
    button->setSizePolicy(QSizePolicy::Ignored, QSizePolicy::Fixed);
    button->setToolTip(question);
    connect(button, &QPushButton::clicked, this,
            [this, question] { emit questionChosen(question); });
  }
  nColumns_ = 0;
  arrangeQuestions();
}

void WelcomePanel::arrangeQuestions() {
  buttons_->setDirection(viewport()->width() >= kButtonRowWidth ? QBoxLayout::LeftToRight
                                                                : QBoxLayout::TopToBottom);
  const int nColumns = viewport()->width() >= kTwoColumnsWidth ? 2 : 1;
  if (nColumns == nColumns_) return;
  nColumns_ = nColumns;
  delete questionArea_->layout();
  auto* grid = new QGridLayout(questionArea_);
  grid->setContentsMargins(0, 0, 0, 0);
  grid->setSpacing(8);
  for (int i = 0; i < questions_.size(); ++i) {
    auto* button = questionArea_->findChild<QPushButton*>(u"sampleQuestion%1"_s.arg(i));
    grid->addWidget(button, i / nColumns, i % nColumns);
    button->show();
  }
}

void WelcomePanel::resizeEvent(QResizeEvent* event) {
  QScrollArea::resizeEvent(event);
  arrangeQuestions();
}

}  // namespace longhand::ui
