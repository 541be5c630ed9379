#pragma once
// Devices work while the program goes on: what went wrong shows when it waits for them.

#include <string>

#include "engine/base/error.h"
#include "kernels/backend.h"

namespace longhand::engine {

/// Waits until all that was asked of `backend` is done. Throws Error kDevice when it failed;
/// `what` begins the sentence.
inline void requireNoFault(kernels::Backend& backend,
                           const std::string& what = "The computation failed") {
  const std::string fault = backend.synchronize();
  if (fault.empty()) return;
  throw Error(ErrorCode::kDevice, what + ": " + fault + ".",
              "Restart Longhand; if it happens again, restart the computer.");
}

}  // namespace longhand::engine
