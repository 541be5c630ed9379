#include "app/document_reader.h"

#include <algorithm>
#include <utility>

#include <QFile>
#include <QFileInfo>
#include <QLocale>
#include <QPdfDocument>
#include <QPdfSelection>
#include <QTextDocument>
#include <QUrl>
#include <QVariant>

#include "app/text_decoding.h"

namespace longhand::app {

using engine::ErrorCode;

namespace {

constexpr qint64 kReadBlockBytes = 1 << 20;  // between two looks at the stop token

const QString kWhatCanBeOpened =
    QStringLiteral("Longhand opens plain text, Markdown, HTML, source code, and PDF.");

const QStringList& sourceSuffixes() {
  static const QStringList suffixes = {
      QStringLiteral("c"),   QStringLiteral("h"),     QStringLiteral("cpp"), QStringLiteral("hpp"),
      QStringLiteral("cc"),  QStringLiteral("cs"),    QStringLiteral("css"), QStringLiteral("csv"),
      QStringLiteral("cu"),  QStringLiteral("go"),    QStringLiteral("htm"), QStringLiteral("html"),
      QStringLiteral("ini"), QStringLiteral("java"),  QStringLiteral("js"),  QStringLiteral("json"),
      QStringLiteral("kt"),  QStringLiteral("log"),   QStringLiteral("lua"), QStringLiteral("php"),
      QStringLiteral("pl"),  QStringLiteral("py"),    QStringLiteral("r"),   QStringLiteral("rb"),
      QStringLiteral("rs"),  QStringLiteral("rst"),   QStringLiteral("sh"),  QStringLiteral("sql"),
      QStringLiteral("srt"), QStringLiteral("swift"), QStringLiteral("tex"), QStringLiteral("toml"),
      QStringLiteral("ts"),  QStringLiteral("tsv"),   QStringLiteral("xml"), QStringLiteral("yaml"),
      QStringLiteral("yml")};
  return suffixes;
}

bool isHtml(const QString& fileName) {
  const QString suffix = QFileInfo(fileName).suffix();
  return suffix.compare(u"html", Qt::CaseInsensitive) == 0 ||
         suffix.compare(u"htm", Qt::CaseInsensitive) == 0 ||
         suffix.compare(u"xhtml", Qt::CaseInsensitive) == 0;
}

void stopIfRequested(const std::stop_token& stop, const QString& fileName) {
  if (stop.stop_requested()) {
    throwError(ErrorCode::kCancelled, QStringLiteral("Reading %1 was cancelled.").arg(fileName));
  }
}

void refuseTooLarge(const QFileInfo& info, qint64 limitBytes) {
  if (info.size() <= limitBytes) return;
  const QLocale locale = QLocale::c();
  throwError(ErrorCode::kInvalidArgument,
             QStringLiteral("%1: %2 is too large; the limit is %3.")
                 .arg(info.fileName(), locale.formattedDataSize(info.size()),
                      locale.formattedDataSize(limitBytes)),
             QStringLiteral("Split the file, or take the part that matters."));
}

void refuseEmpty(const DocumentContent& content) {
  const bool hasText =
      std::any_of(content.text.cbegin(), content.text.cend(), [](QChar c) { return !c.isSpace(); });
  if (hasText) return;
  if (content.pages > 0) {
    throwError(ErrorCode::kInvalidArgument,
               QStringLiteral("%1: none of its %2 pages has text; they may be scanned images.")
                   .arg(content.fileName)
                   .arg(content.pages),
               QStringLiteral("Run a text recognition (OCR) over it first."));
  }
  throwError(ErrorCode::kInvalidArgument, QStringLiteral("%1 is empty.").arg(content.fileName));
}

/// Line ends become \n. Other control characters than tabs mean nothing to a model.
QString cleanText(QString text) {
  text.replace(QStringLiteral("\r\n"), QStringLiteral("\n"));
  text.replace(QLatin1Char('\r'), QLatin1Char('\n'));
  text.removeIf([](QChar c) {
    return (c < QLatin1Char(' ') && c != QLatin1Char('\n') && c != QLatin1Char('\t')) ||
           c == QChar(0x7F);
  });
  return text;
}

QByteArray readBytes(QFile& file, const QString& fileName, const DocumentProgress& progress,
                     const std::stop_token& stop) {
  QByteArray bytes;
  const qint64 total = std::max<qint64>(1, file.size());
  for (;;) {
    stopIfRequested(stop, fileName);
    const QByteArray block = file.read(kReadBlockBytes);
    if (block.isEmpty()) break;
    bytes += block;
    if (bytes.size() > kMaxTextFileBytes) break;  // grew while it was read
    if (progress) progress(static_cast<double>(bytes.size()) / static_cast<double>(total));
  }
  if (file.error() != QFileDevice::NoError) {
    throwError(ErrorCode::kFileUnreadable,
               QStringLiteral("%1: cannot be read (%2).").arg(fileName, file.errorString()));
  }
  return bytes;
}

/// Nothing but the text of the page: images and style sheets beside it are not opened.
class HtmlText final : public QTextDocument {
 protected:
  QVariant loadResource(int /*type*/, const QUrl& /*name*/) override { return {}; }
};

void extractHtml(DocumentContent& content) {
  HtmlText page;
  page.setUndoRedoEnabled(false);
  page.setHtml(content.text);
  QString text = page.toPlainText();
  text.remove(QChar::ObjectReplacementCharacter);  // where an image was
  content.text = text.trimmed();
  content.notes << QStringLiteral("Only the text of the page is read, without images and layout.");
}

void readText(DocumentContent& content, QFile& file, const DocumentProgress& progress,
              const std::stop_token& stop) {
  const QByteArray bytes = readBytes(file, content.fileName, progress, stop);
  if (!looksLikeText(bytes)) {
    throwError(ErrorCode::kInvalidArgument,
               QStringLiteral("%1 is not a text file.").arg(content.fileName), kWhatCanBeOpened);
  }
  DecodedText decoded = decodeText(bytes);
  stopIfRequested(stop, content.fileName);
  content.text = cleanText(std::move(decoded.text));
  content.encoding = decoded.encoding;
  if (isHtml(content.fileName)) extractHtml(content);
  if (decoded.guessed) {
    content.notes << QStringLiteral("The encoding was guessed: %1.").arg(decoded.encoding);
  }
  if (decoded.badCharacters > 0) {
    content.notes << QStringLiteral("Characters that cannot be read in this encoding: %1.")
                         .arg(decoded.badCharacters);
  }
}

void openPdf(QPdfDocument& pdf, const DocumentContent& content) {
  using PdfError = QPdfDocument::Error;
  switch (pdf.load(content.path)) {
    case PdfError::None:
      return;
    case PdfError::FileNotFound:
      throwError(ErrorCode::kFileNotFound,
                 QStringLiteral("%1: there is no such file.").arg(content.path));
    case PdfError::IncorrectPassword:
    case PdfError::UnsupportedSecurityScheme:
      throwError(ErrorCode::kFileUnreadable,
                 QStringLiteral("%1 is protected by a password.").arg(content.fileName),
                 QStringLiteral("Save it without a password in a PDF viewer."));
    default:
      throwError(ErrorCode::kFileDamaged,
                 QStringLiteral("%1: the PDF is damaged.").arg(content.fileName),
                 QStringLiteral("Try to open it in a PDF viewer and save it again."));
  }
}

void readPdf(DocumentContent& content, const DocumentProgress& progress,
             const std::stop_token& stop) {
  QPdfDocument pdf;
  openPdf(pdf, content);
  content.encoding = QStringLiteral("PDF");
  content.pages = pdf.pageCount();
  for (int page = 0; page < content.pages; ++page) {
    stopIfRequested(stop, content.fileName);
    const QString text = cleanText(pdf.getAllText(page).text()).trimmed();
    if (text.isEmpty()) {
      ++content.pagesWithoutText;
    } else {
      if (!content.text.isEmpty()) content.text += QStringLiteral("\n\n");
      content.text += text;
    }
    if (progress) progress(static_cast<double>(page + 1) / content.pages);
  }
  content.notes
      << QStringLiteral("Images and the layout of the %1 pages are not read.").arg(content.pages);
  if (content.pagesWithoutText > 0) {
    content.notes << QStringLiteral("Pages without text (scanned or pictures): %1 of %2.")
                         .arg(content.pagesWithoutText)
                         .arg(content.pages);
  }
}

}  // namespace

DocumentContent readDocumentFile(const QString& path, const DocumentProgress& progress,
                                 std::stop_token stop) {
  const QFileInfo info(path);
  if (!info.exists()) {
    throwError(ErrorCode::kFileNotFound, QStringLiteral("%1: there is no such file.").arg(path));
  }
  if (!info.isFile()) {
    throwError(ErrorCode::kFileUnreadable, QStringLiteral("%1 is not a file.").arg(path),
               kWhatCanBeOpened);
  }
  DocumentContent content;
  content.path = info.absoluteFilePath();
  content.fileName = info.fileName();
  content.fileBytes = info.size();

  QFile file(content.path);
  if (!file.open(QIODevice::ReadOnly)) {
    throwError(ErrorCode::kFileUnreadable,
               QStringLiteral("%1: cannot be read (%2).").arg(path, file.errorString()),
               QStringLiteral("Check the permissions of the file."));
  }
  // The first bytes tell; the format allows others before its mark, where the name agrees.
  const QByteArray start = file.peek(1024);
  const bool isPdf =
      start.startsWith("%PDF-") ||
      (info.suffix().compare(u"pdf", Qt::CaseInsensitive) == 0 && start.contains("%PDF-"));
  const std::int64_t textLimitBytes =
      isHtml(content.fileName) ? kMaxHtmlFileBytes : kMaxTextFileBytes;
  refuseTooLarge(info, isPdf ? kMaxPdfFileBytes : textLimitBytes);
  if (isPdf) {
    file.close();
    readPdf(content, progress, stop);
  } else {
    readText(content, file, progress, stop);
  }
  refuseEmpty(content);
  return content;
}

QStringList documentNameFilters() {
  QString sources;
  for (const QString& suffix : sourceSuffixes()) sources += QStringLiteral(" *.") + suffix;
  return {QStringLiteral("Documents (*.txt *.md *.markdown *.pdf") + sources + QLatin1Char(')'),
          QStringLiteral("Text (*.txt)"),
          QStringLiteral("Markdown (*.md *.markdown)"),
          QStringLiteral("PDF (*.pdf)"),
          QStringLiteral("Source code and data (") + sources.mid(1) + QLatin1Char(')'),
          QStringLiteral("All files (*)")};
}

DocumentReader::DocumentReader(QObject* parent) : QObject(parent) {}

DocumentReader::~DocumentReader() = default;  // the thread's own destructor stops and joins

void DocumentReader::read(const QString& path) {
  cancel();
  reading_ = true;
  const int generation = generation_;
  // What the thread has to say is said on this object's thread, and only while the file is current.
  const auto post = [this, generation](auto action) {
    mailbox_.post([this, generation, action = std::move(action)] {
      if (generation == generation_) action();
    });
  };
  thread_ = std::jthread([this, path, post](std::stop_token stop) {
    try {
      const DocumentContent content = readDocumentFile(
          path, [&](double share) { post([this, share] { emit progressed(share); }); }, stop);
      post([this, content] {
        reading_ = false;
        emit finished(content);
      });
    } catch (...) {
      post([this, error = currentErrorText()] {
        reading_ = false;
        emit failed(error);
      });
    }
  });
}

void DocumentReader::cancel() {
  ++generation_;
  reading_ = false;
  thread_.request_stop();
}

}  // namespace longhand::app
