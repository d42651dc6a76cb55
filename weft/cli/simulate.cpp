#include <memory>
#include <optional>

#include <fmt/format.h>

#include "weft/base/counted.h"
#include "weft/base/file.h"
#include "weft/base/output_path.h"
#include "weft/base/text.h"
#include "weft/cli/count_option.h"
#include "weft/cli/json_output.h"
#include "weft/cli/legal_plan.h"
#include "weft/cli/report_text.h"
#include "weft/cli/verbs.h"
#include "weft/meaning/held_state.h"
#include "weft/profile/profile.h"
#include "weft/simulate/picture_title.h"
#include "weft/simulate/plan_simulator.h"

namespace weft {
namespace {

struct SimulateVerbOptions {
  std::string plan;
  std::optional<std::string> profile, batches, trace, svg;
  bool json = false;
};

/// Of all batches together: so many take 3 GiB and some seconds. Large runs have some thousands a batch.
constexpr int64_t kMostDrawnSamples = 20'000'000;

std::optional<Error> find_too_many_samples(const Plan& plan, std::optional<int64_t> asked) {
  const int64_t batches = asked.value_or(plan.batches.value_or(kDefaultBatches));
  const int64_t samples = plan.workload.global_batch_samples;
  if (!has_distributions(plan.workload) || batches <= kMostDrawnSamples / samples) return std::nullopt;
  const int64_t most = kMostDrawnSamples / samples;
  return Error{.source = "--batches",
               .problem = fmt::format("{} {} of {} samples, more than {} in all",
                                      asked ? "makes" : "is not given, and the plan makes", counted(batches, "batch"),
                                      with_commas(samples), with_commas(kMostDrawnSamples)),
               .advice = fmt::format("Give {}: with 0 the mean batch alone is simulated.",
                                     most > 0 ? fmt::format("at most {}", most) : "0")};
}

/// What each rank's host holds on top while a checkpoint is saved beside the next steps; null with offload, which is
/// not run.
Json checkpoint_copies(const Plan& plan) {
  if (!plan.offload.is_empty()) return nullptr;
  constexpr double kGib = 1024.0 * 1024 * 1024;
  Json copies = Json::array();
  for (const int64_t bytes : snapshot_bytes(plan)) copies.push_back(static_cast<double>(bytes) / kGib);
  return copies;
}

Result<std::string> simulate(const SimulateVerbOptions& options) {
  if (auto error = find_bad_output({{"--trace", options.trace}, {"--svg", options.svg}},
                                   {{"--plan", options.plan}, {"--profile", options.profile}}))
    return *std::move(error);
  WEFT_TRY(const Plan plan, read_legal_plan(options.plan, PlanUse::kPrice));
  SimulateOptions how;
  std::optional<Profile> profile;
  if (options.profile) {
    WEFT_TRY(profile, read_profile_file(*options.profile));
    how.profile = &*profile;
  }
  if (options.batches) {
    WEFT_TRY(how.batches, parse_count("--batches", *options.batches, {0, 10'000}));
  }
  if (auto error = find_too_many_samples(plan, how.batches)) return *std::move(error);
  Timeline timeline;
  if (options.trace || options.svg) how.timeline = &timeline;
  WEFT_TRY(const PlanReport report, simulate_plan(plan, how));
  if (options.trace) {
    if (auto error = write_file(*options.trace, to_chrome_trace(timeline))) return *error;
  }
  if (options.svg) {
    if (auto error = write_file(*options.svg, to_svg(timeline, picture_title(plan, report)))) return *error;
  }
  if (options.json) {
    Json json = to_json(report);
    json["checkpoint_copy_gib"] = checkpoint_copies(plan);
    return json_output(json);
  }
  return to_text(plan, report);
}

}  // namespace

void add_simulate(Verbs& verbs) {
  auto options = std::make_shared<SimulateVerbOptions>();
  Verb& verb = verbs.emplace_back(
      Verb{.name = "simulate", .summary = "Predict a plan's step time and memory, and show where they go"});
  verb.option("--plan", options->plan, "The plan document").named("FILE").required();
  verb.option("--profile", options->profile, "Measured blocks and links, which take the place of formulas")
      .named("FILE");
  verb.option("--batches", options->batches,
              "Batches to draw from the workload's distributions; 0 for the mean batch alone (default: the plan's, "
              "else 16)")
      .named("N");
  verb.option("--trace", options->trace, "Write the mean batch's timeline for Perfetto or chrome://tracing")
      .named("FILE");
  verb.option("--svg", options->svg, "Write that timeline as a picture (SVG)").named("FILE");
  verb.option("--json", options->json, "Print one JSON object");
  verb.footer =
      "Examples:\n"
      "  weft simulate --plan scenarios/plans/qwen2-vl-7b_inline.json\n"
      "  weft simulate --plan plan.json --trace step.json --json";
  verb.run = [options] { return simulate(*options); };
}

}  // namespace weft
