#pragma once
// The database's schema, step by step. A database of version n is brought up to date by the steps
// n + 1 and later, in order. Steps that were released never change; new ones are added at the end.
//
//   1  conversations, messages, documents, settings, the user's presets
//   2  full-text search over messages and titles (FTS5, trigrams: any script, no word breaking)

#include <vector>

namespace longhand::app {

struct SchemaStep {
  int version;
  std::vector<const char*> statements;  // one SQL statement each
};

inline constexpr int kSchemaVersion = 3;

/// Written into each file (PRAGMA application_id), so that no other program's file is taken for
/// ours: "LngH".
inline constexpr int kApplicationId = 0x4C6E6748;

/// In order of version; the last is kSchemaVersion.
const std::vector<SchemaStep>& schemaSteps();

}  // namespace longhand::app
