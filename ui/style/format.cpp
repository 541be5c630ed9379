#include "ui/style/format.h"

#include <cmath>

#include <QLocale>

using namespace Qt::StringLiterals;

namespace longhand::ui {

namespace {

// The texts are English, so are the numbers: a comma groups thousands, a point starts decimals.
QLocale textLocale() { return QLocale(QLocale::English, QLocale::UnitedStates); }

constexpr std::uint64_t kKiB = 1024;
constexpr std::uint64_t kMiB = 1024 * kKiB;
constexpr std::uint64_t kGiB = 1024 * kMiB;

}  // namespace

QString formatBytes(std::uint64_t bytes) {
  const auto scaled = [bytes](std::uint64_t unit, const char* name) {
    const double value = static_cast<double>(bytes) / static_cast<double>(unit);
    const int digits = unit == kGiB ? 2 : value < 100 ? 1 : 0;
    return QStringLiteral("%1 %2").arg(textLocale().toString(value, 'f', digits),
                                       QLatin1String(name));
  };
  if (bytes >= kGiB) return scaled(kGiB, "GiB");
  if (bytes >= kMiB) return scaled(kMiB, "MiB");
  if (bytes >= kKiB) return scaled(kKiB, "KiB");
  return QStringLiteral("%1 B").arg(bytes);
}

QString formatCount(qint64 count) { return textLocale().toString(count); }

QString formatTokens(qint64 count) {
  return count == 1 ? u"1 token"_s : u"%1 tokens"_s.arg(formatCount(count));
}

QString formatDuration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0.0) return u"unknown"_s;
  if (seconds > 0.0 && seconds < 0.1) return u"%1 ms"_s.arg(std::lround(seconds * 1000.0));
  if (seconds < 10.0) return u"%1 s"_s.arg(textLocale().toString(seconds, 'f', 1));
  const qint64 whole = std::llround(seconds);
  if (whole < 60) return u"%1 s"_s.arg(whole);
  if (whole < 3600) return u"%1 min %2 s"_s.arg(whole / 60).arg(whole % 60);
  return u"%1 h %2 min"_s.arg(whole / 3600).arg(whole % 3600 / 60);
}

QString formatRate(double tokensPerSecond) {
  if (!std::isfinite(tokensPerSecond) || tokensPerSecond <= 0.0) return u"-- tokens/s"_s;
  const int decimals = tokensPerSecond < 100.0 ? 1 : 0;
  return u"%1 tokens/s"_s.arg(textLocale().toString(tokensPerSecond, 'f', decimals));
}

QString formatWhen(const QDateTime& when, const QDateTime& now) {
  const QDateTime local = when.toLocalTime();
  const qint64 daysAgo = local.date().daysTo(now.toLocalTime().date());
  if (daysAgo == 0) return local.toString(u"HH:mm"_s);
  if (daysAgo == 1) return u"Yesterday"_s;
  const bool thisYear = local.date().year() == now.toLocalTime().date().year();
  return textLocale().toString(local.date(), thisYear ? u"d MMM"_s : u"d MMM yyyy"_s);
}

}  // namespace longhand::ui
