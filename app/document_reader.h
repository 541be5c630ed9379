#pragma once
// Text of a file that the user opens: plain text, Markdown and source code in any usual encoding,
// and the text of a PDF. What gets lost on the way is said in `notes`, never passed over.

#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <thread>

#include <QByteArray>
#include <QObject>
#include <QString>
#include <QStringList>

#include "app/error_text.h"
#include "app/mailbox.h"

namespace longhand::app {

/// Larger files are refused with their size: 64 MiB of text are some 16 million tokens.
inline constexpr std::int64_t kMaxTextFileBytes = std::int64_t{64} << 20;
inline constexpr std::int64_t kMaxHtmlFileBytes = std::int64_t{8} << 20;  // taken apart in one go
inline constexpr std::int64_t kMaxPdfFileBytes = std::int64_t{1} << 30;

struct DocumentContent {
  QString fileName;  // without folder
  QString path;
  QString encoding;  // "UTF-8", "UTF-16LE", "ISO-8859-1", ...; of a PDF "PDF"
  QString text;      // line ends are \n, no BOM
  int pages = 0;     // of a PDF
  int pagesWithoutText = 0;
  std::int64_t fileBytes = 0;
  QStringList notes;  // what the extraction lost or guessed, sentences
};

/// Called now and then with the share that is done, 0 to 1.
using DocumentProgress = std::function<void(double share)>;

/// Any thread. Throws engine::Error: kFileNotFound, kFileUnreadable (also: is a folder, is locked
/// by a password), kInvalidArgument (a kind of file that cannot be opened, too large, no text in
/// it), kFileDamaged, kCancelled.
DocumentContent readDocumentFile(const QString& path, const DocumentProgress& progress,
                                 std::stop_token stop);

/// For a file dialog: "Documents (*.txt *.md ...)", and then each kind apart.
QStringList documentNameFilters();

/// The same in a thread of its own, one file at a time. Signals come on the object's thread; after
/// cancel() or the next read(), nothing more comes of the earlier file.
class DocumentReader final : public QObject {
  Q_OBJECT
  Q_DISABLE_COPY_MOVE(DocumentReader)

 public:
  explicit DocumentReader(QObject* parent = nullptr);
  ~DocumentReader() override;

  void read(const QString& path);
  void cancel();
  bool isReading() const { return reading_; }

 signals:
  void progressed(double share);
  void finished(const longhand::app::DocumentContent& content);
  void failed(const longhand::app::ErrorText& error);

 private:
  int generation_ = 0;
  bool reading_ = false;
  Mailbox mailbox_;
  std::jthread thread_;
};

}  // namespace longhand::app
