#include <iostream>
#include <system_error>

#include "engine/cli/commands.h"
#include "engine/cli/options.h"
#include "engine/cli/output.h"
#include "engine/error.h"
#include "engine/memory_plan.h"

#include <nlohmann/json.hpp>

namespace longhand::engine::cli {
namespace {

struct PlanOptions {
  ModelOptions model;
  CacheOptions cache;
  std::string memory;
  bool isJson = false;
};

/// A folder, a config.json, or the name of a well-known shape.
ModelConfig readConfig(const ModelOptions& model) {
  const std::filesystem::path path = model.folder();
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return readModelConfig(path);
  if (std::filesystem::exists(path, error)) {
    return parseModelConfig(readTextFile(path), path.string());
  }
  try {
    return shapeConfig(model.model);
  } catch (const Error& unknownShape) {
    throw Error(ErrorCode::kFileNotFound,
                path.string() + ": there is no such folder or config.json.", unknownShape.hint());
  }
}

int plan(const PlanOptions& options) {
  PlanRequest request;
  request.model = readConfig(options.model);
  request.weights = options.model.weightFormat();
  request.cache = options.cache.config(request.weights);
  request.contextLength =
      options.model.contextLength > 0 ? options.model.contextLength : request.model.trainedLength;
  request.chunkTokens = options.model.chunkTokens;
  const MemoryUse use = planMemory(request);

  nlohmann::json json = {{"model", request.model.name},
                         {"weights", options.model.weights},
                         {"key_bits", request.cache.keyNbits},
                         {"value_bits", request.cache.valueNbits},
                         {"group_size", request.cache.groupSize},
                         {"residual_length", request.cache.residualLength},
                         {"sink_length", request.cache.sinkLength},
                         {"sliding_window", request.cache.slidingWindow},
                         {"trained_length", request.model.trainedLength},
                         {"context", request.contextLength},
                         {"bytes", memoryJson(use)}};
  std::optional<std::uint64_t> memoryBytes;
  std::int64_t largest = 0;
  if (!options.memory.empty()) {
    memoryBytes = parseBytes(options.memory);
    largest = largestContext(request, *memoryBytes);
    json["memory_bytes"] = *memoryBytes;
    json["largest_context"] = largest;
  }
  if (options.isJson) {
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
  if (memoryBytes) {
    std::cout << "Largest context in " << formatBytes(*memoryBytes) << ": ";
    if (largest > 0) {
      std::cout << formatCount(largest) << " tokens\n";
    } else {
      std::cout << "none, the weights alone do not fit\n";
    }
  }
  return kSuccess;
}

}  // namespace

Command addPlanCommand(CLI::App& program) {
  auto options = std::make_shared<PlanOptions>();
  CLI::App* parser = program.add_subcommand(
      "plan",
      "Says what memory a model and a context will take. --model may also be a config.json, "
      "llama-2-7b, llama-2-13b or tinyllama-1.1b");
  parser->add_option("--memory", options->memory, "Also say the largest context that fits: 24GiB")
      ->type_name("SIZE");
  parser->add_flag("--json", options->isJson, "Print JSON: bytes by category, largest_context");
  options->model.addTo(*parser);
  options->cache.addTo(*parser);
  return {parser, [options](Interrupt&) { return plan(*options); }};
}

}  // namespace longhand::engine::cli
