#pragma once
// Checks of errors, for tests of app/.

#include <QString>
#include <QtTest>

#include "engine/base/error.h"

namespace longhand::tests {

/// The engine::Error that `work` throws; nothing is a failure of the test.
template <typename Work>
engine::Error errorOf(Work&& work) {
  try {
    work();
  } catch (const engine::Error& error) {
    return error;
  }
  return {engine::ErrorCode::kInternal, "nothing was thrown"};
}

inline bool mentions(const engine::Error& error, const QString& text) {
  return QString::fromStdString(error.line()).contains(text);
}

}  // namespace longhand::tests

/// Compares codes, and shows the error's text where they differ.
#define LONGHAND_COMPARE_CODE(error, expected) \
  QVERIFY2((error).code() == (expected), (error).line().c_str())
