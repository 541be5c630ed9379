// How a MarkdownDocument looks: boxes of code, bullets, check boxes and quote bars around the text.
#include <cmath>

#include <QPainter>
#include <QTextBlock>
#include <QTextLayout>

#include "ui/markdown/markdown_document.h"
#include "ui/markdown/markdown_document_marks.h"

namespace longhand::ui {

void MarkdownDocument::paint(
    QPainter& painter, const QRectF& clip,
    const QVector<QAbstractTextDocumentLayout::Selection>& selections) const {
  painter.save();
  painter.setRenderHint(QPainter::Antialiasing);
  painter.setPen(Qt::NoPen);
  for (const CodeBox& box : codeBoxes(clip)) {
    painter.setBrush(theme_.colors.codeBox);
    painter.setPen(QPen(theme_.colors.separator, 1));
    painter.drawRoundedRect(box.rect.adjusted(0.5, 0.5, -0.5, -0.5), theme_.metrics.radius,
                            theme_.metrics.radius);
    painter.setFont(theme_.smallFont);
    painter.setPen(theme_.colors.textMuted);
    const QRectF title(box.rect.left() + kCodePadding, box.rect.top() + 1, box.rect.width() - 48,
                       kCodeTitle - 2);
    const QFontMetricsF metrics(theme_.smallFont);
    painter.drawText(title, Qt::AlignVCenter | Qt::AlignLeft,
                     metrics.elidedText(box.language.isEmpty() ? QObject::tr("Code") : box.language,
                                        Qt::ElideRight, title.width()));
  }
  painter.restore();

  QAbstractTextDocumentLayout::PaintContext context;
  context.clip = clip;
  context.palette.setColor(QPalette::Text, theme_.colors.text);
  context.selections = selections;
  painter.save();
  painter.setClipRect(clip, Qt::IntersectClip);
  document_->documentLayout()->draw(&painter, context);
  painter.restore();
  paintMarkers(painter, clip);
}

namespace {

void paintBullet(QPainter& painter, const QPointF& center, qsizetype depth, const QColor& color) {
  if (depth % 3 == 2) {
    painter.setPen(QPen(color, 1.2));
    painter.setBrush(Qt::NoBrush);
    painter.drawEllipse(center, 2.4, 2.4);
    return;
  }
  painter.setPen(Qt::NoPen);
  painter.setBrush(color);
  if (depth % 3 == 1) {
    painter.drawEllipse(center, 2.6, 2.6);
  } else {
    painter.drawRect(QRectF(center.x() - 2.2, center.y() - 2.2, 4.4, 4.4));
  }
}

void paintCheckBox(QPainter& painter, const QPointF& center, bool done, const ThemeColors& colors) {
  const QRectF box(center.x() - 7, center.y() - 7, 14, 14);
  painter.setPen(QPen(done ? colors.accent : colors.textMuted, 1.3));
  painter.setBrush(done ? QBrush(colors.accent) : QBrush(Qt::NoBrush));
  painter.drawRoundedRect(box, 3, 3);
  if (!done) return;
  painter.setPen(QPen(colors.accentText, 1.8, Qt::SolidLine, Qt::RoundCap, Qt::RoundJoin));
  painter.drawPolyline(QPolygonF({{box.left() + 3.5, box.top() + 7.3},
                                  {box.left() + 6, box.top() + 10},
                                  {box.left() + 10.7, box.top() + 4.3}}));
}

}  // namespace

void MarkdownDocument::paintMarkers(QPainter& painter, const QRectF& clip) const {
  if (shown_.empty()) return;
  painter.save();
  painter.setRenderHint(QPainter::Antialiasing);
  const ThemeColors& colors = theme_.colors;
  QByteArray above;  // containers of the block before
  double aboveBottom = 0;
  const std::size_t start = firstShownAt(clip.top());
  for (std::size_t i = start > 0 ? start - 1 : 0; i < shown_.size(); ++i) {
    const QTextBlock block = document_->findBlock(shown_[i].position);
    const QRectF rect = document_->documentLayout()->blockBoundingRect(block);
    if (rect.top() > clip.bottom() + 60) break;
    const QTextBlockFormat format = block.blockFormat();
    const QByteArray containers = format.stringProperty(kContainers).toLatin1();
    const bool code = shown_[i].kind == MarkdownBlock::Kind::kCodeLine;

    const double top = code && shown_[i].firstLine ? rect.top() - kCodeTitle : rect.top();
    const double bottom = code && shown_[i].lastLine ? rect.bottom() + kCodePadding : rect.bottom();
    for (qsizetype depth = 0; depth < containers.size(); ++depth) {
      if (containers[depth] != 'q') continue;
      const bool joins = above.left(depth + 1) == containers.left(depth + 1);
      const double from = joins ? aboveBottom : top;
      painter.setPen(Qt::NoPen);
      painter.setBrush(colors.border);
      painter.drawRect(QRectF(indentOf(containers, depth), from, kQuoteBar, bottom - from));
    }
    above = containers;
    aboveBottom = bottom;

    if (shown_[i].kind == MarkdownBlock::Kind::kRule) {
      const double left = format.leftMargin();
      painter.fillRect(
          QRectF(left, std::floor(rect.center().y()), document_->textWidth() - left, 1),
          colors.border);
    }
    const QString marker = format.stringProperty(kMarker);
    if (marker.isEmpty()) continue;
    // Code and tables in a list item have no first line of text to stand beside.
    const QTextLine line =
        block.layout()->lineCount() > 0 ? block.layout()->lineAt(0) : QTextLine();
    const double ascent = line.isValid() ? line.ascent() : 0;
    const double left = indentOf(containers);
    const QFontMetricsF metrics(theme_.textFont);
    const QPointF center(left - 13, rect.top() + ascent - metrics.xHeight() / 2.0);
    if (marker == QChar(kBulletMarker)) {
      paintBullet(painter, center, containers.count('l'), colors.textMuted);
    } else if (marker == QChar(kTaskOpenMarker) || marker == QChar(kTaskDoneMarker)) {
      paintCheckBox(painter, QPointF(left - 13, rect.top() + ascent - metrics.capHeight() / 2.0),
                    marker == QChar(kTaskDoneMarker), colors);
    } else {
      painter.setFont(theme_.textFont);
      painter.setPen(colors.textMuted);
      painter.drawText(QPointF(left - 7 - metrics.horizontalAdvance(marker), rect.top() + ascent),
                       marker);
    }
  }
  painter.restore();
}

}  // namespace longhand::ui
