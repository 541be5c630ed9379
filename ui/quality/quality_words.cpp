#include "ui/quality/quality_words.h"

#include <cmath>

#include <QCoreApplication>
#include <QLocale>
#include <QStringList>

#include "ui/style/format.h"

using namespace Qt::StringLiterals;

namespace longhand::ui {

namespace {

/// The texts of this file share one context.
QString tr(const char* text) { return QCoreApplication::translate("longhand::ui::Quality", text); }

QString decimals(double value, int count) {
  return QLocale(QLocale::English, QLocale::UnitedStates).toString(value, 'f', count);
}

/// "1 to 2,048" of a piece, counted from 1.
QString range(const app::QualityCheckPiece& piece) {
  return tr("%1 to %2")
      .arg(formatCount(piece.firstToken + 1), formatCount(piece.firstToken + piece.tokens));
}

std::vector<const app::QualityCheckRow*> allRows(const app::QualityCheckResult& result) {
  std::vector<const app::QualityCheckRow*> rows = {&result.exact};
  for (const app::QualityCheckRow& row : result.rows) rows.push_back(&row);
  return rows;
}

QString joined(const QStringList& names) {
  if (names.size() < 2) return names.join(QString());
  return tr("%1 and %2").arg(names.first(names.size() - 1).join(u", "_s), names.last());
}

}  // namespace

QString formatPerplexity(double perplexity) {
  if (!std::isfinite(perplexity)) return tr("unknown");
  return decimals(perplexity, perplexity < 1000.0 ? 3 : 0);
}

QString formatDivergence(double nats) {
  if (nats <= 0.0) return u"0"_s;
  if (nats < 0.0001) return u"< 0.0001"_s;
  return decimals(nats, nats < 1.0 ? 4 : 2);
}

QString formatEqualShare(double share) {
  if (share >= 1.0) return u"100 %"_s;
  return u"%1 %"_s.arg(decimals(std::floor(share * 1000.0) / 10.0, 1));
}

QString qualitySample(const app::QualityCheckResult& result) {
  if (result.pieces.empty()) return {};
  const app::QualityCheckPiece& first = result.pieces.front();
  const qint64 read = first.tokens - first.scoredTokens;
  QString text =
      tr("Measured on %1 of the %2 tokens of %3.")
          .arg(formatCount(result.scoredTokens), formatCount(result.textTokens), result.textName);
  if (result.pieces.size() == 1) {
    return text + u' ' +
           tr("Of tokens %1, the first %2 are read as a prompt is; the other %3 are predicted one "
              "by one, as an answer is written.")
               .arg(range(first), formatCount(read), formatCount(first.scoredTokens));
  }
  QStringList ranges;
  for (const app::QualityCheckPiece& piece : result.pieces) ranges << range(piece);
  return text + u' ' +
         tr("It has %1 pieces, spread evenly over the text: tokens %2. Of each, the first %3 are "
            "read as a prompt is; the other %4 are predicted one by one, as an answer is written.")
             .arg(formatCount(std::ssize(result.pieces)), joined(ranges), formatCount(read),
                  formatCount(first.scoredTokens));
}

QString qualityVerdict(const app::QualityCheckResult& result, const QString& currentPresetId) {
  for (const app::QualityCheckRow& row : result.rows) {
    if (row.preset.id != currentPresetId) continue;
    const double memory = result.exact.cacheBytes == 0
                              ? 0.0
                              : 100.0 * static_cast<double>(row.cacheBytes) /
                                    static_cast<double>(result.exact.cacheBytes);
    return tr("%1, in use here, chooses the same next token as an exact cache in %2 of all cases, "
              "with %3 % of its memory.")
        .arg(row.preset.name, formatEqualShare(row.equalTopShare), decimals(memory, 0));
  }
  return tr("%1 is in use here: nothing is lost. The table says what the others lose, and save.")
      .arg(result.exact.preset.name);
}

QString qualityCaveat(const app::QualityCheckResult& result) {
  QStringList names;
  for (const app::QualityCheckRow& row : result.rows) {
    const bool packs = row.preset.cache.keyNbits < 16 || row.preset.cache.valueNbits < 16;
    if (packs && row.packedTokens == 0) names << row.preset.name;
  }
  if (names.isEmpty()) return {};
  return tr("The sample is too short for %1: all of it was still kept exactly, so that nothing "
            "could be lost. A longer text says more.")
      .arg(joined(names));
}

QString qualityStep(const app::QualityCheckProgress& progress) {
  switch (progress.step) {
    case app::QualityCheckStep::kCountingTokens:
      return tr("Counting the tokens of the text");
    case app::QualityCheckStep::kTimingModel:
      return tr("Trying how fast the model is, to choose a sample of less than a minute");
    case app::QualityCheckStep::kMeasuring:
      break;
  }
  QString text = tr("%1 presets side by side, %2 each: %3 of %4 done")
                     .arg(formatCount(progress.nPresets), formatTokens(progress.scoredTokens),
                          formatCount(progress.measuredTokens), formatCount(progress.totalTokens));
  constexpr double kFewSeconds = 10.0;
  if (progress.secondsLeft >= kFewSeconds) {
    text += u", "_s + tr("about %1 left").arg(formatDuration(progress.secondsLeft));
  } else if (progress.secondsLeft >= 0.0) {
    text += u", "_s + tr("a few seconds left");
  }
  return text;
}

QualityColumn qualityColumn(int index, const app::QualityCheckResult& result) {
  switch (index) {
    case kQualityPreset:
      return {tr("Preset"), tr("The bits of keys and values, as its tool tip says.")};
    case kQualityPerplexity:
      return {tr("Perplexity"),
              tr("How surprised the model is by the text's own next token: about as unsure as when "
                 "guessing among this many. Lower is better.")};
    case kQualityMeanKl:
      return {tr("Mean KL"),
              tr("How far the predictions are from those of an exact cache, on average (KL "
                 "divergence in nats). 0: the same.")};
    case kQualityP99Kl:
      return {tr("99 % KL"),
              tr("The same at bad places: 99 of 100 predictions are no further away than this.")};
    case kQualityEqualTop:
      return {tr("Same choice"),
              tr("How often the likeliest next token is the one that an exact cache finds.")};
    case kQualityBytes:
      return {tr("Cache"), tr("Memory of the KV cache with the whole context of %1.")
                               .arg(formatTokens(result.contextLength))};
    default:
      return {};
  }
}

QString qualityCell(const app::QualityCheckRow& row, int index) {
  switch (index) {
    case kQualityPreset:
      return row.preset.name;
    case kQualityPerplexity:
      return formatPerplexity(row.perplexity);
    case kQualityMeanKl:
      return formatDivergence(row.meanKl);
    case kQualityP99Kl:
      return formatDivergence(row.p99Kl);
    case kQualityEqualTop:
      return formatEqualShare(row.equalTopShare);
    case kQualityBytes:
      return formatBytes(row.cacheBytes);
    default:
      return {};
  }
}

QString qualityMarkdown(const app::QualityCheckResult& result) {
  QString text = qualitySample(result) + u"\n\n|"_s;
  QString rule = u"|"_s;
  for (int column = 0; column < kQualityColumnCount; ++column) {
    text += u' ' + qualityColumn(column, result).title + u" |"_s;
    rule += column == kQualityPreset ? u" --- |"_s : u" ---: |"_s;
  }
  text += u'\n' + rule + u'\n';
  for (const app::QualityCheckRow* row : allRows(result)) {
    text += u'|';
    for (int column = 0; column < kQualityColumnCount; ++column) {
      text += u' ' + qualityCell(*row, column).replace(u'|', u"\\|"_s) + u" |"_s;
    }
    text += u'\n';
  }
  if (const QString caveat = qualityCaveat(result); !caveat.isEmpty())
    text += u'\n' + caveat + u'\n';
  text += u'\n';
  for (int column = kQualityPreset + 1; column < kQualityColumnCount; ++column) {
    const QualityColumn each = qualityColumn(column, result);
    text += u"- %1: %2\n"_s.arg(each.title, each.meaning);
  }
  return text;
}

QString qualityHtml(const app::QualityCheckResult& result) {
  QString html = u"<p>%1</p><table border=\"1\" cellspacing=\"0\" cellpadding=\"4\"><tr>"_s.arg(
      qualitySample(result).toHtmlEscaped());
  for (int column = 0; column < kQualityColumnCount; ++column) {
    html += u"<th>%1</th>"_s.arg(qualityColumn(column, result).title.toHtmlEscaped());
  }
  html += u"</tr>"_s;
  for (const app::QualityCheckRow* row : allRows(result)) {
    html += u"<tr>"_s;
    for (int column = 0; column < kQualityColumnCount; ++column) {
      html += u"<td align=\"%1\">%2</td>"_s.arg(column == kQualityPreset ? u"left"_s : u"right"_s,
                                                qualityCell(*row, column).toHtmlEscaped());
    }
    html += u"</tr>"_s;
  }
  html += u"</table>"_s;
  if (const QString caveat = qualityCaveat(result); !caveat.isEmpty()) {
    html += u"<p>%1</p>"_s.arg(caveat.toHtmlEscaped());
  }
  for (int column = kQualityPreset + 1; column < kQualityColumnCount; ++column) {
    const QualityColumn each = qualityColumn(column, result);
    html += u"<p>%1: %2</p>"_s.arg(each.title.toHtmlEscaped(), each.meaning.toHtmlEscaped());
  }
  return html;
}

}  // namespace longhand::ui
