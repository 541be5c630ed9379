#pragma once
// What `longhand` was asked to do on its command line.

#include <optional>

#include <QSize>
#include <QString>
#include <QStringList>

#include "ui/style/theme.h"

namespace longhand::ui {

struct CommandLine {
  QString dataFolder;      // empty: the user's own
  QString modelFolder;     // empty: the one of the settings, else the bundled one
  QString documentPath;    // opened and used in a new chat
  QString question;        // asked once the document is part of the chat
  QString screenshotPath;  // not empty: do the above, save a picture of the window, quit
  QSize size;              // of the window; invalid: as it was
  std::optional<ThemeKind> theme;
  QString page;  // "document" or "settings": what the right side shows; empty: as it was
};

/// The result of reading the command line: options, or what to print and the exit status.
struct CommandLineResult {
  CommandLine options;
  bool isDone = false;  // --help, --version or a mistake: print `text` and exit
  QString text;
  int exitStatus = 0;  // usage errors: 2
};

/// `arguments` with the program's name first.
CommandLineResult parseCommandLine(const QStringList& arguments);

}  // namespace longhand::ui
