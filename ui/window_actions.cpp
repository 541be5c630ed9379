#include "ui/window_actions.h"

#include <QAction>
#include <QKeySequence>
#include <QMainWindow>
#include <QMenu>

using namespace Qt::StringLiterals;

namespace longhand::ui {

namespace {
constexpr int kShortcutPresets = 5;
}

WindowActions::WindowActions(QMainWindow& window) : QObject(&window), window_(window) {
  newChat = add("newChatAction", tr("New chat"), Qt::CTRL | Qt::Key_N);
  search = add("searchAction", tr("Search all chats"), Qt::CTRL | Qt::Key_K);
  find = add("findAction", tr("Find in this chat"), Qt::CTRL | Qt::Key_F);
  openDocument = add("openDocumentAction", tr("Open a document\u2026"), Qt::CTRL | Qt::Key_O);
  settings = add("settingsAction", tr("Settings"), Qt::CTRL | Qt::Key_Comma);
  openModel = add("openModelAction", tr("Open a model folder\u2026"), Qt::CTRL | Qt::Key_L);
  sidebar = add("sidebarAction", tr("Show chats"), Qt::CTRL | Qt::Key_B);
  documentPane = add("documentPaneAction", tr("Show document"), Qt::CTRL | Qt::Key_D);
  dark = add("darkAction", tr("Dark"), {});
  checkQuality = add("checkQualityAction", tr("Check quality\u2026"), {});
  modelHelp = add("modelHelpAction", tr("How to add Llama-2-7B"), {});
  about = add("aboutAction", tr("About Longhand"), {});
  quit = add("quitAction", tr("Quit"), Qt::CTRL | Qt::Key_Q);
  for (QAction* action : {settings, sidebar, documentPane, dark}) action->setCheckable(true);

  menu_ = new QMenu(&window);
  menu_->setObjectName(u"mainMenu"_s);
  menu_->addActions({newChat, openDocument, find, search, checkQuality});
  menu_->addSeparator();
  models = menu_->addMenu(tr("Models"));
  models->setObjectName(u"modelsMenu"_s);
  menu_->addAction(openModel);
  menu_->addAction(modelHelp);
  menu_->addSeparator();
  menu_->addActions({sidebar, documentPane, settings, dark});
  menu_->addSeparator();
  menu_->addActions({about, quit});

  for (int i = 0; i < kShortcutPresets; ++i) {
    QAction* preset = add("presetAction", tr("Preset %1").arg(i + 1),
                          QKeySequence(static_cast<int>(Qt::ALT) | (Qt::Key_1 + i)));
    preset->setObjectName(u"presetAction%1"_s.arg(i + 1));
    connect(preset, &QAction::triggered, this, [this, i] { emit presetNumberChosen(i); });
  }
}

QAction* WindowActions::add(const char* objectName, const QString& text,
                            const QKeySequence& shortcut) {
  auto* action = new QAction(text, this);
  action->setObjectName(QLatin1StringView(objectName));
  action->setShortcut(shortcut);
  if (!shortcut.isEmpty()) {
    action->setToolTip(u"%1 (%2)"_s.arg(QString(text).remove(u'\u2026'), shortcut.toString()));
  }
  window_.addAction(action);
  return action;
}

}  // namespace longhand::ui
