// Feeds bytes to the reader of .safetensors: it gives tensors inside the bytes, or an Error.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <span>

#include "engine/base/error.h"
#include "engine/model/safetensors_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace longhand::engine;
  try {
    const std::span<const std::byte> file(reinterpret_cast<const std::byte*>(data), size);
    for (const auto& [name, tensor] : parseSafetensors(file, "fuzz.safetensors")) {
      std::size_t bytes = tensorTypeBytes(tensor.type);
      for (const std::int64_t extent : tensor.shape) bytes *= static_cast<std::size_t>(extent);
      if (bytes != tensor.data.size()) std::abort();
      // Touch all bytes, so that the sanitizer sees a range outside the file.
      volatile unsigned sum = 0;
      for (const std::byte byte : tensor.data) sum = sum + std::to_integer<unsigned>(byte);
    }
  } catch (const Error& error) {
    if (error.message().find('\n') != std::string::npos) std::abort();
  }
  return 0;
}
