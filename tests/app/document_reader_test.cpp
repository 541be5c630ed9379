#include "app/document_reader.h"

#include <QFile>
#include <QPainter>
#include <QPdfWriter>
#include <QSignalSpy>
#include <QStringEncoder>
#include <QTemporaryDir>
#include <QtTest>

#include "tests/app/error_check.h"

namespace longhand::app {

using engine::ErrorCode;
using tests::errorOf;
using tests::mentions;

class DocumentReaderTest : public QObject {
  Q_OBJECT

 private:
  QTemporaryDir folder_;

  QString write(const QString& name, const QByteArray& bytes) {
    QString path = folder_.filePath(name);
    QFile file(path);
    if (!file.open(QIODevice::WriteOnly) || file.write(bytes) != bytes.size()) qFatal("write");
    return path;
  }

  /// One page for each text; an empty text makes a page with a picture only.
  QString writePdf(const QString& name, const QStringList& pages) {
    QString path = folder_.filePath(name);
    QPdfWriter writer(path);
    writer.setResolution(72);
    QPainter painter(&writer);
    for (qsizetype i = 0; i < pages.size(); ++i) {
      if (i > 0) writer.newPage();
      if (pages[i].isEmpty()) {
        painter.fillRect(50, 50, 100, 100, Qt::red);
      } else {
        painter.drawText(50, 100, pages[i]);
      }
    }
    painter.end();
    return path;
  }

  static DocumentContent read(const QString& path) { return readDocumentFile(path, {}, {}); }

 private slots:
  void utf8IsReadAsItIs() {
    const DocumentContent content =
        read(write(QStringLiteral("notes.md"), "# Title\r\n\r\nGrüße, 世界 🙂\rend\n"));
    QCOMPARE(content.text, QStringLiteral("# Title\n\nGrüße, 世界 🙂\nend\n"));
    QCOMPARE(content.encoding, QStringLiteral("UTF-8"));
    QCOMPARE(content.fileName, QStringLiteral("notes.md"));
    QVERIFY(content.notes.isEmpty());
  }

  void ofAWebPageTheTextIsRead() {
    const DocumentContent content =
        read(write(QStringLiteral("page.html"),
                   "<!DOCTYPE html><html><head><title>T</title><style>p { color: red }</style>"
                   "<link rel=stylesheet href=secret.css><script>var x = 1 < 2;</script></head>"
                   "<body><h1>The mill</h1><p>Built in 1712 &amp; <b>old</b>.<img src=mill.png></p>"
                   "<ul><li>wheel</li></ul></body></html>"));
    QCOMPARE(content.text, QStringLiteral("The mill\nBuilt in 1712 & old.\nwheel"));
    QCOMPARE(content.notes.size(), 1);
    const engine::Error empty = errorOf(
        [&] { read(write(QStringLiteral("empty.html"), "<html><body><p> </p></body></html>")); });
    QVERIFY(empty.code() == ErrorCode::kInvalidArgument);
  }

  void byteOrderMarksDecideAndDisappear_data() {
    QTest::addColumn<QByteArray>("bytes");
    QTest::addColumn<QString>("encoding");
    const QString text = QStringLiteral("Hello, 世界 🙂\n");
    for (const auto encoding :
         {QStringConverter::Utf8, QStringConverter::Utf16LE, QStringConverter::Utf16BE,
          QStringConverter::Utf32LE, QStringConverter::Utf32BE}) {
      QStringEncoder encoder(encoding, QStringConverter::Flag::WriteBom);
      const char* name = QStringConverter::nameForEncoding(encoding);
      QTest::newRow(name) << QByteArray(encoder(text)) << QString::fromLatin1(name);
    }
  }
  void byteOrderMarksDecideAndDisappear() {
    QFETCH(QByteArray, bytes);
    QFETCH(QString, encoding);
    const DocumentContent content = read(write(QStringLiteral("bom.txt"), bytes));
    QCOMPARE(content.text, QStringLiteral("Hello, 世界 🙂\n"));
    QCOMPARE(content.encoding, encoding);
    QVERIFY(content.notes.isEmpty());
  }

  void olderEncodingsAreDetectedAndSaid() {
    const QByteArray latin1 =
        "Sch\xF6ne Gr\xFC\xDF"
        "e aus K\xF6ln. \xC4rger mit \xFC"
        "berm\xE4\xDFig gro\xDF"
        "en B\xE4umen.\n";
    const DocumentContent german = read(write(QStringLiteral("latin1.txt"), latin1));
    QCOMPARE(german.text,
             QStringLiteral("Schöne Grüße aus Köln. Ärger mit übermäßig großen Bäumen.\n"));
    QVERIFY2(german.encoding != QStringLiteral("UTF-8"), qPrintable(german.encoding));
    QCOMPARE(german.notes.size(), 1);
    QVERIFY(german.notes.front().contains(german.encoding));

    // "长文档的量化缓存" and more in GB18030.
    const QByteArray chinese = QByteArray::fromHex(
        "b3a4cec4b5b5b5c4c1bfbbafbbbab4e6caa1cfc2c1cbb4f3c1bfc4dab4e6a3ac"
        "cbf9d2d4bfc9d2d4b4a6c0edbaa3c1bfcec4b5b5a1a30a");
    const DocumentContent content = read(write(QStringLiteral("gb.txt"), chinese));
    QVERIFY2(content.text.startsWith(QStringLiteral("长文档的量化缓存")),
             qPrintable(content.encoding + content.text));
  }

  void bytesThatMeanNothingAreCounted() {
    const QByteArray bytes = QByteArray("\xEF\xBB\xBF") + "good \xFF\xFF bad\n";
    const DocumentContent content = read(write(QStringLiteral("bad.txt"), bytes));
    QVERIFY(content.text.startsWith(QStringLiteral("good ")));
    QCOMPARE(content.notes.size(), 1);
    QVERIFY2(content.notes.front().contains(QStringLiteral("2")),
             qPrintable(content.notes.front()));
  }

  void pdfTextIsReadPageByPageAndMissingTextIsSaid() {
    const QString path =
        writePdf(QStringLiteral("three.pdf"),
                 {QStringLiteral("The first page."), QString(), QStringLiteral("The third page.")});
    const DocumentContent content = read(path);
    QCOMPARE(content.text, QStringLiteral("The first page.\n\nThe third page."));
    QCOMPARE(content.pages, 3);
    QCOMPARE(content.pagesWithoutText, 1);
    QCOMPARE(content.encoding, QStringLiteral("PDF"));
    QVERIFY(content.notes.join(QLatin1Char(' ')).contains(QStringLiteral("1 of 3")));
    // The contents tell, not the name.
    QVERIFY(QFile::copy(path, folder_.filePath(QStringLiteral("three.txt"))));
    QCOMPARE(read(folder_.filePath(QStringLiteral("three.txt"))).pages, 3);
  }

  void aPdfWithoutAnyTextIsRefusedWithAHint() {
    const QString path = writePdf(QStringLiteral("scan.pdf"), {QString(), QString()});
    const engine::Error error = errorOf([&] { read(path); });
    LONGHAND_COMPARE_CODE(error, ErrorCode::kInvalidArgument);
    QVERIFY(mentions(error, QStringLiteral("OCR")));
  }

  void aDamagedPdfIsRefused() {
    const engine::Error error =
        errorOf([&] { read(write(QStringLiteral("cut.pdf"), "%PDF-1.4\n1 0 obj\n<<")); });
    LONGHAND_COMPARE_CODE(error, ErrorCode::kFileDamaged);
    QVERIFY(mentions(error, QStringLiteral("cut.pdf")));
  }

  void binaryFilesAreRefusedNamingWhatCanBeOpened_data() {
    QTest::addColumn<QByteArray>("bytes");
    QTest::newRow("NUL") << QByteArray("text\0text", 9);
    QTest::newRow("zip") << QByteArray("PK\3\4\24\0\6\0\10\0\0\0!\0", 14);
    QTest::newRow("controls") << QByteArray("\1\2\3\4\5\6abc");
  }
  void binaryFilesAreRefusedNamingWhatCanBeOpened() {
    QFETCH(QByteArray, bytes);
    const engine::Error error = errorOf([&] { read(write(QStringLiteral("file.docx"), bytes)); });
    LONGHAND_COMPARE_CODE(error, ErrorCode::kInvalidArgument);
    QVERIFY(mentions(error, QStringLiteral("file.docx")));
    QVERIFY(mentions(error, QStringLiteral("PDF")));
  }

  void whatIsNoFileOrEmptyOrTooLargeIsRefused() {
    LONGHAND_COMPARE_CODE(errorOf([] { read(QStringLiteral("/no/such/file.txt")); }),
                          ErrorCode::kFileNotFound);
    LONGHAND_COMPARE_CODE(errorOf([&] { read(folder_.path()); }), ErrorCode::kFileUnreadable);
    LONGHAND_COMPARE_CODE(errorOf([&] { read(write(QStringLiteral("empty.txt"), {})); }),
                          ErrorCode::kInvalidArgument);
    LONGHAND_COMPARE_CODE(errorOf([&] { read(write(QStringLiteral("blank.txt"), " \n\n")); }),
                          ErrorCode::kInvalidArgument);
    const QString large = write(QStringLiteral("large.txt"), "a");
    QVERIFY(QFile::resize(large, kMaxTextFileBytes + 1));  // a hole: takes no room on the disk
    const engine::Error error = errorOf([&] { read(large); });
    LONGHAND_COMPARE_CODE(error, ErrorCode::kInvalidArgument);
    QVERIFY(mentions(error, QStringLiteral("64.00 MiB")));
  }

  void theReaderDeliversOnItsOwnThread() {
    DocumentReader reader;
    QSignalSpy progressed(&reader, &DocumentReader::progressed);
    QSignalSpy failed(&reader, &DocumentReader::failed);
    QString text;
    QThread* thread = nullptr;
    connect(&reader, &DocumentReader::finished, this, [&](const DocumentContent& content) {
      text = content.text;
      thread = QThread::currentThread();
    });
    reader.read(write(QStringLiteral("a.txt"), "some text"));
    QVERIFY(reader.isReading());
    QTRY_COMPARE(text, QStringLiteral("some text"));
    QCOMPARE(thread, this->thread());
    QVERIFY(!reader.isReading());
    QCOMPARE(progressed.back().front().toDouble(), 1.0);
    reader.read(QStringLiteral("/no/such/file.txt"));
    QTRY_COMPARE(failed.size(), 1);
  }

  void aCancelledOrReplacedFileNeverArrives() {
    const QString large =
        write(QStringLiteral("l.txt"), QByteArray("0123456789abcde\n").repeated(1 << 21));
    const QString small = write(QStringLiteral("s.txt"), "small");
    DocumentReader reader;
    QSignalSpy failed(&reader, &DocumentReader::failed);
    QStringList names;
    connect(&reader, &DocumentReader::finished, this,
            [&](const DocumentContent& content) { names << content.fileName; });
    reader.read(large);
    reader.cancel();
    QVERIFY(!reader.isReading());
    reader.read(large);
    reader.read(small);
    QTRY_COMPARE(names, QStringList{QStringLiteral("s.txt")});
    QTest::qWait(50);
    QCOMPARE(names.size(), 1);
    QVERIFY(failed.isEmpty());

    std::stop_source stop;
    stop.request_stop();
    LONGHAND_COMPARE_CODE(errorOf([&] { readDocumentFile(large, {}, stop.get_token()); }),
                          ErrorCode::kCancelled);
  }
};

}  // namespace longhand::app

// Qt 6.4.2 itself keeps some 400 bytes of each page without text, and 1.3 KB of a damaged file.
extern "C" [[gnu::visibility("default")]] const char* __lsan_default_suppressions() {
  return "leak:libQt6Pdf.so";
}

QTEST_MAIN(longhand::app::DocumentReaderTest)
#include "document_reader_test.moc"
