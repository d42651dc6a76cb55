#include <chrono>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>

#include <fmt/format.h>

#include "weft/base/file.h"
#include "weft/base/output_path.h"
#include "weft/base/text.h"
#include "weft/base/units.h"
#include "weft/cli/count_option.h"
#include "weft/cli/default_workload.h"
#include "weft/cli/installation.h"
#include "weft/cli/json_output.h"
#include "weft/cli/runtime_loader.h"
#include "weft/cli/shard_text.h"
#include "weft/cli/terminal_line.h"
#include "weft/cli/verbs.h"
#include "weft/program/block_program.h"
#include "weft/program/divide_repeats.h"
#include "weft/program/program_text.h"
#include "weft/shard/run_strategy_of.h"
#include "weft/shard/strategy_text.h"
#include "weft/spec/sample_load.h"

namespace weft {
namespace {

struct ShardOptions {
  std::optional<std::string> program, model, block, nodes, workload, strategy, mode, search, out, samples, microbatches,
      program_out, rows;
  std::string mesh, cluster;
  double memory_gib = 0;
  bool explain = false;
  bool verify = false;
  bool json = false;
};

/// The program, and what a workload says of how it is computed.
struct GivenProgram {
  Program program;
  Precision precision = Precision::kBf16;
  AttentionKernel attention = AttentionKernel::kFused;
};

Result<GivenProgram> program_of_model(const ShardOptions& options, int64_t num_ranks) {
  const Scenarios scenarios = find_scenarios();
  WEFT_TRY(const Model model, scenarios.model(*options.model));
  WEFT_TRY(const Workload workload, scenarios.workload(options.workload.value_or(default_workload(model))));
  WEFT_TRY(const SampleLoad load, average_sample(model, workload));
  int64_t samples = std::min(workload.global_batch_samples, num_ranks);
  if (options.samples) {
    WEFT_TRY(samples, parse_count("--samples", *options.samples, {1, 1 << 24}));
  }
  std::optional<int64_t> rows;
  if (options.rows) {
    WEFT_TRY(rows, parse_count("--rows", *options.rows, {1, 1 << 24}));
  }
  std::vector<std::string> known;
  for (const Module& module : model.modules) {
    const Segments& segments = load.of(module.kind);
    double tokens = 0, count = 0;
    for (const Segment& segment : segments) {
      tokens += segment.length * segment.count;
      count += segment.count;
    }
    const ProgramSizes sizes{
        .samples = samples,
        .rows = rows.value_or(std::max<int64_t>(1, static_cast<int64_t>(std::ceil(count > 0 ? tokens / count : 1)))),
        .normalizes_experts = model.numbers.llm.normalizes_expert_weights};
    const std::string module_name(name_of(module.kind));
    known.push_back(module_name);
    GivenProgram given{.program = {}, .precision = workload.precision, .attention = workload.attention};
    if ((options.block && *options.block == module_name) || (!options.block && module.kind == ModuleKind::kLlm)) {
      WEFT_TRY(given.program, program_of(module, sizes, model.name));
      return given;
    }
    for (size_t kind = 0; kind < module.distinct_layers.size(); ++kind) {
      known.push_back(module_name + "." + module.distinct_layers[kind].name);
      const bool is_meant =
          options.block && (*options.block == known.back() ||
                            (module.kind == ModuleKind::kLlm && *options.block == module.distinct_layers[kind].name));
      if (!is_meant) continue;
      WEFT_TRY(given.program,
               program_of_layers(module, kind, sizes, model.name + "." + module.distinct_layers[kind].name));
      return given;
    }
  }
  return Error{
      .source = "--block",
      .problem = fmt::format("{} has no block {}", model.name, in_quotes(options.block.value_or(""))),
      .advice = fmt::format("Known are {}.{}", joined_or(known), did_you_mean(options.block.value_or(""), known))};
}

Result<GivenProgram> given_program(const ShardOptions& options, int64_t num_ranks) {
  if (options.program.has_value() == options.model.has_value())
    return Error{
        .source = "shard",
        .problem = options.program ? "both --program and --model are given" : "neither --program nor --model is given",
        .advice = "Give one of them."};
  if (options.model) return program_of_model(options, num_ranks);
  for (const auto& [flag, is_given] :
       {std::pair{"--block", options.block.has_value()}, std::pair{"--samples", options.samples.has_value()},
        std::pair{"--rows", options.rows.has_value()}}) {
    if (is_given)
      return Error{
          .source = flag, .problem = "is given with --program, which says its sizes itself", .advice = "Leave it out."};
  }
  GivenProgram given;
  WEFT_TRY(given.program, read_program_file(*options.program));
  if (options.workload) {
    WEFT_TRY(const Workload workload, find_scenarios().workload(*options.workload));
    given.precision = workload.precision;
    given.attention = workload.attention;
  }
  return given;
}

/// Solves with the pins, then prices what was found with all that it costs.
Result<ShardSolution> solve(const Program& program, const ShardSetting& setting, const ShardLimits& limits,
                            ShardMode mode, const ShardSearchOptions& options, std::optional<ShardProblem>& priced) {
  if (mode != ShardMode::kSemi) {
    WEFT_TRY(priced, ShardProblem::create(program, setting, limits));
    return search_strategy(*priced, options);
  }
  // The rest is completed with the least redistribution; then weights are held as fast as can be.
  ShardSearchOptions completing = options;
  completing.memory_bytes.reset();
  WEFT_TRY(const ShardProblem bare, ShardProblem::create(program, setting, limits, {.has_states = false}));
  WEFT_TRY(const ShardSolution completed, search_strategy(bare, completing));
  ShardLimits pinned = limits;
  for (size_t op = 0; op < program.operators.size(); ++op) {
    const std::vector<size_t>& times = completed.assignment.options[op];
    const Choices& choices = bare.options(op)[times[times.size() / 2]].choices;
    for (size_t axis = 0; axis < choices.size(); ++axis) pinned.pins[op][axis] = choices[axis];
  }
  WEFT_TRY(priced, ShardProblem::create(program, setting, pinned));
  ShardSearchOptions rest = options;
  rest.search = ShardSearch::kExact;
  WEFT_TRY(ShardSolution solution, search_strategy(*priced, rest));
  if (!completed.is_optimal) {
    solution.is_optimal = false;
    solution.bound_ms = solution.totals.ms() / (1 + completed.gap());
  }
  return solution;
}

/// The program that was given cannot be taken apart as an option needs it.
Error undivided(Error error, const std::string& option, std::string_view how) {
  error.source = option;
  error.problem = fmt::format("takes the program apart {}, which then {}", how, error.problem);
  return error;
}

/// Runs the program by the strategy on thread ranks, and on one, with drawn numbers.
Result<ProgramCheckReport> verify(const Program& program, const ShardProblem& problem, const ShardAssignment& found) {
  constexpr double kMostDifference = 1e-9;
  Result<DividedProgram> unrolled_program = unrolled(program);
  if (!unrolled_program) return undivided(unrolled_program.error(), "--verify", "layer by layer");
  DividedProgram apart = *std::move(unrolled_program);
  const RunStrategy strategy = run_strategy_of(problem, found, apart);
  show_progress("loading the runtime");
  WEFT_TRY(const RuntimeApi* runtime, load_runtime());
  show_progress("running the program by the strategy, and on one rank");
  Result<ProgramCheckReport> report = runtime->check_program(
      {.program = std::move(apart.program), .strategy = strategy, .mesh = problem.setting().links.grid().axes()});
  show_progress("");
  if (!report) {
    Error error = report.error();
    if (error.source.empty()) error.source = "--verify";
    return error;
  }
  if (report->largest_difference > kMostDifference || report->bytes_moved != report->bytes_planned)
    return Error{.source = "--verify",
                 .field = report->worst,
                 .problem = fmt::format(
                     "differs from one rank's by {:.1e} of its largest element; {} bytes moved, {} planned",
                     report->largest_difference, with_commas(report->bytes_moved), with_commas(report->bytes_planned)),
                 .advice = "Sums in another order differ by about 1e-15: please report the program and the strategy."};
  return report;
}

Result<AxisLinks> links_of(const std::vector<Axis>& axes, const Cluster& cluster) {
  Result<AxisLinks> links = AxisLinks::create(axes, cluster);
  if (links) return links;
  Error error = std::move(links).error();
  if (error.source.empty()) error.source = "--mesh";
  return error;
}

/// What each pinned operator costs, where there are few enough to try.
void price_pins(const ShardLimits& limits, const std::function<Result<ShardSolution>(const ShardLimits&)>& solve_with,
                ShardReport& report) {
  constexpr size_t kMostPins = 16;
  const Program& program = report.problem.program();
  for (size_t op = 0; op < program.operators.size(); ++op) {
    const auto& pins = limits.pins[op];
    if (std::none_of(pins.begin(), pins.end(), [](const auto& pin) { return pin.has_value(); })) continue;
    if (report.pins.size() >= kMostPins) {
      ++report.num_pins_left;
      continue;
    }
    ShardLimits without = limits;
    without.pins[op].assign(pins.size(), std::nullopt);
    const Result<ShardSolution> freed = solve_with(without);
    if (freed) report.pins.push_back({program.operators[op].name, report.solution.totals.ms() - freed->totals.ms()});
  }
}

Result<std::string> run_shard(const ShardOptions& options) {
  const auto now = [] { return std::chrono::steady_clock::now(); };
  if (auto error = find_bad_output({{"--out", options.out}, {"--program-out", options.program_out}},
                                   {{"--program", options.program},
                                    {"--model", options.model},
                                    {"--cluster", options.cluster},
                                    {"--workload", options.workload},
                                    {"--strategy", options.strategy}}))
    return *error;
  WEFT_TRY(const std::vector<Axis> axes, parse_mesh(options.mesh));
  std::optional<int64_t> nodes;
  if (options.nodes) {
    WEFT_TRY(nodes, parse_count("--nodes", *options.nodes, {1, kMostNodes}));
  }
  WEFT_TRY(const Cluster cluster, find_scenarios().cluster(options.cluster, nodes));
  WEFT_TRY(const AxisLinks links, links_of(axes, cluster));
  WEFT_TRY(GivenProgram given, given_program(options, links.grid().num_positions()));
  if (!cluster.device.matrix_tflops.contains(given.precision))
    return Error{.source = "--cluster",
                 .problem = fmt::format("{} has no rate for {}", cluster.name, name_of(given.precision)),
                 .advice = "Choose a workload with another precision."};
  StrategyFile strategy;
  if (options.strategy) {
    WEFT_TRY(const Document document, read_document(*options.strategy));
    WEFT_TRY(strategy, read_strategy(document));
    if (!strategy.mesh.empty() && strategy.mesh != axes)
      return Error{.source = *options.strategy,
                   .field = "mesh",
                   .problem = fmt::format("is not {}, which --mesh gives", links.grid().text()),
                   .advice = "Give the same mesh, or leave it out of the file."};
    if (!strategy.layers.empty()) {
      Result<DividedProgram> divided = divide_repeats(given.program, strategy.layers);
      if (!divided) {
        Error error = divided.error();
        error.source = *options.strategy;
        error.field = "layers";
        return error;
      }
      given.program = std::move(divided->program);
    }
  }
  ShardMode mode = strategy.mode.value_or(options.strategy ? ShardMode::kSemi : ShardMode::kAuto);
  if (options.mode) {
    WEFT_TRY(mode, parse_mode(*options.mode, "--mode"));
  }
  ShardSearchOptions search{.search = strategy.search.value_or(ShardSearch::kExact), .memory_bytes = {}};
  if (options.search) {
    WEFT_TRY(search.search, parse_search(*options.search, "--search"));
  }
  if (options.memory_gib > 0) {
    search.memory_bytes = options.memory_gib * kGiB;
  } else if (strategy.memory_gib) {
    search.memory_bytes = *strategy.memory_gib * kGiB;
  }
  ShardSetting setting{.cluster = cluster, .links = links, .precision = given.precision, .attention = given.attention};
  if (options.microbatches) {
    WEFT_TRY(setting.microbatches, parse_count("--microbatches", *options.microbatches, {1, 1 << 20}));
  }
  WEFT_TRY(const ShardLimits limits, limits_of(strategy, mode, given.program, links.grid()));
  const auto begin = now();
  std::optional<ShardProblem> problem;
  WEFT_TRY(const ShardSolution solution, solve(given.program, setting, limits, mode, search, problem));
  const double search_ms = std::chrono::duration<double, std::milli>(now() - begin).count();
  ShardReport report{.problem = *problem,
                     .solution = solution,
                     .mode = mode,
                     .search = search.search,
                     .search_ms = search_ms,
                     .pins = {},
                     .num_pins_left = 0,
                     .explains = options.explain,
                     .verified = {}};
  if (options.strategy && (mode == ShardMode::kSemi || mode == ShardMode::kAuto)) {
    const auto solve_with = [&](const ShardLimits& without) {
      std::optional<ShardProblem> other;
      return solve(given.program, setting, without, mode, search, other);
    };
    price_pins(limits, solve_with, report);
  }
  if (options.verify) {
    WEFT_TRY(report.verified, verify(given.program, *problem, solution.assignment));
  }
  if (options.program_out) {
    if (auto error = write_file(*options.program_out, program_text(given.program))) return *error;
  }
  if (options.out) {
    const Result<std::string> text = strategy_text(*problem, solution.assignment);
    if (!text) return undivided(text.error(), "--out", "where its layers differ");
    if (auto error = write_file(*options.out, *text)) return *error;
  }
  return options.json ? json_output(to_json(report)) : to_text(report);
}

}  // namespace

void add_shard(Verbs& verbs) {
  auto options = std::make_shared<ShardOptions>();
  Verb& verb = verbs.emplace_back(
      Verb{.name = "shard", .summary = "Find, complete or check a strategy for every operator of a program"});
  verb.option("--program", options->program, "A program: operators as rules over named dims (docs/manual/shard.md)")
      .named("FILE");
  verb.option("--model", options->model,
              "The program of a model: a name in scenarios/models, a config.json or its folder")
      .named("M");
  verb.option("--block", options->block, "Of the model, a module or the layers of one kind (default: llm, whole)")
      .named("NAME");
  verb.option("--mesh", options->mesh, "Axes and their sizes, those of ranks next to each other first: tp=8,dp=8")
      .named("AXES")
      .required();
  verb.option("--cluster", options->cluster, "A cluster: a name in scenarios/clusters, or a file")
      .named("C")
      .required();
  verb.option("--nodes", options->nodes, "Nodes of the cluster, instead of its own number").named("N");
  verb.option("--workload", options->workload, "A workload: rows of a sample, precision (default: as for describe)")
      .named("W");
  verb.option("--samples", options->samples, "Samples of the model that run at once (default: one a rank)").named("N");
  verb.option("--rows", options->rows, "Rows of a sample in the block (default: the workload's average)").named("N");
  verb.option("--microbatches", options->microbatches, "Times that the program runs between two updates (default: 1)")
      .named("N");
  verb.option("--strategy", options->strategy, "Pins, layouts of inputs, ZeRO stages: a strategy file").named("FILE");
  verb.option("--mode", options->mode,
              "data, semi, auto or explicit (default: the file's; semi with a file, auto without)")
      .named("MODE");
  verb.option("--search", options->search, "exact, recursive or propagate (default: exact)").named("S");
  verb.option("--memory-gib", options->memory_gib, "What a rank may hold (default: no limit)")
      .named("G")
      .within(1e-9, 1e9);
  verb.option("--explain", options->explain, "Also every transition with its layouts");
  verb.option("--verify", options->verify,
              "Run the program once by the strategy, on threads, and compare numbers and bytes with one rank's");
  verb.option("--out", options->out, "Write the strategy that was found").named("FILE");
  verb.option("--program-out", options->program_out, "Write the program").named("FILE");
  verb.option("--json", options->json, "Print one JSON object");
  verb.footer =
      "Exit status 1 when nothing fits into the memory, with the least that would do.\n"
      "Examples:\n"
      "  weft shard --model llama3-8b --mesh tp=8,dp=8 --cluster dgx_h100 --nodes 8\n"
      "  weft shard --model llama3-8b --block layer --mesh tp=8 --cluster dgx_h100 --strategy pins.yaml --mode semi\n"
      "  weft shard --program mlp.txt --mesh tp=4,dp=2 --cluster dgx_h100 --explain --out strategy.yaml";
  verb.run = [options] { return run_shard(*options); };
}

}  // namespace weft
