#include "weft/checkpoint/checkpoint.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "weft/base/file.h"
#include "weft/base/text.h"
#include "weft/checkpoint/checkpoint_json.h"
#include "weft/plan/diff.h"

namespace weft {
namespace {

constexpr std::string_view kStepPrefix = kCheckpointPrefix;
constexpr DocumentLimits kJsonLimits{.max_bytes = size_t{2} << 30, .max_values = 200'000'000};

std::optional<int64_t> step_in(const std::string& name) {
  if (!name.starts_with(kStepPrefix)) return std::nullopt;
  int64_t step = 0;
  const auto [end, problem] = std::from_chars(name.data() + kStepPrefix.size(), name.data() + name.size(), step);
  // Only as it would be written, so that no two names are of one step.
  if (problem != std::errc() || step < 0 || checkpoint_name(step) != name) return std::nullopt;
  return step;
}

/// What of a difference decides neither the states nor what is computed from them: what was predicted and from which
/// cluster and statistics, and what changes time and memory but no number.
bool is_about_cost(const std::string& field) {
  for (const char* word : {"predicted", "cluster", "workload", "batches", "batch_seed", "overlap", "offload",
                           "buckets_mb", "idle_ranks", "model.name"}) {
    const std::string_view name(word);
    if (field == name || (field.starts_with(name) && field[name.size()] == '.')) return true;
  }
  for (const char* word : {".recompute", ".zero_keep_gathered", ".recompute_from_inputs"}) {
    if (field.starts_with("modules.") && field.ends_with(word)) return true;
  }
  return false;
}

std::string names_of(const std::vector<ModuleKind>& kinds) {
  std::vector<std::string> names;
  for (const ModuleKind kind : kinds) names.emplace_back(name_of(kind));
  std::sort(names.begin(), names.end());
  return fmt::format("[{}]", fmt::join(names, ", "));
}

}  // namespace

std::string checkpoint_name(int64_t step) {
  return fmt::format("{}{:08}", kStepPrefix, step);
}

std::string checkpoint_file_name(int64_t rank) {
  return fmt::format("rank-{:05}.safetensors", rank);
}

Result<std::vector<int64_t>> list_checkpoints(const std::filesystem::path& checkpoints) {
  std::vector<int64_t> steps;
  std::error_code problem;
  std::filesystem::directory_iterator entry(checkpoints, problem);
  if (problem == std::errc::no_such_file_or_directory) return steps;
  for (; !problem && entry != std::filesystem::directory_iterator(); entry.increment(problem)) {
    if (const auto step = step_in(entry->path().filename().string())) steps.push_back(*step);
  }
  if (problem) {
    return Error{.source = checkpoints.string(),
                 .problem = "cannot be read: " + problem.message(),
                 .advice = "Give the folder that holds the step-… folders, and check its permissions."};
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

Result<std::optional<std::filesystem::path>> newest_checkpoint(const std::filesystem::path& checkpoints) {
  WEFT_TRY(const std::vector<int64_t> steps, list_checkpoints(checkpoints));
  if (steps.empty()) return std::optional<std::filesystem::path>();
  return std::optional(checkpoints / checkpoint_name(steps.back()));
}

Result<Checkpoint> read_checkpoint(const std::filesystem::path& folder) {
  const std::filesystem::path json = folder / kCheckpointJsonName;
  std::error_code ignored;
  if (!std::filesystem::exists(json, ignored)) {
    return Error{.source = folder.string(),
                 .problem = fmt::format("is no checkpoint: there is no {} in it", kCheckpointJsonName),
                 .advice = "Give the path of a step-… folder."};
  }
  WEFT_TRY(const std::string text, read_file(json, kJsonLimits.max_bytes));
  WEFT_TRY(const Document document, parse_document(text, json.string(), Syntax::kJson, kJsonLimits));
  WEFT_TRY(Checkpoint checkpoint, checkpoint_from(document));
  if (auto error = check_seal(text, json.string())) return *std::move(error);
  checkpoint.folder = folder;
  for (const CheckpointFile& file : checkpoint.files) {
    const std::filesystem::path path = folder / checkpoint_file_name(file.rank);
    std::error_code problem;
    const uintmax_t size = std::filesystem::file_size(path, problem);
    const auto refuse = [&](std::string what) {
      return Error{.source = path.string(),
                   .problem = std::move(what),
                   .advice = "The checkpoint is damaged: copy it again, or use an older one."};
    };
    if (problem)
      return refuse(fmt::format("cannot be read, and {} names it: {}", kCheckpointJsonName, problem.message()));
    if (size != static_cast<uintmax_t>(file.num_bytes)) {
      return refuse(fmt::format("has {} bytes, but {} says {}", with_commas(static_cast<int64_t>(size)),
                                kCheckpointJsonName, with_commas(file.num_bytes)));
    }
  }
  return checkpoint;
}

std::optional<Error> check_same_plan(const Checkpoint& checkpoint, const Plan& plan) {
  std::vector<Difference> differences = diff_plans(checkpoint.plan, plan);
  // Samples that are reassigned by predicted costs go elsewhere with others.
  const bool may_cost_otherwise = plan.balance == Balance::kNone;
  std::erase_if(differences, [&](const Difference& difference) {
    return difference.field.starts_with("predicted") || (may_cost_otherwise && is_about_cost(difference.field));
  });
  const std::string frozen_there = names_of(checkpoint.plan.workload.frozen);
  const std::string frozen_here = names_of(plan.workload.frozen);
  if (frozen_there != frozen_here) differences.push_back({"workload.frozen", frozen_there, frozen_here});
  if (differences.empty()) return std::nullopt;
  const auto side = [](const std::string& value) { return value.empty() ? std::string("missing") : value; };
  const Difference& first = differences.front();
  Error error{.source = checkpoint.folder.string(),
              .field = first.field,
              .problem = fmt::format("is {} in the checkpoint's plan, but {} in this one", side(first.before),
                                     side(first.after)),
              .advice = "Go on with the checkpoint's own plan, or start a new run from its exported weights."};
  if (differences.size() > 1) error.problem += fmt::format("; {} more differ", differences.size() - 1);
  for (const Difference& difference : differences) {
    error.details += fmt::format("{}: {} in the checkpoint, {} here\n", difference.field, side(difference.before),
                                 side(difference.after));
  }
  return error;
}

}  // namespace weft
