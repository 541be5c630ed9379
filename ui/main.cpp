// longhand: the window. See command_line.h for its options.

#include <cstdio>
#include <memory>

#include <QApplication>
#include <QDir>
#include <QMessageBox>
#include <QPushButton>
#include <QStandardPaths>
#include <QTemporaryDir>
#include <QTimer>

#include "app/chat_controller.h"
#include "app/database.h"
#include "engine/base/error.h"
#include "ui/command_line.h"
#include "ui/main_window.h"
#include "ui/opening_job.h"

using namespace Qt::StringLiterals;
using namespace longhand;

namespace {

void printLine(std::FILE* stream, const QString& line) {
  std::fputs(line.toLocal8Bit().constData(), stream);
  std::fputc('\n', stream);
}

/// Qt tries one font after the other for a script and warns, without a category, about each that
/// has not got it, although a later one has: nothing a user could act on.
void handleQtMessage(QtMsgType type, const QMessageLogContext& context, const QString& message) {
  if (message.startsWith("  OpenType support missing for"_L1)) return;
  printLine(stderr, qFormatLogMessage(type, context, message));
}

/// Without a display, pictures and --help still work: Qt's offscreen platform serves them. Returns
/// whether it was chosen for that reason. To be called before QApplication, which would abort.
bool chooseOffscreenWithoutDisplay() {
#ifndef Q_OS_LINUX
  return false;  // other systems always have one
#endif
  for (const char* variable : {"DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM"}) {
    if (qEnvironmentVariableIsSet(variable)) return false;
  }
  qputenv("QT_QPA_PLATFORM", "offscreen");
  return true;
}

ui::ThemeKind systemTheme() {
  const QPalette palette = QApplication::palette();
  const bool isDark =
      palette.color(QPalette::Window).lightness() < palette.color(QPalette::WindowText).lightness();
  return isDark ? ui::ThemeKind::kDark : ui::ThemeKind::kLight;
}

app::ControllerPaths makePaths(const QString& dataFolder) {
  app::ControllerPaths paths;
  paths.dataFolder = dataFolder;
  paths.modelsFolder = QDir(dataFolder).filePath(u"models"_s);
  const std::optional<app::DemoModel> demo =
      app::findDemoModel(app::demoModelCandidates(QCoreApplication::applicationDirPath()));
  if (demo) paths.demoFolder = demo->folder;
  return paths;
}

/// Opens the data. A damaged database is put aside after the user has agreed, never deleted.
/// Null when the user has not. `mayAsk` false: nobody is there to answer.
std::unique_ptr<app::ChatController> openController(const app::ControllerPaths& paths,
                                                    bool mayAsk) {
  try {
    return std::make_unique<app::ChatController>(paths);
  } catch (const engine::Error& error) {
    if (error.code() != engine::ErrorCode::kFileDamaged || !mayAsk) throw;
    printLine(stderr, u"longhand: "_s + QString::fromStdString(error.line()));
    QMessageBox question(QMessageBox::Warning, u"Longhand"_s, QString::fromStdString(error.line()));
    question.setInformativeText(QCoreApplication::translate(
        "main",
        "The file holds your chats and settings. Longhand can put it aside under another name "
        "and start with an empty one. Nothing is deleted; a copy of the file from a backup can "
        "be put back in its place."));
    const QPushButton* agreed = question.addButton(
        QCoreApplication::translate("main", "Put it aside and start"), QMessageBox::AcceptRole);
    question.addButton(QMessageBox::Cancel);
    question.exec();
    if (question.clickedButton() != agreed) return nullptr;
    const QString aside = app::Database::moveAside(app::ChatController::databasePath(paths));
    printLine(stderr, u"longhand: the damaged file is now %1"_s.arg(aside));
    auto controller = std::make_unique<app::ChatController>(paths);
    QMessageBox::information(
        nullptr, u"Longhand"_s,
        QCoreApplication::translate("main", "The damaged file was put aside. It is now\n%1")
            .arg(aside));
    return controller;
  }
}

/// Saves a picture of the window once everything it shows has been laid out.
void saveScreenshot(ui::MainWindow& window, const QString& path) {
  constexpr int kSettleMs = 400;  // the memory report and the last repaint
  QTimer::singleShot(kSettleMs, &window, [&window, path] {
    if (window.grab().save(path, "PNG")) {
      QCoreApplication::exit(0);
    } else {
      printLine(stderr, u"longhand: cannot write %1"_s.arg(path));
      QCoreApplication::exit(1);
    }
  });
}

int runWindow(const ui::CommandLine& options, const QString& dataFolder) {
  const bool isScreenshot = !options.screenshotPath.isEmpty();
  const app::ControllerPaths paths = makePaths(dataFolder);
  const std::unique_ptr<app::ChatController> controller = openController(paths, !isScreenshot);
  if (controller == nullptr) return 1;
  ui::MainWindow window(*controller,
                        {paths.dataFolder, paths.modelsFolder, systemTheme(), options.theme});
  if (options.size.isValid()) window.resize(options.size);
  window.show();

  ui::OpeningJob job(*controller, window, {options.documentPath, options.question}, nullptr);
  QObject::connect(&job, &ui::OpeningJob::finished, &window, [&] {
    if (!options.page.isEmpty()) {
      window.showRightPage(options.page == "settings"_L1 ? ui::RightPane::Page::kSettings
                                                         : ui::RightPane::Page::kDocument);
    }
    if (isScreenshot) saveScreenshot(window, options.screenshotPath);
  });
  QObject::connect(&job, &ui::OpeningJob::failed, &window, [&](const QString& line) {
    printLine(stderr, u"longhand: "_s + line);
    if (isScreenshot) QCoreApplication::exit(1);
  });
  job.start();
  controller->start();
  if (!options.modelFolder.isEmpty()) window.openModel(options.modelFolder);
  return QCoreApplication::exec();
}

int run(const ui::CommandLine& options) {
  // A picture leaves no trace in the user's own chats.
  QTemporaryDir temporary;
  QString dataFolder = options.dataFolder;
  if (dataFolder.isEmpty()) {
    dataFolder = options.screenshotPath.isEmpty()
                     ? QStandardPaths::writableLocation(QStandardPaths::AppDataLocation)
                     : temporary.path();
  }
  try {
    return runWindow(options, QDir(dataFolder).absolutePath());
  } catch (const engine::Error& error) {
    printLine(stderr, u"longhand: "_s + QString::fromStdString(error.line()));
    if (options.screenshotPath.isEmpty()) {
      QMessageBox box(QMessageBox::Critical, u"Longhand"_s,
                      QString::fromStdString(error.message()));
      box.setInformativeText(QString::fromStdString(error.hint()));
      box.exec();
    }
    return 1;
  }
}

}  // namespace

int main(int argc, char** argv) {
  qInstallMessageHandler(handleQtMessage);
  const bool hasNoDisplay = chooseOffscreenWithoutDisplay();
  QCoreApplication::setApplicationName(u"longhand"_s);
  QCoreApplication::setApplicationVersion(QStringLiteral(LONGHAND_VERSION));
  QGuiApplication::setApplicationDisplayName(u"Longhand"_s);
  QApplication application(argc, argv);
  const ui::CommandLineResult commandLine = ui::parseCommandLine(QApplication::arguments());
  if (commandLine.isDone) {
    printLine(commandLine.exitStatus == 0 ? stdout : stderr, commandLine.text);
    return commandLine.exitStatus;
  }
  const bool isOffscreen = QGuiApplication::platformName() == "offscreen"_L1;
  if (hasNoDisplay && isOffscreen && commandLine.options.screenshotPath.isEmpty()) {
    printLine(stderr,
              u"longhand: there is no display for the window. Use longhand-cli chat instead."_s);
    return 1;
  }
  return run(commandLine.options);
}
