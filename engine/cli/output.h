#pragma once
// What the commands print: JSON, sizes, tables; and reading text from files.

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/memory_ledger.h"

#include <nlohmann/json.hpp>

namespace longhand::engine::cli {

/// One line of JSON on stdout.
void printJson(const nlohmann::json& value);

/// "3.60 GiB", "512.0 KiB": binary units only.
std::string formatBytes(std::uint64_t bytes);
/// Always in GiB, for columns: "0.004".
std::string formatGiB(std::uint64_t bytes);
/// "24GiB", "512 MiB", "24GB" (10^9) or a number of bytes. Throws Error kInvalidArgument.
std::uint64_t parseBytes(std::string_view text);
/// "100,000".
std::string formatCount(std::int64_t count);

/// {"weights": bytes, "kv_codes": ..., "kv_scales": ..., "kv_exact": ..., "workspace": ...,
/// "total"}
nlohmann::json memoryJson(const MemoryUse& use);
/// The same as a table with one line for each category and the total.
std::string memoryTable(const MemoryUse& use);

/// Contents of a text file, or of stdin for "-"; without a byte order mark. Throws Error
/// (kFileNotFound, kFileUnreadable, kInvalidArgument for a file that is no text).
std::string readTextFile(const std::filesystem::path& path);
/// The same for a document to ask about: also refuses a blank one and one that is not UTF-8, which
/// would be read with U+FFFD in the place of letters.
std::string readDocument(const std::filesystem::path& path);
/// As readTextFile() without the newline that editors put at the end of every file.
std::string readPromptFile(const std::filesystem::path& path);

bool isTerminal(int fileDescriptor);

}  // namespace longhand::engine::cli
