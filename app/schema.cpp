#include "app/schema.h"

namespace longhand::app {

// Times are milliseconds since 1970 in UTC. The words of role and state are written to disk: never
// rename them.
const std::vector<SchemaStep>& schemaSteps() {
  static const std::vector<SchemaStep> steps = {
      {1,
       {
           R"(CREATE TABLE conversations (
                id INTEGER PRIMARY KEY AUTOINCREMENT,
                title TEXT NOT NULL DEFAULT '',
                created_ms INTEGER NOT NULL,
                updated_ms INTEGER NOT NULL,
                preset_id TEXT NOT NULL,
                pinned INTEGER NOT NULL DEFAULT 0,
                active_leaf_id INTEGER REFERENCES messages(id) ON DELETE SET NULL,
                draft TEXT NOT NULL DEFAULT '',
                deleted_ms INTEGER))",
           R"(CREATE TABLE messages (
                id INTEGER PRIMARY KEY AUTOINCREMENT,
                conversation_id INTEGER NOT NULL REFERENCES conversations(id) ON DELETE CASCADE,
                parent_id INTEGER REFERENCES messages(id) ON DELETE CASCADE,
                role TEXT NOT NULL CHECK (role IN ('user', 'assistant')),
                text TEXT NOT NULL,
                tokens BLOB,
                tokenizer_fingerprint INTEGER NOT NULL DEFAULT 0,
                state TEXT NOT NULL
                  CHECK (state IN ('complete', 'streaming', 'stopped', 'failed')),
                stop_reason TEXT NOT NULL DEFAULT '',
                prompt_tokens INTEGER NOT NULL DEFAULT 0,
                reused_tokens INTEGER NOT NULL DEFAULT 0,
                answer_tokens INTEGER NOT NULL DEFAULT 0,
                first_token_seconds REAL NOT NULL DEFAULT 0,
                tokens_per_second REAL NOT NULL DEFAULT 0,
                prefill_tokens_per_second REAL NOT NULL DEFAULT 0,
                created_ms INTEGER NOT NULL))",
           "CREATE INDEX messages_by_parent ON messages(conversation_id, parent_id)",
           "CREATE INDEX messages_streaming ON messages(id) WHERE state = 'streaming'",
           R"(CREATE TABLE documents (
                id INTEGER PRIMARY KEY AUTOINCREMENT,
                file_name TEXT NOT NULL,
                path TEXT NOT NULL,
                encoding TEXT NOT NULL,
                text TEXT NOT NULL,
                sha256 BLOB NOT NULL UNIQUE,
                token_count INTEGER NOT NULL,
                notes TEXT NOT NULL,
                added_ms INTEGER NOT NULL))",
           R"(CREATE TABLE conversation_documents (
                conversation_id INTEGER NOT NULL REFERENCES conversations(id) ON DELETE CASCADE,
                document_id INTEGER NOT NULL REFERENCES documents(id) ON DELETE CASCADE,
                position INTEGER NOT NULL,
                PRIMARY KEY (conversation_id, document_id)))",
           "CREATE TABLE settings (key TEXT PRIMARY KEY, value BLOB)",
           R"(CREATE TABLE user_presets (
                id INTEGER PRIMARY KEY AUTOINCREMENT,
                name TEXT NOT NULL,
                cache TEXT NOT NULL))",
       }},
      {2,
       {
           R"(CREATE VIRTUAL TABLE message_search USING fts5(
                text, content='messages', content_rowid='id', tokenize='trigram'))",
           R"(CREATE TRIGGER message_search_insert AFTER INSERT ON messages BEGIN
                INSERT INTO message_search(rowid, text) VALUES (new.id, new.text);
              END)",
           R"(CREATE TRIGGER message_search_delete AFTER DELETE ON messages BEGIN
                INSERT INTO message_search(message_search, rowid, text)
                  VALUES ('delete', old.id, old.text);
              END)",
           R"(CREATE TRIGGER message_search_update AFTER UPDATE OF text ON messages BEGIN
                INSERT INTO message_search(message_search, rowid, text)
                  VALUES ('delete', old.id, old.text);
                INSERT INTO message_search(rowid, text) VALUES (new.id, new.text);
              END)",
           R"(CREATE VIRTUAL TABLE title_search USING fts5(
                title, content='conversations', content_rowid='id', tokenize='trigram'))",
           R"(CREATE TRIGGER title_search_insert AFTER INSERT ON conversations BEGIN
                INSERT INTO title_search(rowid, title) VALUES (new.id, new.title);
              END)",
           R"(CREATE TRIGGER title_search_delete AFTER DELETE ON conversations BEGIN
                INSERT INTO title_search(title_search, rowid, title)
                  VALUES ('delete', old.id, old.title);
              END)",
           R"(CREATE TRIGGER title_search_update AFTER UPDATE OF title ON conversations BEGIN
                INSERT INTO title_search(title_search, rowid, title)
                  VALUES ('delete', old.id, old.title);
                INSERT INTO title_search(rowid, title) VALUES (new.id, new.title);
              END)",
           "INSERT INTO message_search(message_search) VALUES ('rebuild')",
           "INSERT INTO title_search(title_search) VALUES ('rebuild')",
       }},
      {3,
       {
           // Each chat has its own context length and custom cache; both were those of all chats.
           "ALTER TABLE conversations ADD COLUMN context_length INTEGER NOT NULL DEFAULT 0",
           "ALTER TABLE conversations ADD COLUMN custom_cache TEXT NOT NULL DEFAULT ''",
           R"(UPDATE conversations SET context_length = coalesce(
                (SELECT CAST(value AS INTEGER) FROM settings WHERE key = 'context_length'), 0))",
           R"(UPDATE conversations SET custom_cache = coalesce(
                (SELECT value FROM settings WHERE key = 'custom_cache'), '')
                WHERE preset_id = 'custom')",
           // 0: counted before the tokenizer was noted.
           "ALTER TABLE documents ADD COLUMN tokenizer_fingerprint INTEGER NOT NULL DEFAULT 0",
       }},
  };
  return steps;
}

}  // namespace longhand::app
