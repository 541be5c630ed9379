#include "ui/command_line.h"

#include <QCommandLineParser>
#include <QCoreApplication>
#include <QRegularExpression>

using namespace Qt::StringLiterals;

namespace longhand::ui {

namespace {

CommandLineResult usageError(const QString& message) {
  CommandLineResult result;
  result.isDone = true;
  result.exitStatus = 2;
  result.text = u"longhand: %1 See --help."_s.arg(message);
  return result;
}

/// "1280x800"; invalid when it is no such size.
QSize parseSize(const QString& text) {
  static const QRegularExpression kPattern(u"^([0-9]{3,5})x([0-9]{3,5})$"_s);
  const QRegularExpressionMatch match = kPattern.match(text);
  return match.hasMatch() ? QSize(match.captured(1).toInt(), match.captured(2).toInt()) : QSize();
}

}  // namespace

CommandLineResult parseCommandLine(const QStringList& arguments) {
  const QCommandLineOption help({u"h"_s, u"help"_s}, u"Show this help."_s);
  const QCommandLineOption version({u"v"_s, u"version"_s}, u"Show the version."_s);
  const QCommandLineOption model(u"model"_s, u"Load this model folder."_s, u"DIR"_s);
  const QCommandLineOption document(u"document"_s, u"Use this document in a new chat."_s,
                                    u"FILE"_s);
  const QCommandLineOption ask(u"ask"_s, u"Ask this question."_s, u"TEXT"_s);
  const QCommandLineOption screenshot(
      u"screenshot"_s, u"Do the above, save a picture of the window as PNG, quit."_s, u"FILE"_s);
  const QCommandLineOption size(u"size"_s, u"Size of the window."_s, u"WxH"_s);
  const QCommandLineOption theme(u"theme"_s, u"light or dark."_s, u"THEME"_s);
  const QCommandLineOption page(u"page"_s, u"document or settings: shown on the right side."_s,
                                u"PAGE"_s);
  const QCommandLineOption data(u"data-dir"_s, u"Keep chats and settings in this folder."_s,
                                u"DIR"_s);
  QCommandLineParser parser;
  parser.setApplicationDescription(u"Chat with very long documents on your own machine."_s);
  parser.addPositionalArgument(u"FILE"_s, u"The same as --document FILE."_s, u"[FILE]"_s);
  parser.addOptions({help, version, model, document, ask, screenshot, size, theme, page, data});

  CommandLineResult result;
  if (!parser.parse(arguments)) return usageError(parser.errorText());
  const QStringList files = parser.positionalArguments() + parser.values(document);
  if (files.size() > 1) {
    return usageError(
        u"One document is opened at a time, not %1 and %2."_s.arg(files[0], files[1]));
  }
  if (parser.isSet(help) || parser.isSet(version)) {
    result.isDone = true;
    result.text = parser.isSet(help) ? parser.helpText().trimmed()
                                     : u"longhand %1"_s.arg(QCoreApplication::applicationVersion());
    return result;
  }
  CommandLine& options = result.options;
  options.dataFolder = parser.value(data);
  options.modelFolder = parser.value(model);
  if (!files.isEmpty()) options.documentPath = files.first();
  options.question = parser.value(ask);
  options.screenshotPath = parser.value(screenshot);
  options.page = parser.value(page);
  if (parser.isSet(page) && options.page != "document"_L1 && options.page != "settings"_L1) {
    return usageError(u"--page is document or settings."_s);
  }
  if (parser.isSet(size)) {
    options.size = parseSize(parser.value(size));
    if (!options.size.isValid()) return usageError(u"--size is like 1280x800."_s);
  }
  if (parser.isSet(theme)) {
    const QString name = parser.value(theme);
    if (name != "light"_L1 && name != "dark"_L1) return usageError(u"--theme is light or dark."_s);
    options.theme = name == "dark"_L1 ? ThemeKind::kDark : ThemeKind::kLight;
  }
  return result;
}

}  // namespace longhand::ui
