#include <unistd.h>

#include <algorithm>
#include <iomanip>
#include <iostream>
#include <sstream>

#include "engine/cache/cache_json.h"
#include "engine/cache/presets.h"
#include "engine/cli/commands.h"
#include "engine/cli/engine_setup.h"
#include "engine/cli/options.h"
#include "engine/cli/output.h"
#include "engine/quality.h"
#include "engine/session/session.h"

#include <nlohmann/json.hpp>

namespace longhand::engine::cli {
namespace {

struct QualityOptions {
  ModelOptions model;
  std::string file;
  std::vector<std::string> presets;
  std::vector<std::string> caches;  // cacheFromText, on top of `cache`
  CacheOptions cache;
  std::int64_t sampleTokens = 512;
  std::int64_t window = 0;
  bool isJson = false;
};

constexpr const char* kReferenceId = "exact";
constexpr const char* kCustomId = "custom";

void showProgress(std::int64_t done, std::int64_t total) {
  if (!isTerminal(STDERR_FILENO)) return;
  std::cerr << "\r" << 100 * done / total << " %: " << formatCount(done) << " of "
            << formatCount(total) << " tokens through the caches\x1B[K";
  if (done >= total) std::cerr << "\r\x1B[K";
  std::cerr << std::flush;
}

/// What of the text was measured, and how.
std::string describeSample(const std::vector<QualityWindow>& windows, std::int64_t textTokens) {
  const QualityWindow& window = windows.front();
  std::ostringstream text;
  text << formatCount(scoredTokens(windows)) << " of " << formatCount(textTokens)
       << " tokens scored, in " << windows.size()
       << (windows.size() == 1                       ? " window of "
           : windows.back().nTokens < window.nTokens ? " windows of up to "
                                                     : " windows of ")
       << formatCount(window.nTokens);
  if (window.nScored == window.nTokens) {
    text << ", fed one by one";
  } else {
    text << (windows.size() == 1 ? "" : " evenly spaced") << ": the first "
         << formatCount(window.nTokens - window.nScored) << " read as a prompt, the other "
         << formatCount(window.nScored) << " fed one by one";
  }
  return text.str();
}

/// Presets, then the user's own settings: those of --cache, or one from the options of the cache.
std::vector<QualityCandidate> candidatesOf(const QualityOptions& options) {
  std::vector<QualityCandidate> candidates;
  for (const std::string& id : options.presets) {
    if (id != kReferenceId) candidates.push_back({id, presetById(id).cache});
  }
  const WeightFormat weights = options.model.weightFormat();
  const KvCacheConfig base = options.cache.config(weights);
  for (const std::string& text : options.caches) {
    candidates.push_back({text, cacheFromText(text, base)});
  }
  if (options.caches.empty() && base != CacheOptions().config(weights)) {
    candidates.push_back({kCustomId, base});
  }
  return candidates;
}

nlohmann::json rowJson(const QualityRow& row) {
  nlohmann::json json = {{"preset", row.id},
                         {"perplexity", row.perplexity},
                         {"mean_kl", row.meanKl},
                         {"p99_kl", row.p99Kl},
                         {"equal_top_share", row.equalTopShare},
                         {"packed_tokens", row.packedTokens},
                         {"cache_bytes", row.cacheBytes}};
  json.update(writeCacheConfig(row.cache));
  return json;
}

nlohmann::json reportJson(const std::vector<QualityRow>& rows, const QualityReport& report,
                          const QualityRequest& request) {
  nlohmann::json windows = nlohmann::json::array();
  for (const QualityWindow& window : request.windows) {
    windows.push_back(
        {{"first", window.first}, {"tokens", window.nTokens}, {"scored", window.nScored}});
  }
  nlohmann::json json = {{"text_tokens", request.ids.size()},
                         {"scored_tokens", report.scoredTokens},
                         {"windows", windows},
                         {"context", report.contextLength},
                         {"rows", nlohmann::json::array()}};
  for (const QualityRow& row : rows) json["rows"].push_back(rowJson(row));
  return json;
}

void printTable(const std::vector<QualityRow>& rows, const QualityReport& report,
                const QualityRequest& request) {
  const std::int64_t nTokens = request.windows.front().nTokens;
  std::cout
      << describeSample(request.windows, static_cast<std::int64_t>(request.ids.size()))
      << ".\nKL divergence (nats) and equal top tokens: against the preset " << kReferenceId
      << ". Packed: quantized tokens at the end of a window of " << formatCount(nTokens)
      << ".\nCache: size with " << formatCount(report.contextLength) << " tokens.\n\n"
      << "preset         bits  perplexity   mean KL    99 % KL  equal top   packed       cache\n";
  for (const QualityRow& row : rows) {
    const std::string bits =
        std::to_string(row.cache.keyNbits) + "/" + std::to_string(row.cache.valueNbits);
    std::cout << std::left << std::setw(13) << row.id << std::right << std::setw(6) << bits
              << std::fixed << std::setprecision(4) << ' ' << std::setw(11) << row.perplexity
              << std::setprecision(6) << std::setw(10) << row.meanKl << std::setw(11) << row.p99Kl
              << std::setprecision(2) << std::setw(9) << 100.0 * row.equalTopShare << " %"
              << std::setw(9) << formatCount(row.packedTokens) << std::setw(12)
              << formatBytes(row.cacheBytes) << "\n";
  }
  const bool hasPacked = std::all_of(rows.begin(), rows.end(),
                                     [](const QualityRow& row) { return row.packedTokens > 0; });
  if (!hasPacked) {
    std::cout << "\nWhere nothing was packed nothing was lost: a longer --window shows more.\n";
  }
  std::cout << std::flush;
}

int measure(const QualityOptions& options, Interrupt& interrupt) {
  const InterruptScope scope(interrupt);
  const std::string text = readPromptFile(options.file);
  CacheOptions cache;
  cache.preset = kReferenceId;
  const std::unique_ptr<Engine> engine = loadEngine(options.model, cache, scope.stop());

  const std::vector<std::int32_t> ids = engine->tokenizer().encode(text, stoppedBy(scope.stop()));
  QualityRequest request;
  request.ids = ids;
  request.windows =
      planQualityWindows(static_cast<std::int64_t>(ids.size()), engine->contextLength(),
                         options.sampleTokens, options.window);
  request.reference = presetById(kReferenceId).cache;
  request.candidates = candidatesOf(options);
  const QualityReport report = engine->measureQuality(request, showProgress, scope.stop());

  std::vector<QualityRow> rows = {report.reference};
  rows.front().id = kReferenceId;
  rows.insert(rows.end(), report.rows.begin(), report.rows.end());
  if (options.isJson) {
    printJson(reportJson(rows, report, request));
  } else {
    printTable(rows, report, request);
  }
  return kSuccess;
}

}  // namespace

Command addQualityCommand(CLI::App& program) {
  auto options = std::make_shared<QualityOptions>();
  std::vector<std::string> ids;
  for (const Preset& preset : builtInPresets()) ids.push_back(preset.id);
  CLI::App* parser = program.add_subcommand(
      "quality", "Measures on a text of yours what each preset's KV cache loses");
  parser->add_option("--file", options->file, "A text file, without its last newline; -: stdin")
      ->required()
      ->type_name("FILE");
  options->presets = ids;
  parser
      ->add_option_function<std::vector<std::string>>(
          "--presets",
          [options](const std::vector<std::string>& lists) { options->presets = partsOf(lists); },
          "Those to compare with exact, by commas; default: all")
      ->check(listOf(CLI::IsMember(ids)))
      ->type_name("IDS");
  parser
      ->add_option_function<std::vector<std::string>>(
          "--cache",
          [options](const std::vector<std::string>& lists) { options->caches = partsOf(lists); },
          "Settings of your own beside the presets: " + std::string(kCacheTextForm) +
              ", like 8/4,2/2/32. Everything else as the options of the cache say; "
              "without --cache these make one row, custom")
      ->check(listOf({}))
      ->type_name("LIST");
  parser
      ->add_option("--sample-tokens", options->sampleTokens,
                   "Tokens that are scored, spread over the text; 0: all of them, from windows "
                   "that are fed token by token from their beginning")
      ->check(wholeNumber(0, kMaxContextLength))
      ->type_name("TOKENS")
      ->capture_default_str();
  parser
      ->add_option("--window", options->window,
                   "Tokens of a window; each begins with BOS and knows nothing of the one before. "
                   "0: 2048, or fewer where the text or the context is shorter")
      ->check(wholeNumber(0, kMaxContextLength))
      ->type_name("TOKENS");
  parser->add_flag("--json", options->isJson, "Print JSON: the sample, and a row for each preset");
  options->model.addTo(*parser);
  options->cache.addTo(*parser);
  return {parser, [options](Interrupt& interrupt) { return measure(*options, interrupt); }};
}

}  // namespace longhand::engine::cli
