#include "weft/engine/resumed_run.h"

#include <algorithm>

#include <fmt/format.h>

#include "weft/checkpoint/agreement.h"
#include "weft/engine/same_model.h"
#include "weft/plan/diff.h"
#include "weft/spec/workload.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

/// What a workload says of samples, but for how many a batch has.
Json samples_of(const Workload& workload) {
  Json json = to_json(workload);
  for (const char* key : {"name", "precision", "optimizer", "attention", "frozen", "global_batch_samples"})
    json.erase(key);
  return json;
}

/// What a configuration says of samples, wherever files lie.
Json data_of(const Json& run) {
  Json data = run.value("data", Json("synthetic"));
  if (!data.is_object()) return data;
  for (const char* key : {"model", "max_broken_share"}) data.erase(key);
  if (!data.contains("sets") || !data["sets"].is_array()) return data;
  for (Json& set : data["sets"]) {
    if (!set.is_object() || !set.contains("file") || !set["file"].is_string()) continue;
    set["file"] = std::filesystem::path(set["file"].get<std::string>()).filename().string();
    set.erase("folder");
  }
  return data;
}

/// What of a difference changes neither where weights lie nor a number that is computed: what was predicted and from
/// what, and what changes time and memory alone.
bool is_about_cost(const std::string& field) {
  for (const char* word : {"predicted", "cluster", "workload", "batches", "batch_seed", "overlap", "offload",
                           "buckets_mb", "idle_ranks", "model"}) {
    const std::string_view name(word);
    if (field == name || (field.starts_with(name) && field[name.size()] == '.')) return true;
  }
  for (const char* word : {".recompute", ".zero_keep_gathered", ".recompute_from_inputs"}) {
    if (field.starts_with("modules.") && field.ends_with(word)) return true;
  }
  return false;
}

std::string frozen_text(const Workload& workload) {
  std::vector<std::string> names;
  for (const ModuleKind kind : workload.frozen) names.emplace_back(name_of(kind));
  std::sort(names.begin(), names.end());
  return fmt::format("[{}]", fmt::join(names, ", "));
}

/// Of two records of a folder. Older versions wrote down a relative path as it was given: its end is compared.
bool is_same_folder(const Json& before, const Json& now) {
  if (!before.is_string() || !now.is_string()) return false;
  fs::path old = fs::path(before.get<std::string>()).lexically_normal();
  if (!old.has_filename()) old = old.parent_path();
  const fs::path folder = now.get<std::string>();
  std::error_code ignored;
  if (old.is_absolute() || old.empty()) return old == folder || fs::equivalent(old, folder, ignored);
  for (auto a = old.end(), b = folder.end(); a != old.begin();) {
    if (*--a == "..") return true;
    if (b == folder.begin() || *--b != *a) return false;
  }
  return true;
}

void add_changes(const Json& before, const Json& now, const std::string& path, std::vector<std::string>& changes) {
  const auto field_of = [&](const std::string& key) { return path.empty() ? key : path + "." + key; };
  for (const auto& [key, value] : now.items()) {
    if (!before.contains(key)) {
      changes.push_back(fmt::format("{} {}, which was not there", field_of(key), value.dump()));
    } else if (value.is_object() && before[key].is_object()) {
      add_changes(before[key], value, field_of(key), changes);
    } else if (before[key] != value) {
      changes.push_back(fmt::format("{} {} instead of {}", field_of(key), value.dump(), before[key].dump()));
    }
  }
  for (const auto& [key, value] : before.items()) {
    if (!now.contains(key)) changes.push_back(fmt::format("no {}, which was {}", field_of(key), value.dump()));
  }
}

}  // namespace

std::optional<Error> check_model_of(const Checkpoint& checkpoint, const Plan& plan) {
  return check_same_model(checkpoint.plan.model, checkpoint.folder.string(), plan.model);
}

std::optional<Error> check_samples_of(const Plan& before, const Plan& now, const TrainConfig& config,
                                      const std::string& run) {
  if (config.data) return std::nullopt;
  const Json there = samples_of(before.workload), here = samples_of(now.workload);
  if (there == here) return std::nullopt;
  std::string different;
  for (const auto& [key, value] : here.items()) {
    if (there.contains(key) && there[key] == value) continue;
    different = key;
    break;
  }
  for (const auto& [key, value] : there.items()) {
    if (different.empty() && !here.contains(key)) different = key;
  }
  return Error{.field = "workload." + different,
               .problem = fmt::format("makes other samples than that of {}", run),
               .advice = "Go on with the run's own workload, or begin a new run from its weights."};
}

std::optional<Error> check_resumed(const Checkpoint& checkpoint, const Plan& plan, const TrainConfig& config) {
  if (auto error = check_model_of(checkpoint, plan)) return error;
  const Json now = to_json(config);
  for (const char* field : {"seed", "data"}) {
    if (!checkpoint.run.contains(field) || checkpoint.run[field] == now[field]) continue;
    if (std::string_view(field) == "data" && data_of(checkpoint.run) == data_of(now)) continue;
    return Error{.source = config.source,
                 .field = field,
                 .problem = fmt::format("is {}, but the run in {} has {}", now[field].dump(),
                                        checkpoint.folder.string(), checkpoint.run[field].dump()),
                 .advice = "Go on with the run's own value, or begin a new run."};
  }
  if (auto error = check_samples_of(checkpoint.plan, plan, config, "the run in " + checkpoint.folder.string()))
    return error;
  if (checkpoint.step > config.steps) {
    return Error{.source = config.source,
                 .field = "steps",
                 .problem = fmt::format("is {}, but {} has done {} already", config.steps, checkpoint.folder.string(),
                                        checkpoint.step),
                 .advice = "Give more steps."};
  }
  return std::nullopt;
}

Error with_good_checkpoint(Error error, const std::filesystem::path& folder, std::string_view way) {
  const auto read = read_checkpoint(folder);
  if (read && !verify_checkpoint(*read)) return error;  // the mistake is another one
  const bool is_newer = error.advice == kNewerVersionAdvice;
  if (const auto good = good_checkpoint_beside(folder)) {
    const std::string other =
        fmt::format("{} is good: {}", good->filename().string(), fmt::format(fmt::runtime(way), good->string()));
    error.advice = is_newer ? fmt::format("{} {}.", error.advice, other) : other + ", or copy the damaged one again.";
  } else if (!is_newer) {
    error.advice += error.advice.empty() ? "" : " ";
    error.advice += "No other checkpoint of the run is good.";
  }
  return error;
}

Error with_good_checkpoint(Group& everyone, Error error, const std::filesystem::path& folder, std::string_view way) {
  const UnlimitedWaits patience(everyone);
  const bool is_first = everyone.rank() == 0;
  if (is_first) error = with_good_checkpoint(std::move(error), folder, way);
  return *first_error(everyone, is_first ? std::optional(error) : std::nullopt);
}

std::vector<std::string> changes_of_plan(const Plan& before, const Plan& now) {
  std::vector<std::string> changes;
  const auto side = [](const std::string& value) { return value.empty() ? std::string("nothing") : value; };
  for (const Difference& difference : diff_plans(before, now)) {
    if (is_about_cost(difference.field)) continue;
    changes.push_back(
        fmt::format("{} {} instead of {}", difference.field, side(difference.after), side(difference.before)));
  }
  if (frozen_text(before.workload) != frozen_text(now.workload)) {
    changes.push_back(
        fmt::format("frozen modules {} instead of {}", frozen_text(now.workload), frozen_text(before.workload)));
  }
  if (before.workload.global_batch_samples != now.workload.global_batch_samples) {
    changes.push_back(fmt::format("{} samples a step instead of {}, the learning rate by samples seen",
                                  now.workload.global_batch_samples, before.workload.global_batch_samples));
  }
  return changes;
}

std::vector<std::string> changes_of_config(Json before, const Json& now) {
  for (const char* key : {"weights", "adapter"}) {
    if (before.contains(key) && now.contains(key) && is_same_folder(before[key], now[key])) before[key] = now[key];
  }
  std::vector<std::string> changes;
  add_changes(before, now, "", changes);
  return changes;
}

}  // namespace weft
