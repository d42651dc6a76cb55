#include "weft/exchange/import.h"

#include <algorithm>

#include <fmt/format.h>

#include "weft/base/text.h"
#include "weft/exchange/import_parts.h"
#include "weft/meaning/check.h"
#include "weft/plan/plan_json.h"

namespace weft {
namespace {

constexpr const char* kDescribedPlan = "the plan that the files describe";

Error not_understood(const Import& import, const std::vector<ImportedKey>& unknown) {
  const auto described = [&](const ImportedKey& key) {
    const std::string where = import.keys.where(key.place);
    return printable_line(fmt::format("{}{}{}: {}", key.key, key.value.empty() ? "" : " " + key.value,
                                      where.empty() ? "" : fmt::format(" ({})", where), key.meaning));
  };
  Error error{.source = "import",
              .problem = unknown.size() == 1
                             ? fmt::format("a setting is not understood, and may change what runs: {}",
                                           described(unknown.front()))
                             : fmt::format("{} settings are not understood, and may change what runs", unknown.size()),
              .advice = "Take them out, or give --lenient to go on without them."};
  if (unknown.size() == 1) return error;
  for (const ImportedKey& key : unknown) error.details += "  " + described(key) + "\n";
  return error;
}

std::optional<Error> read(Import& import) {
  switch (import.request.system) {
    case Target::kMegatron:
      return import_megatron(import);
    case Target::kMindspeedMm:
      return import_mindspeed_mm(import);
    case Target::kMindformers:
      return import_mindformers(import);
    case Target::kMindspeedRl:
      return import_mindspeed_rl(import);
    case Target::kTorchtitan:
      break;
  }
  WEFT_CHECK(false, "no such source");
}

}  // namespace

std::vector<std::string> source_names() {
  std::vector<std::string> names(target_names().begin(), target_names().end());
  std::erase(names, name_of(Target::kTorchtitan));
  return names;
}

Result<Target> parse_source(const std::string& name) {
  const std::vector<std::string> names = source_names();
  if (std::find(names.begin(), names.end(), name) != names.end()) return parse_target(name);
  return Error{.problem = fmt::format("{} is not a system whose settings are read", in_quotes(name)),
               .advice = fmt::format("Known are {}.{}", joined_or(names), did_you_mean(name, names))};
}

std::vector<std::string> known_versions(Target system) {
  switch (system) {
    case Target::kMegatron:
      return {"core_v0.12.0", "core_v0.14.0", "core_v0.16.1", "core_v0.19.0"};
    case Target::kMindspeedMm:
      return {"2.3.0"};
    case Target::kMindformers:
      return {"1.6.0"};
    case Target::kMindspeedRl:
      return {"2.3.0"};
    case Target::kTorchtitan:
      break;
  }
  return {};
}

Result<ImportedRun> import_settings(const ImportRequest& request) {
  const std::vector<std::string> versions = known_versions(request.system);
  if (!request.version.empty() && std::find(versions.begin(), versions.end(), request.version) == versions.end()) {
    return Error{.source = "--system-version",
                 .problem = fmt::format("is {}, whose defaults are not known", in_quotes(request.version)),
                 .advice = fmt::format("Known of {} are {}.{}", name_of(request.system), joined_or(versions),
                                       did_you_mean(request.version, versions))};
  }
  std::vector<std::string> names;
  for (const SettingsFile& file : request.files) names.push_back(file.name);
  names.push_back("--args");
  Import import{.request = request, .keys = ImportedKeys(std::move(names))};
  import.plan.cluster = request.cluster;
  if (auto error = read(import)) return *std::move(error);
  if (!import.keys.complaints().empty()) {
    Error error = to_error(import.keys.complaints(), "are wrong or contradict each other");
    if (error.source.empty()) error.source = "import";
    if (error.advice.empty()) error.advice = "Correct them in the files.";
    return error;
  }
  std::vector<ImportedKey> unknown;
  for (const ImportedKey& key : import.keys.rows()) {
    if (key.fate == KeyFate::kNotUnderstood) unknown.push_back(key);
  }
  if (!request.is_lenient && !unknown.empty()) return not_understood(import, unknown);
  if (!import.searches) {
    if (const auto violations = check_plan(import.plan, PlanUse::kPrice); !violations.empty()) {
      Error error = to_error(violations, "are not legal");
      error.source = kDescribedPlan;
      return error;
    }
    // Documents have limits of their own: what is said of a plan is only of use where it can be read again.
    if (auto again = read_plan({.source = kDescribedPlan, .root = plan_to_json(import.plan)}); !again)
      return again.error();
  }
  return ImportedRun{.plan = std::move(import.plan),
                     .config = std::move(import.config),
                     .no_config = std::move(import.no_config),
                     .keys = import.keys.rows(),
                     .notes = import.keys.notes(),
                     .file_names = import.keys.file_names(),
                     .version = request.version.empty() ? versions.back() : request.version,
                     .searches = import.searches};
}

}  // namespace weft
