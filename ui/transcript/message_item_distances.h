#pragma once
// Distances that the geometry of a MessageItem and its painting share, in pixels.

namespace longhand::ui {

inline constexpr double kSpaceAbove = 14;
inline constexpr double kCardIcon = 38;
inline constexpr double kProgressHeight = 4;

}  // namespace longhand::ui
