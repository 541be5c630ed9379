#include "app/error_text.h"

#include <exception>
#include <new>

namespace longhand::app {

ErrorText currentErrorText() {
  try {
    throw;
  } catch (const engine::Error& error) {
    return {error.code(), QString::fromStdString(error.message()),
            QString::fromStdString(error.hint())};
  } catch (const std::bad_alloc&) {
    return {engine::ErrorCode::kOutOfMemory, QStringLiteral("The computer has no memory left."),
            QStringLiteral("Choose a shorter context, a smaller preset, or close other programs.")};
  } catch (const std::exception& error) {
    return {engine::ErrorCode::kInternal,
            QStringLiteral("Unexpected fault: %1.").arg(QString::fromUtf8(error.what())),
            {}};
  } catch (...) {
    return {engine::ErrorCode::kInternal, QStringLiteral("Unexpected fault of unknown kind."), {}};
  }
}

void throwError(engine::ErrorCode code, const QString& message, const QString& hint) {
  throw engine::Error(code, message.toStdString(), hint.toStdString());
}

}  // namespace longhand::app
