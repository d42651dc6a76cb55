#include <memory>
#include <optional>
#include <sys/ioctl.h>
#include <unistd.h>

#include <fmt/format.h>

#include "weft/base/counted.h"
#include "weft/base/file.h"
#include "weft/base/json.h"
#include "weft/base/output_path.h"
#include "weft/base/units.h"
#include "weft/cli/count_option.h"
#include "weft/cli/json_output.h"
#include "weft/cli/legal_plan.h"
#include "weft/cli/verbs.h"
#include "weft/meaning/put_rows.h"
#include "weft/plan/plan_json.h"
#include "weft/schedule/csv.h"
#include "weft/schedule/generators.h"
#include "weft/schedule/lowering.h"
#include "weft/schedule/validate.h"
#include "weft/simulate/fill_order.h"
#include "weft/simulate/plan_simulator.h"
#include "weft/simulate/run_schedule.h"

namespace weft {
namespace {

struct ScheduleOptions {
  std::optional<std::string> name, pp, vpp, microbatches, from;
  std::optional<std::string> costs, csv, csv_lowered, trace, svg;
  std::optional<std::string> plan, out;
  bool grid = false;
  bool json = false;
};

constexpr size_t kMostCsvBytes = 1u << 30;
constexpr IntegerRange kCountRange{1, INT32_MAX};

Result<Schedule> schedule_by_name(const ScheduleOptions& options) {
  if (!options.name)
    return Error{.source = "schedule", .problem = "no schedule given", .advice = "Give --name or --from."};
  Result<ScheduleName> name = parse_schedule_name(*options.name);
  if (!name) {
    Error error = name.error();
    error.source = "--name";
    return error;
  }
  PipelineShape shape{.vpp = usual_chunks(*name)};
  for (const auto& [flag, given, value] : {std::tuple{"--pp", &options.pp, &shape.pp},
                                           {"--vpp", &options.vpp, &shape.vpp},
                                           {"--microbatches", &options.microbatches, &shape.microbatches}}) {
    if (*given) {
      WEFT_TRY(*value, parse_count(flag, **given, kCountRange));
    } else if (value != &shape.vpp) {
      return Error{.source = flag, .problem = "is missing", .advice = "Give it with --name."};
    }
  }
  Result<Schedule> schedule = generate_schedule(*name, shape);
  if (schedule) return schedule;
  Error error = schedule.error();
  error.source = "--" + error.source;
  return error;
}

Result<Schedule> schedule_from_file(const ScheduleOptions& options) {
  for (const auto& [flag, given] : {std::pair{"--name", &options.name},
                                    {"--pp", &options.pp},
                                    {"--vpp", &options.vpp},
                                    {"--microbatches", &options.microbatches}}) {
    if (*given)
      return Error{
          .source = flag, .problem = "is given with --from", .advice = "The file says it; leave the flag out."};
  }
  WEFT_TRY(const std::string text, read_file(*options.from, kMostCsvBytes));
  WEFT_TRY(Schedule schedule, parse_csv(text, *options.from));
  if (const auto problem = find_problem(schedule)) {
    return Error{.source = *options.from,
                 .field = fmt::format("rank {}, action {}", problem->rank, problem->position),
                 .problem = problem->message,
                 .advice = "The cell is marked below.",
                 .details = show_problem(schedule, *problem)};
  }
  return schedule;
}

bool is_lowered(const Schedule& schedule) {
  for (const auto& row : schedule.rows) {
    for (const Action& action : row) {
      if (is_transfer(action.kind)) return true;
    }
  }
  return false;
}

/// The schedule without its transfers, reductions and updates.
Schedule compute_only(Schedule schedule) {
  for (auto& row : schedule.rows)
    std::erase_if(row, [](const Action& action) { return !is_pipeline_compute(action.kind); });
  return schedule;
}

/// As wide as the terminal allows, and no wider than the shortest action needs for any name.
int grid_columns(const Timeline& timeline) {
  double shortest = timeline.makespan_ms;
  for (const auto& rank : timeline.ranks) {
    for (const TimelineEvent& event : rank) {
      if (event.stream == Stream::kCompute && event.end_ms > event.start_ms)
        shortest = std::min(shortest, event.end_ms - event.start_ms);
    }
  }
  winsize size{};
  const bool is_terminal = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 20;
  const double widest = is_terminal ? size.ws_col - 7.0 : 320.0;
  const auto per_action = static_cast<double>(std::max<size_t>(3, longest_label(timeline)));
  const double wanted = shortest > 0 ? per_action * timeline.makespan_ms / shortest : widest;
  return static_cast<int>(std::min(widest, wanted));
}

std::string to_text(const Schedule& schedule, const ScheduleRun& run, const std::string& name) {
  std::string peaks;
  for (size_t rank = 0; rank < run.peak_in_flight.size(); ++rank) {
    constexpr size_t kShown = 16;
    if (rank == kShown) {
      peaks += fmt::format(" ... ({} ranks)", run.peak_in_flight.size());
      break;
    }
    peaks += fmt::format("{}{}", rank == 0 ? "" : " ", run.peak_in_flight[rank]);
  }
  return fmt::format(
      "{}: {}, {}, {}, {} actions: valid\nmakespan {:.6g} ms, bubble {}, most in flight per "
      "rank: {}\n",
      name, counted(schedule.num_ranks(), "rank"), counted(schedule.num_stages(), "stage"),
      counted(schedule.num_microbatches, "microbatch"), num_actions(schedule), run.makespan_ms,
      format_percent(run.bubble_fraction), peaks);
}

/// What goes with --plan, and what it goes with.
std::optional<Error> find_bad_plan_options(const ScheduleOptions& options) {
  if (options.plan.has_value() != options.out.has_value()) {
    return Error{
        .source = options.plan ? "--out" : "--plan",
        .problem = fmt::format("is missing, but {} is given", options.plan ? "--plan" : "--out"),
        .advice = "--plan names the plan that the rows are put into, --out the file that the new plan goes to."};
  }
  if (options.plan && !options.from) {
    return Error{.source = "--plan",
                 .problem = "is given without --from",
                 .advice = "Give the rows' file with --from; a schedule that has a name is set in the plan."};
  }
  return std::nullopt;
}

/// The plan with the rows, priced.
Result<Plan> plan_with_rows(const ScheduleOptions& options, const Schedule& rows) {
  WEFT_TRY(const Plan before, read_legal_plan(*options.plan, PlanUse::kPrice));
  Result<Plan> changed = with_rows(before, rows);
  if (!changed) {
    Error error = changed.error();
    error.source = *options.from;
    return error;
  }
  Plan plan = *std::move(changed);
  WEFT_TRY(PlanSimulator simulator, PlanSimulator::create(plan));
  if (auto error = store_fill_order(simulator, plan)) return *std::move(error);
  const std::vector<Violation> violations = check_plan(plan, PlanUse::kPrice);
  if (!violations.empty()) {
    Error error = to_error(violations, "are not legal");
    error.source = *options.plan;
    return error;
  }
  WEFT_TRY(const PlanReport report, simulate_plan(plan));
  plan.predicted = prediction_of(report);
  return plan;
}

Result<std::string> run_schedule_verb(const ScheduleOptions& options) {
  if (auto error = find_bad_plan_options(options)) return *std::move(error);
  if (auto error = find_bad_output({{"--out", options.out},
                                    {"--csv", options.csv},
                                    {"--csv-lowered", options.csv_lowered},
                                    {"--trace", options.trace},
                                    {"--svg", options.svg}},
                                   {{"--from", options.from}, {"--costs", options.costs}, {"--plan", options.plan}}))
    return *std::move(error);
  WEFT_TRY(const Schedule given, options.from ? schedule_from_file(options) : schedule_by_name(options));
  WEFT_TRY(const Schedule lowered, is_lowered(given) ? Result<Schedule>(given) : lower_schedule(given));
  PipelineCosts costs;
  if (options.costs) {
    WEFT_TRY(const Document document,
             read_document(*options.costs, {.max_bytes = 256u << 20, .max_values = 20'000'000}));
    WEFT_TRY(costs, read_pipeline_costs(document, lowered.num_stages(), lowered.num_microbatches));
  }
  const bool needs_timeline = options.grid || options.trace || options.svg;
  Timeline timeline;
  const ScheduleRun run = run_schedule(lowered, costs, needs_timeline ? &timeline : nullptr);
  const std::string name = options.from ? *options.from : *options.name;

  std::optional<Plan> plan;
  if (options.plan) {
    WEFT_TRY(plan, plan_with_rows(options, compute_only(lowered)));
  }

  // Everything that can be wrong with the input has been found by now; only then is anything written.
  if (plan) {
    if (auto error = write_file(*options.out, plan_to_text(*plan))) return *error;
  }
  if (options.csv) {
    if (auto error = write_file(*options.csv, to_csv(compute_only(lowered)))) return *error;
  }
  if (options.csv_lowered) {
    if (auto error = write_file(*options.csv_lowered, to_csv(lowered))) return *error;
  }
  if (options.trace) {
    if (auto error = write_file(*options.trace, to_chrome_trace(timeline))) return *error;
  }
  if (options.svg) {
    const std::string title =
        fmt::format("{}: step {:.6g} ms, bubble {}, {}, {}", name, run.makespan_ms, format_percent(run.bubble_fraction),
                    counted(lowered.num_ranks(), "rank"), counted(lowered.num_microbatches, "microbatch"));
    if (auto error = write_file(*options.svg, to_svg(timeline, title))) return *error;
  }
  if (options.json) {
    Json json = {{"valid", true},
                 {"ranks", lowered.num_ranks()},
                 {"stages", lowered.num_stages()},
                 {"microbatches", lowered.num_microbatches},
                 {"actions", num_actions(lowered)},
                 {"makespan_ms", run.makespan_ms},
                 {"bubble_fraction", run.bubble_fraction},
                 {"busy_ms", run.busy_ms},
                 {"peak_in_flight", run.peak_in_flight}};
    if (plan) json["plan_step_time_ms"] = plan->predicted.step_time_ms;
    return json_output(json);
  }
  std::string text = to_text(lowered, run, name);
  if (plan)
    text += fmt::format("{}: with these rows, a step is predicted to take {:.1f} ms\n", *options.out,
                        plan->predicted.step_time_ms);
  if (options.grid) text += to_terminal(timeline, grid_columns(timeline), isatty(STDOUT_FILENO) != 0);
  return text;
}

}  // namespace

void add_schedule(Verbs& verbs) {
  auto options = std::make_shared<ScheduleOptions>();
  Verb& verb = verbs.emplace_back(
      Verb{.name = "schedule", .summary = "Generate or read a pipeline schedule, validate it and simulate it"});
  verb.option("--name", options->name, "Generate this one: gpipe, 1f1b, interleaved_1f1b, zb_h1 or zb_v").named("S");
  verb.option("--pp", options->pp, "Pipeline ranks; needed with --name").named("P");
  verb.option("--vpp", options->vpp, "Chunks a rank (default: 2 for zb_v, else 1)").named("V");
  verb.option("--microbatches", options->microbatches, "Microbatches a step; needed with --name").named("N");
  verb.option("--from", options->from,
              "Read the schedule from a CSV file, one line per rank, with or without transfers")
      .named("FILE");
  verb.option("--costs", options->costs,
              "JSON or YAML: forward_ms, backward_input_ms, backward_weight_ms and p2p_ms, each a number, an "
              "array per stage, or a "
              "matrix [stage][microbatch] (default: 1, 1, 1, 0)")
      .named("FILE");
  verb.option("--grid", options->grid, "Print the timeline, a line a rank");
  verb.option("--csv", options->csv, "Write the compute actions, as torch.distributed.pipelining reads them")
      .named("FILE");
  verb.option("--csv-lowered", options->csv_lowered, "Write the actions with their transfers").named("FILE");
  verb.option("--trace", options->trace, "Write the timeline for Perfetto or chrome://tracing").named("FILE");
  verb.option("--svg", options->svg, "Write the timeline as a picture (SVG)").named("FILE");
  verb.option("--plan", options->plan, "Put the rows of --from into this plan; needs --out").named("FILE");
  verb.option("--out", options->out, "Where the plan with the rows goes; may be the same file").named("FILE");
  verb.option("--json", options->json, "Print one JSON object");
  verb.footer =
      "Examples:\n"
      "  weft schedule --name 1f1b --pp 4 --microbatches 8 --grid\n"
      "  weft schedule --name zb_v --pp 8 --microbatches 32 --costs costs.json --svg zb_v.svg\n"
      "  weft schedule --from mine.csv --json\n"
      "  weft schedule --from mine.csv --plan plan.json --out mine.json";
  verb.run = [options] { return run_schedule_verb(*options); };
}

}  // namespace weft
