#include "ui/style/plain_widgets.h"

#include <QHeaderView>
#include <QScrollArea>
#include <QTableWidget>

#include "ui/style/named.h"

namespace longhand::ui {

void makePlain(QTableWidget& table) {
  table.verticalHeader()->hide();
  table.horizontalHeader()->setHighlightSections(false);
  table.setShowGrid(false);
  table.setEditTriggers(QAbstractItemView::NoEditTriggers);
  table.setSelectionMode(QAbstractItemView::NoSelection);
  table.setFocusPolicy(Qt::TabFocus);
  table.setTabKeyNavigation(false);
  table.setHorizontalScrollBarPolicy(Qt::ScrollBarAlwaysOff);
  table.setVerticalScrollBarPolicy(Qt::ScrollBarAlwaysOff);
  table.setFrameShape(QFrame::NoFrame);
}

QScrollArea* makeScroll(QWidget* page, const QString& objectName, const QString& name,
                        QWidget* parent) {
  auto* scroll = named(new QScrollArea(parent), objectName, name);
  scroll->setWidget(page);
  scroll->setWidgetResizable(true);
  scroll->setFrameShape(QFrame::NoFrame);
  scroll->setHorizontalScrollBarPolicy(Qt::ScrollBarAlwaysOff);
  scroll->setFocusPolicy(Qt::NoFocus);
  return scroll;
}

}  // namespace longhand::ui
