#include <memory>
#include <optional>

#include <fmt/format.h>

#include "weft/base/counted.h"
#include "weft/base/json.h"
#include "weft/base/text.h"
#include "weft/base/units.h"
#include "weft/cli/encoder_memory.h"
#include "weft/cli/json_output.h"
#include "weft/cli/legal_plan.h"
#include "weft/cli/profile_text.h"
#include "weft/cli/report_text.h"
#include "weft/cli/table.h"
#include "weft/cli/verbs.h"
#include "weft/plan/diff.h"
#include "weft/profile/profile.h"
#include "weft/simulate/plan_simulator.h"

namespace weft {
namespace {

struct CheckOptions {
  std::string plan;
  std::optional<std::string> against, profile;
  bool json = false;
};

std::string summary(const Plan& plan) {
  std::string text = fmt::format("{} on {} of {}, {} a step, {} with {} of {}\n", printable(plan.model.name),
                                 counted(plan.world_size, "rank"), printable(plan.cluster.name),
                                 counted(plan.workload.global_batch_samples, "sample"), plan.schedule.name,
                                 counted(plan.schedule.microbatches, "microbatch"), plan.schedule.mbs);
  Table table;
  table.add({"module", "ranks", "tp", "cp", "ep", "pp", "vpp", "dp", "zero"});
  for (const ModulePlan& m : plan.modules) {
    const auto number = [](int64_t value) { return std::to_string(value); };
    table.add({std::string(name_of(m.kind)), number(static_cast<int64_t>(m.ranks.size())), number(m.tp), number(m.cp),
               number(m.ep), number(m.pp), number(m.vpp), number(m.dp), number(m.zero)});
  }
  return text + table.text();
}

Result<std::string> compare_plans(const Plan& plan, const CheckOptions& options) {
  WEFT_TRY(const Plan other, read_noted_plan(*options.against));
  const std::vector<Difference> differences = diff_plans(plan, other);
  if (options.json) {
    Json json = {{"same", differences.empty()}, {"differences", Json::array()}};
    for (const Difference& d : differences)
      json["differences"].push_back({{"field", d.field}, {"before", d.before}, {"after", d.after}});
    return json_output(json);
  }
  if (differences.empty()) return std::string("the plans are the same\n");
  std::string text;
  for (const Difference& d : differences)
    text += fmt::format("{}: {} -> {}\n", d.field, d.before.empty() ? "nothing" : d.before,
                        d.after.empty() ? "nothing" : d.after);
  return text;
}

Result<std::string> check(const CheckOptions& options) {
  if (options.against) {
    WEFT_TRY(const Plan plan, read_noted_plan(options.plan));
    return compare_plans(plan, options);
  }
  WEFT_TRY(const Plan plan, read_legal_plan(options.plan));
  // One mean batch will do: memory is judged for a high load in any case.
  SimulateOptions how{.batches = 0};
  std::optional<Profile> profile;
  if (options.profile) {
    WEFT_TRY(profile, read_profile_file(*options.profile));
    how.profile = &*profile;
  }
  WEFT_TRY(const PlanReport report, simulate_plan(plan, how));
  if (!report.fits()) {
    if (auto error = explain_encoder_memory(plan, report, how)) {
      error->source = options.plan;
      return *std::move(error);
    }
    return Error{.source = options.plan,
                 .field = "memory",
                 .problem = memory_summary(report),
                 .advice =
                     "Divide the model further, recompute, or use devices with more memory; 'weft simulate' shows "
                     "the parts."};
  }
  if (options.json) {
    Json json{{"legal", true},
              {"world_size", plan.world_size},
              {"peak_memory_gib", report.peak_memory_bytes() / kGiB},
              {"memory_limit_gib", report.memory_limit_bytes / kGiB},
              {"warnings", report.warnings}};
    if (report.profile) json["profile"] = profile_json(*report.profile);
    return json_output(json);
  }
  std::string text = summary(plan) + "legal: " + memory_summary(report) + "\n" + profile_text(report);
  for (const std::string& warning : report.warnings) text += "warning: " + warning + "\n";
  return text;
}

}  // namespace

void add_check(Verbs& verbs) {
  auto options = std::make_shared<CheckOptions>();
  Verb& verb = verbs.emplace_back(
      Verb{.name = "check", .summary = "Say whether a plan is legal and fits in memory, and every reason why not"});
  verb.option("--plan", options->plan, "The plan document").named("FILE").required();
  verb.option("--against", options->against, "Show the fields in which this other plan differs instead").named("FILE");
  verb.option("--profile", options->profile, "Measured blocks and links, as for simulate").named("FILE");
  verb.option("--json", options->json, "Print one JSON object");
  verb.footer =
      "Exit status 2 when the plan is not legal or does not fit, with every reason.\n"
      "Examples:\n"
      "  weft check --plan scenarios/plans/qwen2-vl-7b_inline.json\n"
      "  weft check --plan new.json --against old.json --json";
  verb.run = [options] { return check(*options); };
}

}  // namespace weft
