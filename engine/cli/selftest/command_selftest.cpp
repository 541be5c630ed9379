#include <algorithm>
#include <iostream>
#include <memory>

#include "engine/backend_factory.h"
#include "engine/cli/cards.h"
#include "engine/cli/commands.h"
#include "engine/cli/options.h"
#include "engine/cli/selftest/selftest.h"
#include "engine/session/session.h"

namespace longhand::engine::cli {
namespace {

struct SelftestCommand {
  SelftestOptions options;
  BackendOptions backend;
  std::string shape = "llama-2-7b";
  std::string plugin;
  std::string jsonFile;
  std::string card;  // empty: what is there is measured
  bool isQuick = false;

  SelftestCommand() { backend.backend = "cuda"; }

  int run(Interrupt& interrupt) {
    const InterruptScope scope(interrupt);
    options.model = selftestShape(shape);
    options.jsonFile = jsonFile;
    if (isQuick) options.extent = kernels::checks::CheckExtent::kQuick;
    std::sort(options.depths.begin(), options.depths.end());
    options.depths.erase(std::unique(options.depths.begin(), options.depths.end()),
                         options.depths.end());
    if (!card.empty()) {
      predictSelftest(cardByName(card), options, std::cout);
      return kSuccess;
    }
    backend.cudaPlugin = plugin;
    const ChosenBackend chosen = createBackend(backend);
    if (!chosen.whyNotDevice.empty()) {
      std::cerr << "No graphics card is used: " << chosen.whyNotDevice << std::endl;
    }
    return runSelftest(*chosen.backend, options, std::cout, std::cerr, scope.stop()) ? kSuccess
                                                                                     : kFailure;
  }
};

}  // namespace

Command addSelftestCommand(CLI::App& program) {
  return makeSelftestCommand(*program.add_subcommand(
      "selftest", "Checks every kernel against the slow twin and measures the device"));
}

Command makeSelftestCommand(CLI::App& parser) {
  auto command = std::make_shared<SelftestCommand>();
  SelftestOptions& options = command->options;
  parser.add_option("--backend", command->backend.backend, "What is tested")
      ->check(CLI::IsMember({"cuda", "cpu", "auto"}))
      ->capture_default_str();
  parser
      .add_option("--predict", command->card,
                  "Needs no device: what parts b and c should give on this card, from counted "
                  "bytes, operations and instructions")
      ->check(CLI::IsMember(cardNameList()))
      ->type_name("CARD");
  parser.add_option("--cuda-plugin", command->plugin,
                    "The CUDA plug-in [beside the program, or in ../lib/longhand]");
  parser.add_option("--threads", command->backend.threads, "Threads of the CPU [all cores]")
      ->check(wholeNumber(0, 4096));
  parser.add_option("--cpu-path", command->backend.cpuPath, "The CPU's instructions")
      ->capture_default_str();
  parser.add_option("--shape", command->shape, "Random weights in the shape of a known model")
      ->check(CLI::IsMember({"llama-2-7b", "llama-2-13b", "tinyllama-1.1b", "tiny"}))
      ->capture_default_str();
  parser
      .add_option("--parts", options.parts,
                  "a: kernels against the slow twin; b: stages; c: a whole model")
      ->check(CLI::Validator(
          [](const std::string& text) {
            return !text.empty() && text.find_first_not_of("abc") == std::string::npos
                       ? std::string()
                       : "\"" + text + "\" is not made of a, b and c";
          },
          ""))
      ->capture_default_str();
  parser
      .add_option_function<std::vector<std::string>>(
          "--depth",
          [command](const std::vector<std::string>& lists) {
            command->options.depths.clear();
            for (const std::string& depth : partsOf(lists)) {
              command->options.depths.push_back(std::stoll(depth));
            }
          },
          "Tokens in the cache before measuring [0,4096,32768,100000]")
      ->check(listOf(wholeNumber(0, kMaxContextLength / 2)))
      ->type_name("LIST");
  parser
      .add_option("--prefill-tokens", options.prefillTokens,
                  "Tokens of a measured section of a prompt; 0: none")
      ->check(wholeNumber(0, 1 << 20))
      ->capture_default_str();
  parser
      .add_option("--working-set", options.workingSetBytes,
                  "Bytes that a measurement of memory goes through")
      ->check(wholeNumber(1 << 16, std::int64_t{1} << 40))
      ->capture_default_str();
  parser.add_option("--seconds-each", options.secondsEach, "Seconds of one measurement")
      ->check(decimalNumber(0.0, 60.0))
      ->capture_default_str();
  parser
      .add_option("--budget-seconds", options.budgetSeconds,
                  "What does not fit in is left out, and said")
      ->check(decimalNumber(1.0, 1e6))
      ->capture_default_str();
  parser.add_flag("--quick", command->isQuick, "Fewer and smaller checks, for emulated devices");
  parser.add_option("--json", command->jsonFile,
                    "Write the results to this file, which is whole after every row");
  return {&parser, [command](Interrupt& interrupt) { return command->run(interrupt); }};
}

}  // namespace longhand::engine::cli
