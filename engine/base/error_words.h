#pragma once
// Text of untrusted files inside error messages: one line, bounded, without control characters.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace longhand::engine {

/// 'name' in quotes; control characters become '?', and what is beyond 100 bytes becomes "...".
std::string quotedName(std::string_view name);
/// "[32000, 4096]".
std::string shapeText(std::span<const std::int64_t> shape);
/// "3.6 GiB", "12.0 MiB" or "900 bytes".
std::string bytesText(std::uint64_t bytes);

}  // namespace longhand::engine
