#pragma once
// What the settings panel edits, and what the loaded model and the machine allow of it.

#include <QtGlobal>

#include "engine/cache/kv_cache_config.h"
#include "engine/sampler.h"

namespace longhand::ui {

struct SettingsValues {
  engine::KvCacheConfig cache;
  engine::SamplerConfig sampler;
  qint64 contextLength = 0;            // tokens; 0: the model's trained length
  qint64 maxTokens = 0;                // of one answer; 0: until the context is full
  int threads = 0;                     // 0: all cores this process may use
  bool keepsSessions = true;           // caches of long chats are kept on disk
  qint64 sessionQuotaBytes = 1 << 30;  // for all of them; shown in whole GiB

  bool operator==(const SettingsValues&) const = default;
};

struct SettingsLimits {
  qint64 trainedLength = 0;  // tokens; 0: no model is loaded
  int nLayers = 0;
  int nCores = 1;
  bool alwaysGreedy = false;  // the demonstration model: whatever is set, it decodes greedily
};

}  // namespace longhand::ui
