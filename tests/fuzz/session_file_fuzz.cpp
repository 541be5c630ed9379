// Feeds bytes to the reader of session files, once as they are and once with right checksums: the
// engine has a session afterwards, or an Error and the one it had before.

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "tests/engine/session/session_file_tools.h"

namespace {

using namespace longhand;  // NOLINT: a program of one file

void restore(engine::Engine& engine, const std::vector<std::byte>& bytes) {
  const int file = ::memfd_create("fuzz", 0);
  if (file < 0 || ::write(file, bytes.data(), bytes.size()) < 0) std::abort();
  const std::vector<std::int32_t> before(engine.cachedTokens().begin(),
                                         engine.cachedTokens().end());
  try {
    engine.restoreSession("/proc/self/fd/" + std::to_string(file), {}, {});
    std::vector<std::int32_t> prompt(engine.cachedTokens().begin(), engine.cachedTokens().end());
    prompt.insert(prompt.end(), 40, 3);  // packs a page or more
    engine.nextLogits(prompt);
  } catch (const engine::Error& error) {
    if (error.message().find('\n') != std::string::npos) std::abort();
    const auto now = engine.cachedTokens();
    if (!std::equal(now.begin(), now.end(), before.begin(), before.end())) std::abort();
  }
  ::close(file);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const auto kEngine = tests::loadSmall(tests::smallCache());
  std::vector<std::byte> bytes(size);
  std::transform(data, data + size, bytes.begin(), [](std::uint8_t b) { return std::byte{b}; });
  restore(*kEngine, bytes);
  tests::reseal(bytes);
  restore(*kEngine, bytes);
  return 0;
}
