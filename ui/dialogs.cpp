#include "ui/dialogs.h"

#include <QCoreApplication>
#include <QDialogButtonBox>
#include <QPushButton>
#include <QTextBrowser>
#include <QVBoxLayout>

#include "ui/style/named.h"

using namespace Qt::StringLiterals;

namespace longhand::ui {

namespace {

QTextBrowser* makeText(QWidget* parent, const QString& objectName, const QString& accessibleName,
                       const QString& html) {
  auto* text = named(new QTextBrowser(parent), objectName, accessibleName);
  text->setOpenLinks(false);  // Longhand opens no network connection, and no browser unasked
  text->setHtml(html);
  return text;
}

}  // namespace

ModelHelpDialog::ModelHelpDialog(const QString& modelsFolder, QWidget* parent) : QDialog(parent) {
  named(this, u"modelHelpDialog"_s, tr("How to add Llama-2-7B"));
  setWindowTitle(tr("How to add Llama-2-7B"));
  const QString html =
      tr("<p>The bundled model is a demonstration: 2 million parameters, 4 MiB. It finds facts in "
         "simple English texts and repeats them. For real documents add a real model.</p>"
         "<ol>"
         "<li>On <b>huggingface.co</b>, open <b>meta-llama/Llama-2-7b-chat-hf</b> and accept "
         "Meta's licence. Longhand itself opens no network connection.</li>"
         "<li>Download these files into one folder: <code>config.json</code>, "
         "<code>generation_config.json</code>, <code>tokenizer.model</code>, "
         "<code>model.safetensors.index.json</code> and all <code>model-*.safetensors</code> "
         "(about 12.6 GiB).</li>"
         "<li>Put the folder into<br><code>%1</code><br>and choose it in the menu under Models, "
         "or open it anywhere with Ctrl+L.</li>"
         "</ol>"
         "<p>Longhand keeps the weights in 4 bits (NF4): they need 3.6 GiB of memory. What the "
         "document needs on top depends on the preset: 100,000 tokens take 48.8 GiB with Exact, "
         "13.7 GiB with Quality, 10.7 GiB with Balanced. The forecast in the document panel says "
         "it for your document before anything is computed.</p>"
         "<p>Other models of the Llama family in Hugging Face format work too, for example "
         "TinyLlama-1.1B-Chat on a small machine.</p>")
          .arg(modelsFolder.toHtmlEscaped());
  auto* buttons = new QDialogButtonBox(QDialogButtonBox::Close, this);
  QPushButton* open =
      named(buttons->addButton(tr("Open a model folder"), QDialogButtonBox::ActionRole),
            u"modelHelpOpenButton"_s, tr("Open a model folder"));
  setStyleProperty(*open, "buttonRole", u"primary"_s);
  connect(buttons, &QDialogButtonBox::rejected, this, &QDialog::reject);
  connect(open, &QPushButton::clicked, this, [this] {
    accept();
    emit openModelRequested();
  });
  auto* layout = new QVBoxLayout(this);
  layout->addWidget(makeText(this, u"modelHelpText"_s, windowTitle(), html));
  layout->addWidget(buttons);
  resize(580, 470);
}

AboutDialog::AboutDialog(const QString& dataFolder, QWidget* parent) : QDialog(parent) {
  named(this, u"aboutDialog"_s, tr("About Longhand"));
  setWindowTitle(tr("About Longhand"));
  const QString html =
      tr("<h3>Longhand %1</h3>"
         "<p>Chat with very long documents on your own machine. Weights in 4 bits, a KV cache of "
         "8, 4 or 2 bits, and a strip that shows where every byte is.</p>"
         "<p>Nothing leaves this machine: the program opens no network connection.</p>"
         "<p>MIT licence. Uses Qt %2 (LGPL 3), sentencepiece (Apache 2.0), SQLite (public domain), "
         "nlohmann-json (MIT), md4c (MIT) and uchardet (MPL 1.1).</p>"
         "<p>Chats, documents and settings are in<br><code>%3</code></p>")
          .arg(QCoreApplication::applicationVersion(), QLatin1StringView(qVersion()),
               dataFolder.toHtmlEscaped());
  auto* buttons = new QDialogButtonBox(QDialogButtonBox::Close, this);
  connect(buttons, &QDialogButtonBox::rejected, this, &QDialog::reject);
  auto* layout = new QVBoxLayout(this);
  layout->addWidget(makeText(this, u"aboutText"_s, windowTitle(), html));
  layout->addWidget(buttons);
  resize(480, 340);
}

}  // namespace longhand::ui
