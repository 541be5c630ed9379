#pragma once
// Character references of HTML, as they may stand in Markdown ("&amp;", "&#x4e2d;").

#include <string_view>

#include <QString>

namespace longhand::ui {

/// The characters of `entity` (with its & and ;); the reference itself when its name is unknown.
QString decodeEntity(std::string_view entity);

}  // namespace longhand::ui
