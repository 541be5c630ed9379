#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <system_error>

#include "engine/backend_factory.h"
#include "engine/base/error.h"
#include "engine/cache/cache_json.h"
#include "engine/cli/cards.h"
#include "engine/cli/commands.h"
#include "engine/cli/options.h"
#include "engine/cli/output.h"
#include "engine/memory_plan.h"
#include "engine/model/model.h"
#include "engine/session/session.h"

#include <nlohmann/json.hpp>

namespace longhand::engine::cli {
namespace {

struct PlanOptions {
  ModelOptions model;
  CacheOptions cache;
  std::string shape;
  std::string card;
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

/// Where the model will be, besides main memory.
struct Device {
  std::string name;
  std::uint64_t totalBytes = 0;
  std::uint64_t ownBytes = 0;    // of the backend: part of the workspace
  std::uint64_t otherBytes = 0;  // of context, driver and, on a card that is here, other programs
  bool isHere = false;

  std::uint64_t usableBytes() const { return totalBytes - std::min(otherBytes, totalBytes); }
};

/// The card that is named, or the device that the engine would take; none for the CPU.
std::optional<Device> chooseDevice(const PlanOptions& options) {
  if (!options.card.empty()) {
    const Card& card = cardByName(options.card);
    return Device{std::string(card.title), card.memoryBytes, card.backendBytes(),
                  card.memoryBytes - card.usableBytes()};
  }
  if (options.model.backend == "cpu") return std::nullopt;
  try {
    const ChosenBackend chosen = createBackend({options.model.threads, options.model.cpuPath,
                                                options.model.backend, options.model.cudaPlugin});
    const kernels::Backend& backend = *chosen.backend;
    if (backend.usesHostMemory()) return std::nullopt;
    const kernels::DeviceMemoryInfo info = backend.memoryInfo();
    const std::uint64_t own = backend.ownMemory().deviceBytes;
    return Device{backend.description(), info.totalBytes, own,
                  info.totalBytes - info.freeBytes - own, /*isHere=*/true};
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kDevice) throw;
    throw Error(error.code(), error.message(),
                "Use the backend auto or cpu, or name a card with --card: " + cardNames() + ".");
  }
}

/// What --memory asks for, or a device has.
struct Fit {
  std::uint64_t memoryBytes = 0;
  bool fits = false;                // the requested context
  std::int64_t chunkTokens = 0;     // of the requested context; 0 where it does not fit
  std::int64_t largestContext = 0;  // 0: not even the weights fit
  std::int64_t largestContextChunk = 0;
};

/// What a chunk of the engine's choice may use up. On a device nine tenths of what weights and
/// cache leave (Session::chunkLength()).
std::uint64_t bytesForChunk(PlanRequest request, std::uint64_t memoryBytes, bool onDevice) {
  if (!onDevice) return memoryBytes;
  request.chunkTokens = 1;
  const std::uint64_t rest = std::min(planMemory(request).total(), memoryBytes);
  return memoryBytes - (memoryBytes - rest) / 10;
}

/// The chunk that the engine takes with so much memory; the option, where it is given.
std::int64_t chunkWithin(const PlanRequest& request, std::uint64_t memoryBytes, bool onDevice) {
  if (request.chunkTokens == 0) {
    return largestChunk(request, bytesForChunk(request, memoryBytes, onDevice));
  }
  if (planMemory(request).total() > memoryBytes) return 0;
  return std::min(request.chunkTokens, request.contextLength);
}

Fit fitInto(const PlanRequest& request, std::uint64_t memoryBytes, bool onDevice) {
  Fit fit;
  fit.memoryBytes = memoryBytes;
  fit.chunkTokens = chunkWithin(request, memoryBytes, onDevice);
  fit.fits = fit.chunkTokens > 0;
  PlanRequest largest = request;
  largest.contextLength = std::min(largestContext(request, memoryBytes), kMaxContextLength);
  fit.largestContext = largest.contextLength;
  if (fit.largestContext > 0) {
    fit.largestContextChunk = chunkWithin(largest, memoryBytes, onDevice);
  }
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

void printDevice(const Device& device, const MemoryUse& use) {
  std::cout << device.name << " (" << formatBytes(device.totalBytes)
            << "): " << formatBytes(device.ownBytes)
            << " of the workspace are the backend's own; driver and context take "
            << (device.isHere ? "with other programs " : "about ") << formatBytes(device.otherBytes)
            << "\nAll of it: " << formatBytes(use.total() + device.otherBytes) << '\n';
}

/// All that was found out.
struct Plan {
  PlanRequest request;
  std::string weights;
  MemoryUse use;
  std::optional<Device> device;
  std::optional<Fit> fit;
};

nlohmann::json planJson(const Plan& plan) {
  const PlanRequest& request = plan.request;
  nlohmann::json json = {
      {"model", request.model.name},
      {"weights", plan.weights},
      {"trained_length", request.model.trainedLength},
      {"context", request.contextLength},
      {"chunk", request.chunkTokens == 0 ? request.contextLength : request.chunkTokens},
      {"bytes", memoryJson(plan.use)}};
  json.update(writeCacheConfig(request.cache));
  if (plan.fit) {
    json["memory_bytes"] = plan.fit->memoryBytes;
    json["fits"] = plan.fit->fits;
    json["largest_context"] = plan.fit->largestContext;
    json["largest_context_chunk"] = plan.fit->largestContextChunk;
  }
  if (plan.device) {
    json["device"] = {{"name", plan.device->name},
                      {"total_bytes", plan.device->totalBytes},
                      {"own_bytes", plan.device->ownBytes},
                      {"other_bytes", plan.device->otherBytes},
                      {"is_here", plan.device->isHere}};
    json["used_bytes"] = plan.use.total() + plan.device->otherBytes;
  }
  return json;
}

void printPlan(const Plan& plan) {
  const PlanRequest& request = plan.request;
  std::cout << request.model.name << ", weights " << plan.weights << ", "
            << formatCount(request.contextLength) << " tokens, keys " << request.cache.keyNbits
            << " bits, values " << request.cache.valueNbits << " bits\n"
            << memoryTable(plan.use);
  if (plan.device) printDevice(*plan.device, plan.use);
  if (request.contextLength > request.model.trainedLength) {
    std::cout << "The model was trained on " << formatCount(request.model.trainedLength)
              << " tokens; beyond them its answers may get worse.\n";
  }
  if (plan.fit) printFit(*plan.fit, request.contextLength);
}

PlanRequest makeRequest(const PlanOptions& options) {
  PlanRequest request;
  request.model = readConfig(options);
  request.weights = options.model.weightFormat();
  request.weightBytes = weightBytes(options);
  request.cache = options.cache.config(request.weights);
  request.contextLength =
      options.model.contextLength > 0 ? options.model.contextLength : request.model.trainedLength;
  requireContextLength(request.contextLength);
  request.chunkTokens = std::min(options.model.chunkTokens, request.contextLength);
  return request;
}

int runPlan(const PlanOptions& options) {
  if (!options.shape.empty() && !options.model.model.empty()) {
    throw UsageError("give either --shape or --model");
  }
  Plan plan;
  plan.request = makeRequest(options);
  plan.weights = options.model.weights;
  plan.device = chooseDevice(options);
  if (plan.device) {
    plan.request.backendBytes = plan.device->ownBytes;
    if (!options.memory.empty()) plan.device->totalBytes = parseBytes(options.memory);
    plan.fit = fitInto(plan.request, plan.device->usableBytes(), /*onDevice=*/true);
  } else if (!options.memory.empty()) {
    plan.fit = fitInto(plan.request, parseBytes(options.memory), /*onDevice=*/false);
  }
  if (plan.fit && plan.request.chunkTokens == 0) {
    plan.request.chunkTokens = std::max<std::int64_t>(1, plan.fit->chunkTokens);
  }
  plan.use = planMemory(plan.request);
  if (options.isJson) {
    printJson(planJson(plan));
  } else {
    printPlan(plan);
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
  parser->add_option("--shape", options->shape, "The shape of a known model, instead of --model")
      ->check(CLI::IsMember({"llama-2-7b", "llama-2-13b", "tinyllama-1.1b"}));
  parser->add_option("--card", options->card, "Plan for this graphics card, which need not be here")
      ->check(CLI::IsMember(cardNameList()))
      ->type_name("CARD");
  parser
      ->add_option("--memory", options->memory,
                   "Also say whether the context fits so much memory, and the largest that does: "
                   "24GiB; of a device all of its memory [what it has]")
      ->type_name("SIZE");
  parser->add_flag("--json", options->isJson,
                   "Print JSON: bytes by category, chunk; with --memory or a device fits, "
                   "largest_context, largest_context_chunk; of a device used_bytes");
  options->model.addTo(*parser);
  options->cache.addTo(*parser);
  return {parser, [options](Interrupt&) { return runPlan(*options); }};
}

}  // namespace longhand::engine::cli
