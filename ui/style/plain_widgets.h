#pragma once
// Widgets that leave the window to what stands in them: no frames, no bars that are not needed.

class QScrollArea;
class QString;
class QTableWidget;
class QWidget;

namespace longhand::ui {

/// A table that only shows: no grid, nothing to select or edit, as high as its rows. The keyboard
/// reaches it as a whole, and Tab leaves it.
void makePlain(QTableWidget& table);

/// An area that scrolls `page` up and down, and takes it. Its names are `objectName`, and `name`
/// for screen readers.
QScrollArea* makeScroll(QWidget* page, const QString& objectName, const QString& name,
                        QWidget* parent);

}  // namespace longhand::ui
