#include "engine/cli/options.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <iomanip>
#include <limits>
#include <sstream>
#include <system_error>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/error_words.h"
#include "engine/cache/presets.h"
#include "engine/model/weight_names.h"

#include <nlohmann/json.hpp>

namespace longhand::engine::cli {
namespace {

constexpr const char* kModelGroup = "Model";
constexpr const char* kCacheGroup = "KV cache";
constexpr const char* kSamplerGroup = "Sampling";

std::string plainText(double value) {
  std::ostringstream text;
  text << std::setprecision(15) << value;
  return text.str();
}

template <typename Number>
CLI::Validator numberBetween(Number smallest, Number largest, const std::string& kind) {
  return CLI::Validator(
      [smallest, largest, kind](const std::string& text) -> std::string {
        Number number{};
        const char* const end = text.data() + text.size();
        const char* const begin = text.starts_with('+') ? text.data() + 1 : text.data();
        const auto [last, error] = std::from_chars(begin, end, number);
        const bool isInside =
            error == std::errc() && last == end && number >= smallest && number <= largest;
        if (isInside) return {};  // never for NaN
        return quotedName(text) + " is no " + kind + " from " +
               plainText(static_cast<double>(smallest)) + " to " +
               plainText(static_cast<double>(largest));
      },
      "");
}

CLI::IsMember presetIds() {
  std::vector<std::string> ids;
  for (const Preset& preset : builtInPresets()) ids.push_back(preset.id);
  return CLI::IsMember(ids);
}

template <typename Value, typename Target>
void replaceIf(const std::optional<Value>& value, Target& target) {
  if (value) target = *value;
}

/// do_sample of generation_config.json; nothing when the file does not say. A damaged file has been
/// refused by the loading of the model.
std::optional<bool> modelSamples(const std::filesystem::path& folder) {
  std::ifstream file(folder / "generation_config.json", std::ios::binary);
  const nlohmann::json config = nlohmann::json::parse(file, nullptr, false);
  if (!config.is_object()) return {};
  const auto found = config.find("do_sample");
  if (found == config.end() || !found->is_boolean()) return {};
  return found->get<bool>();
}

}  // namespace

CLI::Validator wholeNumber(std::int64_t smallest, std::int64_t largest) {
  return numberBetween(smallest, largest, "whole number");
}

std::vector<std::string> partsOf(const std::string& list) {
  std::vector<std::string> parts;
  std::size_t start = 0;
  for (std::size_t comma = 0; comma != std::string::npos; start = comma + 1) {
    comma = list.find(',', start);
    parts.push_back(list.substr(start, comma - start));
  }
  return parts;
}

std::vector<std::string> partsOf(const std::vector<std::string>& lists) {
  std::vector<std::string> all;
  for (const std::string& list : lists) {
    const std::vector<std::string> parts = partsOf(list);
    all.insert(all.end(), parts.begin(), parts.end());
  }
  return all;
}

CLI::Validator listOf(const CLI::Validator& part) {
  return CLI::Validator(
      [part](const std::string& list) -> std::string {
        for (const std::string& text : partsOf(list)) {
          if (text.empty()) return quotedName(list) + " has an empty part";
          if (std::string fault = part(text); !fault.empty()) return fault;
        }
        return {};
      },
      "");
}

CLI::Validator decimalNumber(double smallest, double largest) {
  return numberBetween(smallest, largest, "number");
}

void ModelOptions::addTo(CLI::App& command) {
  command.add_option("--model", model, "Folder of the model; else the bundled demonstration model")
      ->type_name("DIR")
      ->group(kModelGroup);
  command
      .add_option("--weights", weights,
                  "Format of the weights in memory. auto: as in the file when under 1 GiB, else "
                  "nf4. nf4-single: without double quantization. int8: 8.5 bits a weight")
      ->check(CLI::IsMember(weightFormatNames()))
      ->capture_default_str()
      ->group(kModelGroup);
  command
      .add_option("--context", contextLength, "Tokens that fit; 0: as many as it was trained on")
      ->check(wholeNumber(0, kMaxContextLength))
      ->type_name("TOKENS")
      ->group(kModelGroup);
  command
      .add_option("--chunk", chunkTokens,
                  "Tokens prefilled in one pass; 0: the whole prompt where memory allows")
      ->check(wholeNumber(0, kMaxContextLength))
      ->type_name("TOKENS")
      ->group(kModelGroup);
  command.add_option("--threads", threads, "Threads; 0: all cores of this process")
      ->check(wholeNumber(0, 1024))
      ->type_name("N")
      ->group(kModelGroup);
  command
      .add_option("--backend", backend,
                  "Processor: cuda is an NVIDIA graphics card, auto takes one where it can")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->capture_default_str()
      ->group(kModelGroup);
  command
      .add_option("--cuda-plugin", cudaPlugin,
                  "The plug-in for --backend cuda; else looked for beside the program")
      ->type_name("FILE")
      ->group(kModelGroup);
  command.add_option("--cpu-path", cpuPath, "Instruction set of the kernels")
      ->check(CLI::IsMember(
          {"auto", "portable", "avx2", "avx-vnni", "avx512", "avx512-vnni", "avx512-bf16"}))
      ->capture_default_str()
      ->group(kModelGroup);
  addRopeTo(command);
}

void ModelOptions::addRopeTo(CLI::App& command) {
  command
      .add_option("--rope-scaling", ropeScaling,
                  "How positions are scaled, instead of what config.json says")
      ->check(CLI::IsMember({"none", "linear", "dynamic", "yarn"}))
      ->group(kModelGroup);
  command.add_option("--rope-factor", ropeFactor, "Factor of the scaling, 1 or more")
      ->check(decimalNumber(1.0, 1024.0))
      ->group(kModelGroup);
  command
      .add_option("--rope-original-length", ropeOriginalLength,
                  "Tokens the model was trained on before it was scaled")
      ->check(wholeNumber(1, kMaxContextLength))
      ->type_name("TOKENS")
      ->group(kModelGroup);
  command.add_option("--rope-theta", ropeTheta, "Base of the position frequencies")
      ->check(decimalNumber(1.0, 1e12))
      ->group(kModelGroup);
}

std::filesystem::path ModelOptions::folder() const {
  return model.empty() ? bundledModelFolder() : std::filesystem::path(model);
}

WeightFormat ModelOptions::weightFormat() const {
  return weightFormatOf(weights).value_or(WeightFormat::kAuto);  // the parser has checked the name
}

std::optional<RopeConfig> ModelOptions::rope(const RopeConfig& own) const {
  if (ropeScaling.empty() && !ropeFactor && !ropeOriginalLength && !ropeTheta) return {};
  RopeConfig rope = own;
  if (ropeScaling == "none") rope.scaling = RopeScaling::kNone;
  if (ropeScaling == "linear") rope.scaling = RopeScaling::kLinear;
  if (ropeScaling == "dynamic") rope.scaling = RopeScaling::kDynamic;
  if (ropeScaling == "yarn") rope.scaling = RopeScaling::kYarn;
  replaceIf(ropeTheta, rope.theta);
  replaceIf(ropeFactor, rope.factor);
  replaceIf(ropeOriginalLength, rope.originalMaxPositionEmbeddings);
  if (rope.scaling == RopeScaling::kNone && (ropeFactor || ropeOriginalLength)) {
    throw UsageError("--rope-factor and --rope-original-length need --rope-scaling");
  }
  const bool isScaled = rope.scaling != RopeScaling::kNone;
  if (isScaled && rope.factor <= 1.0 && !ropeFactor) {
    throw UsageError("--rope-scaling needs --rope-factor, since config.json gives none");
  }
  // YaRN takes its factor from the two lengths where both are known.
  if (isScaled && rope.originalMaxPositionEmbeddings > 0 && (ropeFactor || ropeOriginalLength)) {
    rope.maxPositionEmbeddings = static_cast<std::int64_t>(
        std::llround(static_cast<double>(rope.originalMaxPositionEmbeddings) * rope.factor));
  }
  return rope;
}

void CacheOptions::addTo(CLI::App& command) {
  command
      .add_option("--preset", preset,
                  "Settings of the KV cache, default quality; the options below override it")
      ->check(presetIds())
      ->group(kCacheGroup);
  given.resize(cacheFields().size());
  for (std::size_t i = 0; i < given.size(); ++i) addField(command, cacheFields()[i], i);
  command
      .add_option("--exact-type", exactType,
                  "Type of tokens kept exactly. auto: f32 with --weights f32 (so that logits are "
                  "within 1e-4 of a float64 computation), else f16")
      ->check(CLI::IsMember({"auto", "f16", "f32"}))
      ->capture_default_str()
      ->group(kCacheGroup);
}

void CacheOptions::addField(CLI::App& command, const CacheField& field, std::size_t index) {
  std::string name = "--" + std::string(field.name);
  std::replace(name.begin(), name.end(), '_', '-');
  const std::string meaning(field.meaning);
  CLI::Option* option = nullptr;
  if (field.names.empty()) {
    option = command.add_option_function<std::int64_t>(
        name, [this, index](std::int64_t value) { given[index] = value; }, meaning);
    option->check(field.values.empty()
                      ? wholeNumber(0, field.most)
                      : CLI::IsMember(std::vector<int>(field.values.begin(), field.values.end())));
  } else {
    option = command.add_option_function<std::string>(
        name,
        [this, index, &field](const std::string& value) { given[index] = field.valueOf(value); },
        meaning);
    option->check(CLI::IsMember(std::vector<std::string>(field.names.begin(), field.names.end())));
  }
  if (!field.unit.empty()) option->type_name(std::string(field.unit));
  option->group(kCacheGroup);
}

KvCacheConfig CacheOptions::config(WeightFormat weights) const {
  KvCacheConfig config =
      presetById(preset.empty() ? kDefaultPresetId : std::string_view(preset)).cache;
  for (std::size_t i = 0; i < given.size(); ++i) {
    if (!given[i]) continue;
    const CacheField& field = cacheFields()[i];
    field.set(config, *given[i]);
    if (field.name == "key_bits") config.firstLayersKeyNbits = config.keyNbits;
    if (field.name == "value_bits") config.firstLayersValueNbits = config.valueNbits;
  }
  const bool isF32 = exactType == "auto" ? weights == WeightFormat::kF32 : exactType == "f32";
  config.exactType = isF32 ? kernels::DataType::kF32 : kernels::DataType::kF16;
  config.validate();
  return config;
}

KvCacheConfig cacheFromText(const std::string& text, KvCacheConfig base) {
  std::vector<std::int64_t> numbers;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, '/');) {
    const char* const end = part.data() + part.size();
    std::int64_t number = 0;
    const auto [last, error] = std::from_chars(part.data(), end, number);
    if (error != std::errc() || last != end || number < 0 || number > 100000) {
      numbers.clear();
      break;
    }
    numbers.push_back(number);
  }
  if (numbers.size() < 2 || numbers.size() > 4 || text.back() == '/') {
    throw Error(ErrorCode::kInvalidArgument, "\"" + text + "\" is no cache setting.",
                "Write " + std::string(kCacheTextForm) + ", like 4/2 or 2/2/32/64.");
  }
  base.keyNbits = static_cast<int>(numbers[0]);
  base.valueNbits = static_cast<int>(numbers[1]);
  base.firstLayers = 0;
  if (numbers.size() > 2) base.groupSize = static_cast<int>(numbers[2]);
  if (numbers.size() > 3) base.residualLength = numbers[3];
  base.validate();
  return base;
}

void SamplerOptions::addTo(CLI::App& command) {
  const SamplerConfig standard;
  const auto text = [](double value) {
    std::string digits = std::to_string(value);
    digits.erase(digits.find_last_not_of('0') + 1);
    return ", default " + digits;
  };
  auto* greedy = command.add_flag("--greedy", isGreedy, "Always take the most likely token")
                     ->group(kSamplerGroup);
  command
      .add_option("--temperature", temperature,
                  "0: greedy" + text(standard.temperature) +
                      " (greedy when the model's generation_config.json says so)")
      ->excludes(greedy)
      ->group(kSamplerGroup);
  command
      .add_option(
          "--top-k", topK,
          "Choose among the K best tokens; 0: off, default " + std::to_string(standard.topK))
      ->excludes(greedy)
      ->group(kSamplerGroup);
  command
      .add_option("--top-p", topP,
                  "Choose among the best tokens that together have probability P; 1: off" +
                      text(standard.topP))
      ->excludes(greedy)
      ->group(kSamplerGroup);
  command
      .add_option("--min-p", minP,
                  "Only tokens with P times the probability of the best one; 0: off, the default")
      ->excludes(greedy)
      ->group(kSamplerGroup);
  command
      .add_option("--repetition-penalty", repetitionPenalty,
                  "Makes tokens of the last " + std::to_string(standard.repetitionWindow) +
                      " less likely; 1: off, the default")
      ->group(kSamplerGroup);
  command.add_option("--seed", seed, "The same seed gives the same tokens")
      ->check(wholeNumber(0, std::numeric_limits<std::int64_t>::max()))
      ->capture_default_str()
      ->type_name("N")
      ->group(kSamplerGroup);
  command.add_option("--max-tokens", maxTokens, "Tokens to generate; 0: until the context is full")
      ->check(wholeNumber(0, kMaxContextLength))
      ->capture_default_str()
      ->type_name("N")
      ->group(kSamplerGroup);
  command.add_option("--stop", stopTexts, "End before this text; may be given several times")
      ->type_name("TEXT")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->group(kSamplerGroup);
}

GenerateOptions SamplerOptions::generateOptions(const std::filesystem::path& modelFolder) const {
  GenerateOptions options;
  const bool saysHow = temperature || topK || topP || minP;
  if (isGreedy || (!saysHow && modelSamples(modelFolder) == false)) {
    options.sampler.temperature = 0.0;
  }
  replaceIf(temperature, options.sampler.temperature);
  replaceIf(topK, options.sampler.topK);
  replaceIf(topP, options.sampler.topP);
  replaceIf(minP, options.sampler.minP);
  replaceIf(repetitionPenalty, options.sampler.repetitionPenalty);
  options.sampler.seed = seed;
  options.sampler.validate();
  options.maxTokens = maxTokens;
  options.stopTexts = stopTexts;
  return options;
}

std::filesystem::path bundledModelFolder() {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path executable = fs::read_symlink("/proc/self/exe", error);
  for (const fs::path& resources :
       {executable.parent_path() / "../share/longhand", fs::path(LONGHAND_INSTALLED_RESOURCES),
        fs::path(LONGHAND_SOURCE_RESOURCES)}) {
    const fs::path folder = resources / "longhand-demo";
    if (fs::exists(folder / "config.json", error)) return folder.lexically_normal();
  }
  throw Error(ErrorCode::kFileNotFound, "The bundled model was not found beside the program.",
              "Give a model folder with --model.");
}

}  // namespace longhand::engine::cli
