#pragma once
// Numbers, sizes and times as the window spells them. One place, so that the same value never looks
// different in two panels. Sizes are binary (GiB, MiB, KiB); GB is never shown.

#include <cstdint>

#include <QDateTime>
#include <QString>

namespace longhand::ui {

/// "13.70 GiB", "24.5 MiB", "512 B"; always binary units.
QString formatBytes(std::uint64_t bytes);
/// "1,209".
QString formatCount(qint64 count);
/// "1 token", "1,209 tokens".
QString formatTokens(qint64 count);
/// "40 ms", "0.4 s", "12 s", "2 min 5 s", "1 h 4 min". Negative and not finite: "unknown".
QString formatDuration(double seconds);
/// "41.3 tokens/s"; zero or not finite: "-- tokens/s".
QString formatRate(double tokensPerSecond);
/// For lists: "14:03" today, "Yesterday", "12 May" this year, "12 May 2025" else.
QString formatWhen(const QDateTime& when, const QDateTime& now);

}  // namespace longhand::ui
