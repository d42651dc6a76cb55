#include <filesystem>
#include <memory>

#include <fmt/format.h>

#include "weft/base/json.h"
#include "weft/base/paths.h"
#include "weft/base/text.h"
#include "weft/cli/json_output.h"
#include "weft/cli/legal_plan.h"
#include "weft/cli/one_process.h"
#include "weft/cli/runtime_loader.h"
#include "weft/cli/runtime_memory.h"
#include "weft/cli/terminal_line.h"
#include "weft/cli/verbs.h"

namespace weft {
namespace {

struct EvalVerbOptions {
  std::string plan;
  std::string config;
  std::string checkpoint;
  std::string data;
  bool json = false;
};

/// The run's folder of a checkpoint in it; any other folder is taken for a run's.
std::filesystem::path run_of_folder(const std::string& given) {
  const std::filesystem::path path = std::filesystem::path(given).lexically_normal();
  const std::filesystem::path folder = path.has_filename() ? path : path.parent_path();
  std::error_code ignored;
  if (!std::filesystem::exists(folder / "checkpoint.json", ignored)) return folder;
  // `best` is a link to one.
  const std::filesystem::path above = without_links(folder).parent_path();
  return above.filename() == "checkpoints" ? above.parent_path() : folder;
}

/// What is wrong with a --checkpoint that plan or configuration come from, before these are asked for.
std::optional<Error> check_checkpoint_folder(const EvalVerbOptions& options) {
  std::error_code ignored;
  const std::string shown = in_quotes(options.checkpoint);
  const auto error = [&](const std::string& problem, const std::string& advice) {
    return Error{.source = "--checkpoint", .problem = shown + " " + problem, .advice = advice};
  };
  if (!std::filesystem::exists(options.checkpoint, ignored))
    return error("does not exist", "Give the folder of a training run, or one of its checkpoints.");
  if (!std::filesystem::is_directory(options.checkpoint, ignored))
    return error("is a file, a folder is needed", "Give the folder of a training run, or one of its checkpoints.");
  const std::filesystem::path run = run_of_folder(options.checkpoint);
  const bool has_all = std::filesystem::exists(run / "plan.json", ignored) || !options.plan.empty();
  if (!has_all)
    return error("holds no training run: it has no plan.json",
                 "Give the folder that weft train wrote, or give --plan and --config as well.");
  return std::nullopt;
}

Result<std::string> run_eval(const EvalVerbOptions& options) {
  // A run's folder has the plan and the configuration that it ran with.
  if (!options.checkpoint.empty()) {
    if (auto error = check_checkpoint_folder(options)) return told_once(*std::move(error));
  }
  const std::filesystem::path run = run_of_folder(options.checkpoint);
  const auto given_or = [&](const std::string& given, const char* flag, const char* name) -> Result<std::string> {
    if (!given.empty()) return given;
    std::error_code ignored;
    if (!run.empty() && std::filesystem::exists(run / name, ignored)) return (run / name).string();
    return Error{.source = flag,
                 .problem = run.empty() ? "is missing, and there is no run to take it from"
                                        : fmt::format("is missing, and {} has no {}", run.string(), name),
                 .advice = "Give it, or give --checkpoint with a run's folder."};
  };
  Result<std::string> plan_file = given_or(options.plan, "--plan", "plan.json");
  if (!plan_file) return told_once(std::move(plan_file).error());
  Result<std::string> config_file = given_or(options.config, "--config", "config.json");
  if (!config_file) return told_once(std::move(config_file).error());
  Result<Plan> plan = read_trained_plan(*plan_file, *config_file);
  if (!plan) return told_once(std::move(plan).error());
  std::vector<RankNeed> needs = predicted_needs(*plan, NeededFor::kEvaluation);
  show_progress("loading the runtime");
  WEFT_TRY(const RuntimeApi* runtime, load_runtime());
  Result<std::optional<EvalReport>> result = runtime->evaluate({.plan = *std::move(plan),
                                                                .plan_source = *plan_file,
                                                                .config_file = *config_file,
                                                                .checkpoint = options.checkpoint,
                                                                .data = options.data,
                                                                .memory = std::move(needs),
                                                                .say = say,
                                                                .show = show_progress});
  show_progress("");
  if (!result) {
    Error error = std::move(result).error();
    if (error.source.empty() && !error.field.empty()) error.source = *plan_file;
    return error;
  }
  if (!*result) return std::string();
  const EvalReport& report = **result;
  const double tokens_per_s = report.ms > 0 ? static_cast<double>(report.num_tokens) / report.ms * 1e3 : 0;
  if (options.json) {
    return json_output({{"loss", report.loss},
                        {"perplexity", report.perplexity()},
                        {"target_tokens", report.num_targets},
                        {"tokens", report.num_tokens},
                        {"batches", report.num_batches},
                        {"step", report.step},
                        {"tokens_per_s", tokens_per_s}});
  }
  return fmt::format("loss {:.6f}, perplexity {:.5g}, over {} target tokens of {} batches, {:.0f} tokens/s\n",
                     report.loss, report.perplexity(), report.num_targets, report.num_batches, tokens_per_s);
}

}  // namespace

void add_eval(Verbs& verbs) {
  auto options = std::make_shared<EvalVerbOptions>();
  Verb& verb = verbs.emplace_back(
      Verb{.name = "eval", .summary = "The loss of a model over samples that training does not see"});
  verb.option("--plan", options->plan, "The plan document (default: the run's own)").named("FILE");
  verb.option("--config", options->config, "The configuration: YAML or JSON (default: the run's own)").named("FILE");
  verb.option("--checkpoint", options->checkpoint,
              "A run's folder, whose newest checkpoint is taken, or a checkpoint (default: the configuration's "
              "weights)")
      .named("DIR");
  verb.option("--data", options->data,
              "Conversations, or data settings, every record of which is evaluated (default: what the configuration "
              "evaluates)")
      .named("FILE");
  verb.option("--json", options->json, "Print one JSON object");
  verb.footer =
      "Examples:\n"
      "  weft eval --checkpoint runs/qwen2-vl-2b\n"
      "  weft eval --checkpoint runs/qwen2-vl-2b/best --data unseen.jsonl\n"
      "  weft eval --plan plan.json --config train.yaml";
  verb.run = [options] { return run_eval(*options); };
}

}  // namespace weft
