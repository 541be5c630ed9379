#include <algorithm>
#include <memory>

#include "engine/cli/bench/bench_kernels.h"
#include "engine/cli/bench/bench_model.h"
#include "engine/cli/commands.h"
#include "engine/session/session.h"

namespace longhand::engine::cli {
namespace {

int bench(BenchOptions options, Interrupt& interrupt) {
  if (!options.shape.empty() && !options.model.model.empty()) {
    throw UsageError("give either --shape or --model");
  }
  std::sort(options.depths.begin(), options.depths.end());
  options.depths.erase(std::unique(options.depths.begin(), options.depths.end()),
                       options.depths.end());
  if (options.measuresKernels) {
    benchKernels(options, interrupt);
  } else {
    benchModel(options, interrupt);
  }
  return kSuccess;
}

}  // namespace

Command addBenchCommand(CLI::App& program) {
  auto options = std::make_shared<BenchOptions>();
  CLI::App* parser = program.add_subcommand(
      "bench", "Measures prefill and decode behind a given number of tokens in the cache");
  parser->add_option("--shape", options->shape, "Random weights in the shape of a known model")
      ->check(CLI::IsMember({"llama-2-7b", "llama-2-13b", "tinyllama-1.1b"}));
  parser
      ->add_option_function<std::vector<std::string>>(
          "--depth",
          [options](const std::vector<std::string>& lists) {
            options->depths.clear();
            for (const std::string& depth : partsOf(lists)) {
              options->depths.push_back(std::stoll(depth));
            }
          },
          "Tokens in the cache before measuring, filled with random ones: 0,4096")
      ->check(listOf(wholeNumber(0, kMaxContextLength)))
      ->type_name("LIST");
  parser
      ->add_option_function<std::vector<std::string>>(
          "--cache",
          [options](const std::vector<std::string>& lists) { options->caches = partsOf(lists); },
          "Several settings, bits of keys / values or presets: 16/16,4/2,quality")
      ->check(listOf({}))
      ->type_name("LIST");
  parser
      ->add_option("--prefill-tokens", options->prefillTokens,
                   "Tokens to prefill at each depth; 0: no prefill")
      ->check(wholeNumber(0, kMaxContextLength))
      ->capture_default_str();
  parser
      ->add_option("--decode-tokens", options->decodeTokens,
                   "Tokens to decode at each depth; 0: no decode")
      ->check(wholeNumber(0, 1000000))
      ->capture_default_str();
  parser
      ->add_option("--rounds", options->rounds,
                   "How often everything is measured; the median counts")
      ->check(wholeNumber(1, 1000))
      ->capture_default_str();
  parser->add_flag("--kernels", options->measuresKernels,
                   "Measure each kernel alone, on random weights of the model's shape");
  parser->add_flag("--json", options->isJson,
                   "Print JSON: rows with depth, cache, tokens per second, bytes read for each "
                   "token, per cent of the floor; and the machine's own rates");
  options->model.addTo(*parser);
  options->cache.addTo(*parser);
  return {parser, [options](Interrupt& interrupt) { return bench(*options, interrupt); }};
}

}  // namespace longhand::engine::cli
