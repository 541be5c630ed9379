#include "ui/right_pane.h"

#include <QStackedWidget>
#include <QTabBar>
#include <QVBoxLayout>

#include "ui/document/document_panel.h"
#include "ui/settings/settings_panel.h"
#include "ui/style/named.h"

using namespace Qt::StringLiterals;

namespace longhand::ui {

RightPane::RightPane(QWidget* parent)
    : QWidget(parent),
      tabs_(named(new QTabBar(this), u"rightTabs"_s, tr("Document or settings"))),
      pages_(new QStackedWidget(this)),
      documentPanel_(new DocumentPanel(pages_)),
      settingsPanel_(new SettingsPanel(pages_)) {
  setObjectName(u"rightPane"_s);
  setAttribute(Qt::WA_StyledBackground);
  tabs_->setDrawBase(false);
  tabs_->setExpanding(false);
  tabs_->addTab(tr("Document"));
  tabs_->addTab(tr("Settings"));
  pages_->addWidget(documentPanel_);
  pages_->addWidget(settingsPanel_);
  auto* layout = new QVBoxLayout(this);
  layout->setContentsMargins(0, 0, 0, 0);
  layout->setSpacing(0);
  layout->addWidget(tabs_);
  layout->addWidget(pages_, 1);
  connect(tabs_, &QTabBar::currentChanged, this, [this](int index) {
    pages_->setCurrentIndex(index);
    emit pageChanged();
  });
}

void RightPane::showPage(Page page) { tabs_->setCurrentIndex(static_cast<int>(page)); }

RightPane::Page RightPane::page() const { return static_cast<Page>(tabs_->currentIndex()); }

}  // namespace longhand::ui
