#include "ui/main_window.h"

#include <QAction>
#include <QApplication>
#include <QCloseEvent>
#include <QDir>
#include <QFileDialog>
#include <QFileInfo>
#include <QMenu>
#include <QSplitter>
#include <QVBoxLayout>

#include "app/chat_controller.h"
#include "ui/chat/chat_pane.h"
#include "ui/chat/chat_presenter.h"
#include "ui/chat/composer.h"
#include "ui/chat/find_bar.h"
#include "ui/chat/welcome_panel.h"
#include "ui/chat/work_presenter.h"
#include "ui/dialogs.h"
#include "ui/document/document_presenter.h"
#include "ui/memory/memory_strip.h"
#include "ui/quality/quality_presenter.h"
#include "ui/right_pane.h"
#include "ui/settings/preset_switcher.h"
#include "ui/settings/settings_panel.h"
#include "ui/settings/settings_presenter.h"
#include "ui/sidebar/sidebar.h"
#include "ui/status_line.h"
#include "ui/style/format.h"
#include "ui/style/named.h"
#include "ui/style/notice_bar.h"
#include "ui/style/window_style.h"
#include "ui/top_bar.h"
#include "ui/transcript/transcript_view.h"
#include "ui/window_actions.h"
#include "ui/window_layout.h"

using namespace Qt::StringLiterals;

namespace longhand::ui {

namespace {

constexpr QSize kDefaultSize(1280, 800);
constexpr QSize kSmallestSize(640, 480);
constexpr int kSidebarWidth = 232;
constexpr int kRightPaneWidth = 400;
constexpr int kLeastSidebarWidth = 190;
constexpr int kLeastPaneWidth = 300;  // of chat and right side; all three fit in 800 pixels
constexpr int kLeastWidthForThree = kLeastSidebarWidth + 2 * kLeastPaneWidth + 2;

WindowLayout storedLayout(const app::ChatController& controller, const MainWindowOptions& options) {
  WindowLayout layout =
      WindowLayout::fromJson(controller.settings().windowState, options.systemTheme);
  if (options.theme) layout.theme = *options.theme;
  return layout;
}

}  // namespace

using app::ChatController;

MainWindow::MainWindow(ChatController& controller, const MainWindowOptions& options)
    : controller_(controller),
      options_(options),
      theme_(makeTheme(storedLayout(controller, options).theme)),
      actions_(new WindowActions(*this)),
      topBar_(new TopBar(controller, theme_, this)),
      splitter_(new QSplitter(Qt::Horizontal, this)),
      sidebar_(new Sidebar(controller, theme_, splitter_)),
      chatPane_(new ChatPane(theme_, splitter_)),
      rightPane_(new RightPane(splitter_)),
      memoryStrip_(named(new MemoryStrip(theme_, this), u"memoryStrip"_s, tr("Memory"))),
      statusLine_(new StatusLine(controller, this)),
      chatPresenter_(new ChatPresenter(controller, *chatPane_, this)),
      documentPresenter_(new DocumentPresenter(controller, rightPane_->documentPanel(), this)),
      presetSwitcher_(new PresetSwitcher(controller, chatPane_->presetBar(), this)),
      qualityPresenter_(new QualityPresenter(controller, *this)) {
  setObjectName(u"mainWindow"_s);
  setWindowTitle(tr("Longhand"));
  const auto* settings = new SettingsPresenter(controller, rightPane_->settingsPanel(), this);
  connect(settings, &SettingsPresenter::applied, this,
          [this] { chatPane_->composer().setFocus(Qt::OtherFocusReason); });
  new WorkPresenter(controller, chatPane_->workCard(), this);
  makeLayout();
  connectActions();
  connectParts();
  connectMemory();
  restoreLayout(storedLayout(controller, options));
  chatPane_->composer().setFocus(Qt::OtherFocusReason);
}

MainWindow::~MainWindow() = default;

void MainWindow::makeLayout() {
  setMinimumSize(kSmallestSize);
  splitter_->setObjectName(u"mainSplitter"_s);
  splitter_->setHandleWidth(1);
  splitter_->setChildrenCollapsible(false);
  splitter_->setStretchFactor(1, 1);
  sidebar_->setMinimumWidth(kLeastSidebarWidth);
  chatPane_->setMinimumWidth(kLeastPaneWidth);
  rightPane_->setMinimumWidth(kLeastPaneWidth);

  auto* bottom = new QWidget(this);
  bottom->setObjectName(u"bottomArea"_s);
  bottom->setAttribute(Qt::WA_StyledBackground);
  auto* bottomLayout = new QVBoxLayout(bottom);
  bottomLayout->setContentsMargins(0, 0, 0, 0);
  bottomLayout->setSpacing(0);
  bottomLayout->addWidget(memoryStrip_);
  bottomLayout->addWidget(statusLine_);

  auto* central = new QWidget(this);
  auto* layout = new QVBoxLayout(central);
  layout->setContentsMargins(0, 0, 0, 0);
  layout->setSpacing(0);
  layout->addWidget(topBar_);
  layout->addWidget(splitter_, 1);
  layout->addWidget(bottom);
  setCentralWidget(central);
  topBar_->setActions(actions_->sidebar, actions_->documentPane, actions_->settings,
                      actions_->menu());
}

void MainWindow::connectActions() {
  connect(actions_->newChat, &QAction::triggered, this, [this] {
    newChat();
    chatPane_->composer().setFocus(Qt::ShortcutFocusReason);
  });
  connect(actions_->search, &QAction::triggered, this, [this] {
    actions_->sidebar->setChecked(true);
    sidebar_->focusSearch();
  });
  connect(actions_->find, &QAction::triggered, &chatPane_->findBar(), &FindBar::open);
  connect(actions_->openDocument, &QAction::triggered, this, &MainWindow::chooseDocument);
  connect(actions_->openModel, &QAction::triggered, this, &MainWindow::chooseModel);
  connect(actions_->sidebar, &QAction::toggled, this, &MainWindow::showSidebar);
  connect(actions_->documentPane, &QAction::triggered, this,
          [this](bool isShown) { toggleRightPage(RightPane::Page::kDocument, isShown); });
  connect(actions_->settings, &QAction::triggered, this,
          [this](bool isShown) { toggleRightPage(RightPane::Page::kSettings, isShown); });
  connect(actions_->dark, &QAction::toggled, this,
          [this](bool isDark) { setTheme(isDark ? ThemeKind::kDark : ThemeKind::kLight); });
  connect(actions_->checkQuality, &QAction::triggered, qualityPresenter_, &QualityPresenter::check);
  connect(actions_->modelHelp, &QAction::triggered, this, &MainWindow::showModelHelp);
  connect(actions_->about, &QAction::triggered, this, &MainWindow::showAbout);
  connect(actions_->quit, &QAction::triggered, this, &QWidget::close);
  connect(actions_->models, &QMenu::aboutToShow, this, &MainWindow::fillModelsMenu);
  connect(actions_, &WindowActions::presetNumberChosen, presetSwitcher_,
          &PresetSwitcher::askNumber);
  connect(rightPane_, &RightPane::pageChanged, this, [this] { showRightPage(rightPane_->page()); });
}

void MainWindow::connectParts() {
  const auto focusComposer = [this] { chatPane_->composer().setFocus(Qt::OtherFocusReason); };
  connect(topBar_, &TopBar::presetChosen, presetSwitcher_, &PresetSwitcher::ask);
  connect(topBar_, &TopBar::modelHelpRequested, this, &MainWindow::showModelHelp);
  connect(presetSwitcher_, &PresetSwitcher::cancelled, topBar_, &TopBar::resetPreset);
  connect(presetSwitcher_, &PresetSwitcher::customWanted, this,
          [this] { showRightPage(RightPane::Page::kSettings); });

  connect(sidebar_, &Sidebar::chatAboutToChange, chatPresenter_, &ChatPresenter::saveDraft);
  connect(sidebar_, &Sidebar::messageChosen, chatPresenter_, &ChatPresenter::showMessage);
  connect(sidebar_, &Sidebar::documentChosen, documentPresenter_, &DocumentPresenter::show);
  connect(sidebar_, &Sidebar::openDocumentRequested, this, &MainWindow::chooseDocument);
  connect(sidebar_, &Sidebar::composerWanted, this, focusComposer);

  const WelcomePanel& welcome = chatPane_->welcome();
  connect(&welcome, &WelcomePanel::sampleDocumentRequested, documentPresenter_,
          &DocumentPresenter::openSample);
  connect(&welcome, &WelcomePanel::openDocumentRequested, this, &MainWindow::chooseDocument);
  connect(&welcome, &WelcomePanel::openModelRequested, this, &MainWindow::chooseModel);
  connect(&welcome, &WelcomePanel::demoModelRequested, this, [this] { openModel(QString()); });
  connect(&welcome, &WelcomePanel::modelHelpRequested, this, &MainWindow::showModelHelp);
  connect(chatPane_, &ChatPane::fileDropped, this, &MainWindow::openDocument);
  connect(&chatPane_->composer(), &Composer::attachRequested, this, &MainWindow::chooseDocument);
  connect(&chatPane_->findBar(), &FindBar::closed, this, focusComposer);
  connect(&chatPane_->transcript(), &TranscriptView::copied, statusLine_, &StatusLine::showBriefly);

  connect(statusLine_, &StatusLine::deviceReasonWanted, this, [this] {
    showRightPage(RightPane::Page::kSettings);
    rightPane_->settingsPanel().showDevice();
  });
  connect(documentPresenter_, &DocumentPresenter::panelWanted, this, [this] {
    chatPane_->errorBar().dismiss();
    showRightPage(RightPane::Page::kDocument);
  });
  connect(documentPresenter_, &DocumentPresenter::qualityCheckRequested, qualityPresenter_,
          &QualityPresenter::check);
  connect(documentPresenter_, &DocumentPresenter::openingStarted, chatPresenter_,
          &ChatPresenter::awaitDocument);
  connect(documentPresenter_, &DocumentPresenter::openDialogRequested, this,
          &MainWindow::chooseDocument);
  connect(documentPresenter_, &DocumentPresenter::readingHere, chatPresenter_,
          &ChatPresenter::setReadingShownElsewhere);
  connect(documentPresenter_, &DocumentPresenter::composerWanted, this, focusComposer);
}

void MainWindow::connectMemory() {
  connect(&controller_, &ChatController::memoryChanged, this, [this] {
    // The forecast's workspace depends on the memory there is: the first report completes it.
    if (!knowsMemory_) updateForecast();
    showMemory();
  });
  connect(&controller_, &ChatController::presetSwitched, this, &MainWindow::updateForecast);
  connect(&controller_, &ChatController::settingsChanged, this, &MainWindow::updateForecast);
  connect(&controller_, &ChatController::conversationOpened, this, &MainWindow::updateForecast);
  connect(&controller_, &ChatController::modelLoaded, this, &MainWindow::updateForecast);
  updateForecast();
}

void MainWindow::updateForecast() {
  memoryForecast_.reset();
  knowsMemory_ = controller_.memory().device.totalBytes > 0;
  const qint64 context = controller_.contextState().contextLength;
  const QString preset = controller_.currentPreset();
  for (const app::PresetForecast& forecast : controller_.forecast(context)) {
    if (forecast.preset.id != preset) continue;
    memoryForecast_ = forecast.use;
    memoryForecastLabel_ = tr("%1, %2").arg(forecast.preset.name, formatTokens(context));
  }
  showMemory();
}

void MainWindow::showMemory() {
  MemoryStripData strip = memoryStripData(controller_.memory());
  strip.forecast = memoryForecast_;
  strip.forecastLabel = memoryForecastLabel_;
  memoryStrip_->setData(strip);
}

void MainWindow::openDocument(const QString& path) { documentPresenter_->open(path); }

void MainWindow::openModel(const QString& folder) {
  chatPane_->errorBar().dismiss();
  controller_.loadModel(folder, engine::WeightFormat::kAuto);
}

void MainWindow::newChat() {
  chatPresenter_->saveDraft();
  controller_.newConversation();
}

void MainWindow::writeQuestion(const QString& text) {
  Composer& composer = chatPane_->composer();
  composer.setText(composer.text().isEmpty() ? text : composer.text() + u'\n' + text);
}

void MainWindow::chooseDocument() {
  const QString start = QFileInfo(documentFolder_).isDir() ? documentFolder_ : QDir::homePath();
  const QString path = QFileDialog::getOpenFileName(this, tr("Open a document"), start,
                                                    app::documentNameFilters().join(u";;"_s));
  if (!path.isEmpty()) documentFolder_ = QFileInfo(path).absolutePath();
  if (!path.isEmpty()) openDocument(path);
}

void MainWindow::chooseModel() {
  const QString start =
      QDir(options_.modelsFolder).exists() ? options_.modelsFolder : QDir::homePath();
  const QString folder =
      QFileDialog::getExistingDirectory(this, tr("Open a folder with a Llama model"), start);
  if (!folder.isEmpty()) openModel(folder);
}

void MainWindow::fillModelsMenu() {
  actions_->models->clear();
  const std::optional<app::ModelInfo> loaded = controller_.model();
  for (const app::ModelEntry& entry : controller_.availableModels()) {
    const QString name = entry.isDemo ? tr("%1 (demonstration)").arg(entry.name) : entry.name;
    QAction* action = actions_->models->addAction(QString(name).replace(u'&', u"&&"_s));
    action->setCheckable(true);
    action->setChecked(loaded && QDir(loaded->folder) == QDir(entry.folder));
    connect(action, &QAction::triggered, this, [this, entry] { openModel(entry.folder); });
  }
  if (actions_->models->isEmpty()) {
    actions_->models->addAction(tr("No models found"))->setEnabled(false);
  }
}

void MainWindow::showRightPage(RightPane::Page page) {
  rightPane_->showPage(page);
  rightPane_->show();
  fitPanes();
  actions_->settings->setChecked(page == RightPane::Page::kSettings);
  actions_->documentPane->setChecked(page == RightPane::Page::kDocument);
}

void MainWindow::hideRightPane() {
  rightPane_->hide();
  fitPanes();
  actions_->settings->setChecked(false);
  actions_->documentPane->setChecked(false);
}

void MainWindow::toggleRightPage(RightPane::Page page, bool isShown) {
  if (isShown) {
    showRightPage(page);
  } else {
    hideRightPane();
  }
}

void MainWindow::showSidebar(bool isShown) {
  sidebarGaveWay_ = false;
  sidebar_->setVisible(isShown);
  // Whoever asks for the sidebar gets it.
  if (isShown && width() < kLeastWidthForThree) hideRightPane();
}

void MainWindow::fitPanes() {
  const bool hasRoom = width() >= kLeastWidthForThree || rightPane_->isHidden();
  if (hasRoom && sidebarGaveWay_) {
    actions_->sidebar->setChecked(true);
  } else if (!hasRoom && actions_->sidebar->isChecked()) {
    actions_->sidebar->setChecked(false);
    sidebarGaveWay_ = true;
  }
}

void MainWindow::showModelHelp() {
  auto* dialog = new ModelHelpDialog(options_.modelsFolder, this);
  dialog->setAttribute(Qt::WA_DeleteOnClose);
  connect(dialog, &ModelHelpDialog::openModelRequested, this, &MainWindow::chooseModel);
  dialog->open();
}

void MainWindow::showAbout() {
  auto* dialog = new AboutDialog(options_.dataFolder, this);
  dialog->setAttribute(Qt::WA_DeleteOnClose);
  dialog->open();
}

void MainWindow::setTheme(ThemeKind kind) {
  theme_ = makeTheme(kind);
  if (auto* application = qobject_cast<QApplication*>(QCoreApplication::instance())) {
    applyTheme(*application, theme_);
  }
  setStyleSheet(windowStyleSheet(theme_));
  topBar_->setTheme(theme_);
  sidebar_->setTheme(theme_);
  chatPane_->setTheme(theme_);
  memoryStrip_->setTheme(theme_);
}

void MainWindow::restoreLayout(const WindowLayout& layout) {
  setTheme(layout.theme);
  documentFolder_ = layout.documentFolder;
  actions_->dark->setChecked(layout.theme == ThemeKind::kDark);
  if (!restoreGeometry(controller_.settings().windowGeometry)) resize(kDefaultSize);
  if (layout.splitter.isEmpty() || !splitter_->restoreState(layout.splitter)) {
    splitter_->setSizes(
        {kSidebarWidth, width() - kSidebarWidth - kRightPaneWidth, kRightPaneWidth});
  }
  splitter_->setHandleWidth(1);  // restoreState brings back the width it was saved with
  actions_->sidebar->setChecked(layout.showsSidebar);
  sidebar_->setVisible(layout.showsSidebar);
  toggleRightPage(layout.showsSettings ? RightPane::Page::kSettings : RightPane::Page::kDocument,
                  layout.showsRightPane);
}

void MainWindow::saveLayout() {
  WindowLayout layout;
  layout.splitter = splitter_->saveState();
  layout.showsSidebar = actions_->sidebar->isChecked() || sidebarGaveWay_;
  layout.showsRightPane = !rightPane_->isHidden();
  layout.showsSettings = rightPane_->page() == RightPane::Page::kSettings;
  layout.theme = theme_.kind;
  layout.documentFolder = documentFolder_;
  controller_.saveWindowLayout(saveGeometry(), layout.toJson());
}

void MainWindow::closeEvent(QCloseEvent* event) {
  chatPresenter_->saveDraft();
  saveLayout();
  event->accept();
}

void MainWindow::resizeEvent(QResizeEvent* event) {
  QMainWindow::resizeEvent(event);
  fitPanes();
}

void MainWindow::keyPressEvent(QKeyEvent* event) {
  if (event->key() == Qt::Key_Escape) {
    chatPresenter_->escape();
    return;
  }
  QMainWindow::keyPressEvent(event);
}

}  // namespace longhand::ui
