#include "ui/top_bar.h"

#include <QAction>
#include <QComboBox>
#include <QHBoxLayout>
#include <QLabel>
#include <QMenu>
#include <QPushButton>
#include <QToolButton>

#include "app/chat_controller.h"
#include "ui/style/format.h"
#include "ui/style/icons.h"
#include "ui/style/named.h"

using namespace Qt::StringLiterals;

namespace longhand::ui {

namespace {
constexpr int kShortcutPresets = 5;  // Alt+1 to Alt+5
}

TopBar::TopBar(app::ChatController& controller, const Theme& theme, QWidget* parent)
    : QWidget(parent),
      controller_(controller),
      sidebarButton_(named(new QToolButton(this), u"sidebarButton"_s, tr("Show the chats"))),
      modelName_(named(new QLabel(this), u"modelName"_s, tr("Model"))),
      demoBadge_(named(new QPushButton(tr("Demonstration model"), this), u"demoBadge"_s,
                       tr("Demonstration model: how to add Llama-2-7B"))),
      presets_(named(new QComboBox(this), u"presetChooser"_s, tr("Preset of the KV cache"))),
      documentButton_(named(new QToolButton(this), u"documentPaneButton"_s, tr("Show documents"))),
      settingsButton_(named(new QToolButton(this), u"settingsButton"_s, tr("Show settings"))),
      menuButton_(named(new QToolButton(this), u"menuButton"_s, tr("Menu"))) {
  setObjectName(u"topBar"_s);
  setAttribute(Qt::WA_StyledBackground);
  modelName_->setProperty("textRole", u"heading"_s);
  modelName_->setTextFormat(Qt::PlainText);
  demoBadge_->setProperty("buttonRole", u"badge"_s);
  demoBadge_->setToolTip(
      tr("A very small model that comes with Longhand. It finds facts in simple texts and knows "
         "nothing else. Click to see how to add Llama-2-7B."));
  presets_->setMinimumWidth(140);
  menuButton_->setPopupMode(QToolButton::InstantPopup);
  auto* presetLabel = new QLabel(tr("Preset"), this);
  presetLabel->setProperty("textRole", u"secondary"_s);
  presetLabel->setBuddy(presets_);

  auto* layout = new QHBoxLayout(this);
  layout->setContentsMargins(8, 6, 8, 6);
  layout->setSpacing(8);
  layout->addWidget(sidebarButton_);
  layout->addWidget(modelName_);
  layout->addWidget(demoBadge_);
  layout->addStretch(1);
  layout->addWidget(presetLabel);
  layout->addWidget(presets_);
  layout->addSpacing(4);
  layout->addWidget(documentButton_);
  layout->addWidget(settingsButton_);
  layout->addWidget(menuButton_);

  using app::ChatController;
  connect(demoBadge_, &QPushButton::clicked, this, &TopBar::modelHelpRequested);
  connect(presets_, &QComboBox::activated, this,
          [this](int index) { emit presetChosen(presets_->itemData(index).toString()); });
  connect(&controller_, &ChatController::modelLoaded, this, &TopBar::showModel);
  connect(&controller_, &ChatController::modelFailed, this, &TopBar::showModel);
  connect(&controller_, &ChatController::modelLoading, this, &TopBar::showModel);
  connect(&controller_, &ChatController::presetsChanged, this, &TopBar::showPresets);
  connect(&controller_, &ChatController::presetSwitched, this, &TopBar::resetPreset);
  connect(&controller_, &ChatController::conversationOpened, this, &TopBar::resetPreset);
  connect(&controller_, &ChatController::settingsChanged, this, &TopBar::showPresets);
  setTheme(theme);
  showModel();
  showPresets();
}

void TopBar::setTheme(const Theme& theme) {
  sidebarButton_->setIcon(makeIcon(IconKind::kSidebar, theme.colors.textMuted));
  documentButton_->setIcon(makeIcon(IconKind::kDocument, theme.colors.textMuted));
  settingsButton_->setIcon(makeIcon(IconKind::kSettings, theme.colors.textMuted));
  menuButton_->setIcon(makeIcon(IconKind::kMore, theme.colors.textMuted));
}

void TopBar::setActions(QAction* sidebar, QAction* documentPane, QAction* settingsPane,
                        QMenu* menu) {
  const auto bind = [](QToolButton* button, QAction* action) {
    button->setCheckable(true);
    button->setChecked(action->isChecked());
    button->setToolTip(action->toolTip());
    connect(button, &QToolButton::clicked, action, &QAction::trigger);
    connect(action, &QAction::toggled, button, &QToolButton::setChecked);
  };
  bind(sidebarButton_, sidebar);
  bind(documentButton_, documentPane);
  bind(settingsButton_, settingsPane);
  menuButton_->setMenu(menu);
  menuButton_->setToolTip(tr("Menu"));
}

void TopBar::showModel() {
  const std::optional<app::ModelInfo> model = controller_.model();
  demoBadge_->setVisible(model.has_value() && model->isDemo);
  if (!model) {
    modelName_->setText(controller_.activity() == app::Activity::kLoadingModel ? tr("Loading\u2026")
                                                                               : tr("No model"));
    modelName_->setToolTip(QString());
    return;
  }
  modelName_->setText(model->name);
  modelName_->setToolTip(tr("%1\n%2 of weights (%3)\nTrained for %4\n%5")
                             .arg(model->folder, formatBytes(model->weightBytes),
                                  app::weightFormatName(model->weights),
                                  formatTokens(model->config.trainedLength),
                                  model->backendDescription));
}

void TopBar::showPresets() {
  presets_->clear();
  int number = 0;
  for (const app::PresetInfo& preset : controller_.presets()) {
    presets_->addItem(preset.name, preset.id);
    const int row = presets_->count() - 1;
    const QString shortcut =
        ++number <= kShortcutPresets && preset.builtIn ? tr(" (Alt+%1)").arg(number) : QString();
    const QString toolTip =
        tr("%1%2\n%3").arg(preset.description, shortcut, app::cacheConfigSummary(preset.cache));
    presets_->setItemData(row, toolTip, Qt::ToolTipRole);
    presets_->setItemData(row, preset.name + u": "_s + preset.description,
                          Qt::AccessibleDescriptionRole);
  }
  resetPreset();
}

void TopBar::resetPreset() {
  presets_->setCurrentIndex(presets_->findData(controller_.currentPreset()));
  const QString toolTip = presets_->currentData(Qt::ToolTipRole).toString();
  presets_->setToolTip(toolTip);
  presets_->setAccessibleDescription(toolTip);
}

}  // namespace longhand::ui
