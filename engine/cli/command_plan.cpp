#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <system_error>

#include "engine/cli/commands.h"
#include "engine/cli/options.h"
#include "engine/cli/output.h"
#include "engine/error.h"
#include "engine/memory_plan.h"
#include "engine/model.h"
#include "engine/session.h"

#include <nlohmann/json.hpp>

namespace longhand::engine::cli {
namespace {

struct PlanOptions {
  ModelOptions model;
  CacheOptions cache;
  std::string shape;
  std::string memory;
  bool isJson = false;
};

/// A folder, a config.json, or the name of a well-known shape.
ModelConfig readConfig(const PlanOptions& options) {
  if (!options.shape.empty()) return shapeConfig(options.shape);
  const std::filesystem::path path = options.model.folder();
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return readModelConfig(path);
  if (std::filesystem::exists(path, error)) {
    return parseModelConfig(readTextFile(path), path.string());
  }
  try {
    return shapeConfig(options.model.model);
  } catch (const Error& unknownShape) {
    throw Error(ErrorCode::kFileNotFound,
                path.string() + ": there is no such folder or config.json.", unknownShape.hint());
  }
}

/// From the types in the files; 0 where there are no weights yet, only a config.json or a shape.
std::uint64_t weightBytes(const PlanOptions& options) {
  if (!options.shape.empty()) return 0;
  std::filesystem::path folder = options.model.folder();
  std::error_code error;
  if (folder.filename() == "config.json") folder = folder.parent_path();
  if (folder.empty()) folder = ".";
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("model") && name.ends_with(".safetensors")) {
      return weightBytesOf(folder, options.model.weightFormat());
    }
  }
  return 0;
}

/// What --memory asks for.
struct Fit {
  std::uint64_t memoryBytes = 0;
  bool fits = false;                // the requested context
  std::int64_t chunkTokens = 0;     // of the requested context; 0 where it does not fit
  std::int64_t largestContext = 0;  // 0: not even the weights fit
  std::int64_t largestContextChunk = 0;
};

/// The chunk that the engine takes with so much memory; the option, where it is given.
std::int64_t chunkWithin(const PlanRequest& request, std::uint64_t memoryBytes) {
  if (request.chunkTokens == 0) return largestChunk(request, memoryBytes);
  if (planMemory(request).total() > memoryBytes) return 0;
  return std::min(request.chunkTokens, request.contextLength);
}

Fit fitInto(const PlanRequest& request, std::uint64_t memoryBytes) {
  Fit fit;
  fit.memoryBytes = memoryBytes;
  fit.chunkTokens = chunkWithin(request, memoryBytes);
  fit.fits = fit.chunkTokens > 0;
  PlanRequest largest = request;
  largest.contextLength = std::min(largestContext(request, memoryBytes), kMaxContextLength);
  fit.largestContext = largest.contextLength;
  if (fit.largestContext > 0) fit.largestContextChunk = chunkWithin(largest, memoryBytes);
  return fit;
}

std::string chunkText(std::int64_t chunk, std::int64_t context) {
  return chunk >= context ? "read in one go" : "read in chunks of " + formatCount(chunk);
}

void printFit(const Fit& fit, std::int64_t context) {
  const std::string memory = formatBytes(fit.memoryBytes);
  std::cout << "In " << memory << ": " << formatCount(context) << " tokens "
            << (fit.fits ? "fit, " + chunkText(fit.chunkTokens, context) : "do not fit") << '\n';
  std::cout << "Largest context in " << memory << ": ";
  if (fit.largestContext > 0) {
    std::cout << formatCount(fit.largestContext) << " tokens, "
              << chunkText(fit.largestContextChunk, fit.largestContext) << '\n';
  } else {
    std::cout << "none, the weights alone do not fit\n";
  }
}

nlohmann::json planJson(const PlanRequest& request, const MemoryUse& use,
                        const std::string& weights) {
  return {{"model", request.model.name},
          {"weights", weights},
          {"key_bits", request.cache.keyNbits},
          {"value_bits", request.cache.valueNbits},
          {"group_size", request.cache.groupSize},
          {"residual_length", request.cache.residualLength},
          {"sink_length", request.cache.sinkLength},
          {"sliding_window", request.cache.slidingWindow},
          {"trained_length", request.model.trainedLength},
          {"context", request.contextLength},
          {"chunk", request.chunkTokens == 0 ? request.contextLength : request.chunkTokens},
          {"bytes", memoryJson(use)}};
}

int plan(const PlanOptions& options) {
  if (!options.shape.empty() && !options.model.model.empty()) {
    throw UsageError("give either --shape or --model");
  }
  PlanRequest request;
  request.model = readConfig(options);
  request.weights = options.model.weightFormat();
  request.weightBytes = weightBytes(options);
  request.cache = options.cache.config(request.weights);
  request.contextLength =
      options.model.contextLength > 0 ? options.model.contextLength : request.model.trainedLength;
  requireContextLength(request.contextLength);
  request.chunkTokens = std::min(options.model.chunkTokens, request.contextLength);
  std::optional<Fit> fit;
  if (!options.memory.empty()) {
    fit = fitInto(request, parseBytes(options.memory));
    if (request.chunkTokens == 0) request.chunkTokens = std::max<std::int64_t>(1, fit->chunkTokens);
  }
  const MemoryUse use = planMemory(request);

  if (options.isJson) {
    nlohmann::json json = planJson(request, use, options.model.weights);
    if (fit) {
      json["memory_bytes"] = fit->memoryBytes;
      json["fits"] = fit->fits;
      json["largest_context"] = fit->largestContext;
      json["largest_context_chunk"] = fit->largestContextChunk;
    }
    printJson(json);
    return kSuccess;
  }
  std::cout << request.model.name << ", weights " << options.model.weights << ", "
            << formatCount(request.contextLength) << " tokens, keys " << request.cache.keyNbits
            << " bits, values " << request.cache.valueNbits << " bits\n"
            << memoryTable(use);
  if (request.contextLength > request.model.trainedLength) {
    std::cout << "The model was trained on " << formatCount(request.model.trainedLength)
              << " tokens; beyond them its answers may get worse.\n";
  }
  if (fit) printFit(*fit, request.contextLength);
  return kSuccess;
}

}  // namespace

Command addPlanCommand(CLI::App& program) {
  auto options = std::make_shared<PlanOptions>();
  CLI::App* parser = program.add_subcommand(
      "plan",
      "Says what memory a model and a context will take. --model may also be a config.json, "
      "llama-2-7b, llama-2-13b or tinyllama-1.1b");
  parser->add_option("--shape", options->shape, "The shape of a known model, instead of --model")
      ->check(CLI::IsMember({"llama-2-7b", "llama-2-13b", "tinyllama-1.1b"}));
  parser
      ->add_option("--memory", options->memory,
                   "Also say whether the context fits so much memory, and the largest that does: "
                   "24GiB")
      ->type_name("SIZE");
  parser->add_flag("--json", options->isJson,
                   "Print JSON: bytes by category, chunk; with --memory fits, largest_context, "
                   "largest_context_chunk");
  options->model.addTo(*parser);
  options->cache.addTo(*parser);
  return {parser, [options](Interrupt&) { return plan(*options); }};
}

}  // namespace longhand::engine::cli
