#pragma once
// One list of backends for the tests of kernels: a test of an operation runs on each of them and
// compares with the slow twin.
//   void multiplies_data() { addBackends(); }
//   void multiplies() { LONGHAND_FETCH_BACKEND(); backend.matmul(...); }

#include <memory>

#include <QString>
#include <QtTest>

#include "kernels/backend.h"

namespace longhand::tests {

/// A column "backendName" and a row for each backend that this build knows.
void addBackends();

/// The same with the emulated CUDA backends alone, for what CPU backends test elsewhere.
void addEmulatedBackends();

/// nullptr where this machine cannot run it. CPU backends get 3 threads: more than a small
/// machine's cores, so that threads also wait for each other.
std::unique_ptr<kernels::Backend> createBackend(const QString& name);

}  // namespace longhand::tests

/// Declares `backend`, a reference to the backend of the test row, or skips.
#define LONGHAND_FETCH_BACKEND()                                                    \
  QFETCH(QString, backendName);                                                     \
  const auto backendOwner = longhand::tests::createBackend(backendName);            \
  if (backendOwner == nullptr) QSKIP("this machine lacks the instructions for it"); \
  longhand::kernels::Backend& backend = *backendOwner
