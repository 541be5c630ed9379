#pragma once
// An engine::Error in the form that crosses threads and reaches the window.

#include <QString>

#include "engine/base/error.h"

namespace longhand::app {

/// `message`: one sentence, what is wrong and where. `hint`: what to do about it, may be empty.
struct ErrorText {
  engine::ErrorCode code = engine::ErrorCode::kInternal;
  QString message;
  QString hint;
};

/// The error being handled; call it inside a catch block only. std::bad_alloc becomes kOutOfMemory,
/// anything unknown kInternal.
ErrorText currentErrorText();

/// Throws engine::Error.
[[noreturn]] void throwError(engine::ErrorCode code, const QString& message,
                             const QString& hint = {});

}  // namespace longhand::app
