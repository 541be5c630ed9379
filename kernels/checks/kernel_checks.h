#pragma once
// Every operation of a backend against the slow twin: the list that `longhand-cli selftest` runs on
// a real device, and its test on the emulated one.

#include <functional>
#include <string>

#include "kernels/backend.h"
#include "kernels/checks/check_result.h"

namespace longhand::kernels::checks {

/// kQuick: small shapes, some of each kind, for the emulated device. kFull: the sizes of real
/// models too; some 20 seconds of one core for the twin.
enum class CheckExtent { kQuick, kFull };

/// The checks of one kind.
struct KernelCheck {
  std::string operation;  // "decode attention"
  std::string what;       // "keys 4, values 2 bits"
  int nCases = 0;
  CheckResult result;
  double seconds = 0.0;  // the twin's, mostly
};

/// Runs all checks in the order of the list, and tells after each; `onCheck` returns whether to go
/// on. False when it did not. A device fault is a problem of the check that caused it, and ends the
/// list, since the device is then lost. std::bad_alloc when the device has no room.
bool checkKernels(Backend& backend, CheckExtent extent,
                  const std::function<bool(const KernelCheck&)>& onCheck);

}  // namespace longhand::kernels::checks
