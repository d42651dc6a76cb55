#include "weft/search/program_strategies.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "weft/base/clock.h"
#include "weft/base/divisors.h"
#include "weft/cost/block_setting.h"
#include "weft/cost/block_time.h"
#include "weft/cost/measured_links.h"
#include "weft/cost/program_memory.h"
#include "weft/meaning/plan_strategy.h"
#include "weft/program/program_blocks.h"
#include "weft/shard/shard_search.h"

namespace weft {
namespace {

/// Strategies of one kind of block besides the usual.
constexpr size_t kMostOfKind = 3;
/// Of what the fastest takes, the memory that slimmer ones may.
constexpr double kSlimmer = 0.8;
/// What is faster by less is not worth another strategy.
constexpr double kLeastStrategyGain = 1e-4;
/// Of what layers of a family take: where a strategy gains less, plans are not searched with it.
constexpr double kLeastLayerGain = 3e-3;
/// Of the search before, the time that plans with such strategies may take, or so many seconds.
constexpr double kTimeShare = 0.2, kLeastTime_s = 0.05;

/// Groups of neighbours, as tensor parallelism has them.
Result<AxisLinks> tensor_links(const Cluster& cluster, int64_t tp) {
  if (cluster.num_devices() % tp != 0)
    return Error{.field = "tp", .problem = "does not divide the devices", .advice = "Use a divisor."};
  WEFT_TRY(const AxisLinks links, AxisLinks::create({{"tp", tp}, {"others", cluster.num_devices() / tp}}, cluster));
  return AxisLinks::of_one({"tp", tp}, links.along(1));
}

/// Rows come and leave as they lie between blocks, and weights lie as operators read them.
ShardLimits limits_of_block(const BlockProgram& block, const Program& program, bool divides_rows) {
  const RunStrategy ends = run_strategy(block, divides_rows);
  ShardLimits limits = ShardLimits::none(program, 1);
  for (size_t value = 0; value < program.values.size(); ++value) {
    const ProgramValue::Role role = program.values[value].role;
    if (role == ProgramValue::Role::kInput || role == ProgramValue::Role::kData)
      limits.inputs[value][0] = ends.sources[value][0];
    limits.stages[value][0] = {0, 0};
  }
  for (size_t op = block.num_own; op < program.operators.size(); ++op) limits.pins[op][0] = ends.operators[op][0];
  return limits;
}

/// A block that ends in an operator that makes rows whole, whatever its own do.
BlockProgram with_whole_end(const BlockProgram& block) {
  if (block.num_own < block.program.operators.size() || !block.carried_out) return block;
  // Any choice that leaves the last value in parts.
  std::vector<Choice> choices = block.choices;
  for (const Choice choice : choices_of(block.program.operators.back().rule)) {
    if (!states_of(block.program.operators.back().rule, choice).result.is_replicated()) choices.back() = choice;
  }
  return with_choices(block, std::move(choices));
}

/// By operator of the block's own, choices of the fastest strategy and of slimmer ones.
Result<std::vector<std::vector<Choice>>> choices_of_block(const BlockProgram& given, const ShardSetting& setting,
                                                          int64_t samples, bool divides_rows = false) {
  std::vector<std::vector<Choice>> found;
  if (given.num_own == 0) return found;
  const BlockProgram block = with_whole_end(given);
  const Program program = sized_program(block, samples);
  WEFT_TRY(const ShardProblem problem,
           ShardProblem::create(program, setting, limits_of_block(block, program, divides_rows)));
  ShardSearchOptions options;
  while (found.size() < kMostOfKind) {
    const Result<ShardSolution> solution = search_strategy(problem, options);
    if (!solution) break;  // nothing is slimmer
    std::vector<Choice> choices;
    for (size_t op = 0; op < block.num_own; ++op)
      choices.push_back(problem.options(op)[solution->assignment.options[op].front()].choices[0]);
    found.push_back(std::move(choices));
    options.memory_bytes = kSlimmer * solution->totals.bytes();
  }
  return found;
}

BlockEntries entries_for(const Block& block, const std::vector<Choice>& choices, bool divides_rows = false) {
  BlockEntries entries;
  const std::vector<Choice>& usual = divides_rows ? block.program->divided : block.program->choices;
  for (size_t i = 0; i < choices.size(); ++i) {
    const Operator& op = block.program->program.operators[i];
    if (choices[i] != usual[i])
      entries[block.name].push_back({.pattern = op.name, .words = {{"tp", text_of(op.rule, choices[i])}}});
  }
  return entries;
}

/// Strategies with the best first, so that the time is spent on these.
void add_new(ModuleStrategy strategy, std::vector<ModuleStrategy>& strategies) {
  if (strategy.blocks.empty()) return;
  if (std::find(strategies.begin(), strategies.end(), strategy) == strategies.end())
    strategies.push_back(std::move(strategy));
}

/// What layers of every kind take in a microbatch, forward and back, as often as the module has them.
std::vector<double> kinds_ms(const Module& module, const BlockSetting& setting, const Segments& segments,
                             const Cluster& cluster) {
  const AnalyticTimes times(cluster);
  std::vector<double> all;
  for (size_t kind = 0; kind < module.distinct_layers.size(); ++kind) {
    const BlockTime time = times.time_of(module, module.distinct_layers[kind], setting, segments);
    const auto count = std::count(module.layers.begin(), module.layers.end(), kind);
    all.push_back(static_cast<double>(count) *
                  (time.forward.total_ms() + time.backward_input.total_ms() + time.backward_weight.total_ms()));
  }
  return all;
}

/// Only the encoder as it was found.
EncoderSpace around(const EncoderChoice& found, EncoderSpace space) {
  const auto is_at = [&](ModulePlacement placement) { return found.placement == placement; };
  const auto runs = [&](EncoderForm form) { return found.form == form; };
  space.allows_inline = is_at(ModulePlacement::kInline);
  space.allows_colocated = is_at(ModulePlacement::kColocated);
  space.allows_disjoint = is_at(ModulePlacement::kDisjoint);
  space.allows_partial = is_at(ModulePlacement::kPartial);
  space.allows_before = runs(EncoderForm::kBefore);
  space.allows_fill = runs(EncoderForm::kFill);
  space.allows_on_demand = runs(EncoderForm::kOnDemand);
  if (!found.is_inline()) space.tp = {.values = {found.tp}};
  space.mbs_scale = {.values = {found.mbs_scale}};
  space.mbs_parts = {.values = {found.mbs_parts}};
  if (found.ranks > 0) space.ranks = {.values = {found.ranks}};
  if (found.stages > 0) space.stages = {.values = {found.stages}};
  space.cp = {.values = {found.cp}};
  space.sequence_parallel = found.sequence_parallel;
  space.recompute_from_inputs = found.recompute_from_inputs;
  if (found.zero != kUsualZero) space.zero = {.values = {found.zero}, .at_least = 0};
  return space;
}

/// Only plans like the one that was found: its degrees, microbatches, schedule and encoders.
PlanSpace around(const FoundPlan& found, const Model& model, PlanSpace space) {
  const Candidate& candidate = found.candidate;
  const std::array<Allowed*, kDegreeNames.size()> allowed = space.all();
  for (size_t i = 0; i < kDegreeNames.size(); ++i) {
    *allowed[i] = {.values = {candidate.*kDegreeNames[i].value}};
    space.given.insert(kDegreeNames[i].name);
  }
  space.mbs = {.values = {candidate.mbs}};
  space.zero = {.values = {candidate.zero}, .at_least = 0};
  space.sequence_parallel = candidate.sequence_parallel;
  space.stages_are_neighbours = candidate.stages_are_neighbours;
  space.schedules = {candidate.schedule};
  space.given.insert({"mbs", "zero", "sequence_parallel", "schedule"});
  for (size_t e = 0; e + 1 < model.modules.size() && e < kMostEncoders; ++e) {
    EncoderSpace& encoder = space.encoders[model.modules[e].kind];
    encoder = around(candidate.encoders[e], encoder);
  }
  return space;
}

/// The strategy of a search becomes the result's where its best plan is faster by such a share. The counts stay.
bool take_over(PlanSearchResult found, double least_gain, PlanSearchResult& result) {
  if (found.best.empty()) return false;
  if (found.best.front().step_time_ms >= result.best.front().step_time_ms * (1 - least_gain)) return false;
  found.counts = result.counts;
  result = std::move(found);
  return true;
}

/// Of a family's model, strategies of layers are tried on the plans that were found, not on all plans of the space.
Result<std::optional<StrategyGain>> improve_layers(const PlanProblem& problem, const PlanSearchOptions& options,
                                                   double spent_s, PlanSearchResult& result) {
  std::optional<StrategyGain> gain;
  if (result.best.empty() || options.profile != nullptr) return gain;
  // One plan on drawn batches can take longer than what is left of a search that its time ended.
  const double share_s = std::max(kLeastTime_s, kTimeShare * spent_s);
  if (std::isfinite(share_s) && options.time_limit_s < share_s) return gain;
  const double most_s = std::min(options.time_limit_s, share_s);
  const double end_ms = now_ms() + most_s * 1e3, usual_ms = result.best.front().step_time_ms;
  const double bound_ms = result.bound_ms;
  const std::vector<FoundPlan> found = result.best;
  int64_t num_tried = 0;
  for (const FoundPlan& each : found) {
    const bool is_stopped = options.stop != nullptr && options.stop->load();
    PlanSearchOptions how = options;
    how.time_limit_s = (end_ms - now_ms()) / 1e3;
    if (is_stopped || how.time_limit_s <= 0) break;
    const Result<std::optional<ModuleStrategy>> strategy = faster_layers(each.plan);
    if (!strategy || !*strategy) continue;
    if (result.batches > 0) how.batches = result.batches;
    how.improves = false;
    ++num_tried;
    PlanProblem near = problem;
    near.space = around(each, problem.model, problem.space);
    Result<PlanSearchResult> searched = search_with(**strategy, near, how);
    // A plan without a strategy is simpler, and may be slower by as much as others that are.
    const double least_gain = std::max(kLeastStrategyGain, options.within);
    if (searched && take_over(*std::move(searched), least_gain, result))
      gain = StrategyGain{.strategy = **strategy, .usual_ms = usual_ms, .ms = result.best.front().step_time_ms};
  }
  if (!gain) return gain;
  gain->num_tried = num_tried;
  // Other plans were not tried with it.
  result.is_optimal = false;
  result.bound_ms = std::min(bound_ms, result.bound_ms);
  return gain;
}

}  // namespace

Result<std::optional<ModuleStrategy>> faster_layers(const Plan& plan) {
  const ModulePlan& llm = plan.llm();
  const bool has_any = llm.tp > 1 && llm.cp == 1 && plan.model.numbers.program == std::nullopt;
  if (!has_any) return std::optional<ModuleStrategy>();
  WEFT_TRY(const SampleLoad average, average_sample(plan.model, plan.workload));
  Segments segments = average.llm;
  for (Segment& segment : segments) segment.count *= static_cast<double>(plan.schedule.mbs);
  const Module& module = *plan.model.find(ModuleKind::kLlm);
  const BlockSetting setting = setting_of(plan, llm, place_module(plan.cluster, llm));
  const std::vector<double> usual_ms = kinds_ms(module, setting, segments, plan.cluster);
  const ShardSetting shared{.cluster = plan.cluster,
                            .links = AxisLinks::of_one({"tp", llm.tp}, setting.tp_link),
                            .precision = setting.precision,
                            .attention = setting.attention,
                            .microbatches = plan.schedule.microbatches};
  const int64_t rows = std::max<int64_t>(1, std::llround(num_tokens(segments)));
  ModuleStrategy strategy{.mesh = {{"tp", llm.tp}}, .blocks = {}};
  double all_ms = 0, least_ms = 0;
  for (size_t kind = 0; kind < usual_ms.size(); ++kind) {
    all_ms += usual_ms[kind];
    const std::string& name = module.distinct_layers[kind].name;
    const Result<Module> as_program = with_strategy(module, {{name, {}}}, llm.tp);
    BlockEntries best;
    double best_ms = usual_ms[kind];
    if (as_program) {
      const Block& block = as_program->distinct_layers[kind];
      WEFT_TRY(const auto offered, choices_of_block(*block.program, shared, rows, llm.sequence_parallel));
      for (const std::vector<Choice>& choices : offered) {
        BlockEntries entries = entries_for(block, choices, llm.sequence_parallel);
        if (entries.empty()) continue;
        WEFT_TRY(const Module changed, with_strategy(module, entries, llm.tp));
        const double ms = kinds_ms(changed, setting, segments, plan.cluster)[kind];
        if (ms >= best_ms) continue;
        best = std::move(entries);
        best_ms = ms;
      }
    }
    least_ms += best_ms;
    strategy.blocks.merge(best);
  }
  if (strategy.blocks.empty() || least_ms > (1 - kLeastLayerGain) * all_ms) return std::optional<ModuleStrategy>();
  return std::optional(std::move(strategy));
}

Result<std::vector<ModuleStrategy>> offered_strategies(const Model& model, const Cluster& cluster, Precision precision,
                                                       AttentionKernel attention, int64_t tp, int64_t samples,
                                                       const Profile* profile) {
  Cluster priced = cluster;
  std::optional<OperatorTimes> measured;
  if (profile != nullptr) {
    apply_links(*profile, priced);
    measured.emplace(*profile, cluster.devices_per_node);
  }
  WEFT_TRY(AxisLinks links, tensor_links(priced, tp));
  const ShardSetting setting{.cluster = priced,
                             .links = std::move(links),
                             .precision = precision,
                             .attention = attention,
                             .measured = measured ? &*measured : nullptr};
  const std::vector<const Block*> kinds = kinds_of_blocks(*model.find(ModuleKind::kLlm));
  std::vector<std::vector<BlockEntries>> by_kind;
  size_t most = 0;
  for (const Block* kind : kinds) {
    WEFT_TRY(const auto choices, choices_of_block(*kind->program, setting, samples));
    std::vector<BlockEntries>& own = by_kind.emplace_back();
    for (const std::vector<Choice>& each : choices) own.push_back(entries_for(*kind, each));
    most = std::max(most, own.size());
  }
  std::vector<ModuleStrategy> strategies;
  const auto joined = [&](const auto& which) {
    ModuleStrategy strategy{.mesh = {{"tp", tp}}, .blocks = {}};
    for (size_t k = 0; k < kinds.size(); ++k) {
      const std::optional<size_t> place = which(k);
      if (place && *place < by_kind[k].size())
        strategy.blocks.insert(by_kind[k][*place].begin(), by_kind[k][*place].end());
    }
    return strategy;
  };
  // All kinds alike, then each kind alone.
  for (size_t i = 0; i < most; ++i)
    add_new(joined([&](size_t k) { return std::optional(std::min(i, std::max<size_t>(1, by_kind[k].size()) - 1)); }),
            strategies);
  for (size_t only = 0; only < kinds.size(); ++only) {
    for (size_t i = 0; i < by_kind[only].size(); ++i)
      add_new(joined([&](size_t k) { return k == only ? std::optional(i) : std::nullopt; }), strategies);
  }
  return strategies;
}

Result<PlanProblem> problem_with(const ModuleStrategy& strategy, PlanProblem problem) {
  const int64_t tp = tensor_degree(strategy);
  if (!problem.space.tp.contains(tp))
    return Error{.field = "llm.tp",
                 .problem = fmt::format("does not allow {}, which the strategy is for", tp),
                 .advice = "Allow it, or find a strategy for another mesh."};
  problem.space.tp = {.values = {tp}};
  problem.space.given.insert("tp");
  if (!problem.model.numbers.program) {
    if (!problem.space.cp.contains(1))
      return Error{.field = "llm.cp",
                   .problem = "does not allow 1, but layers with a strategy have whole sequences on their ranks",
                   .advice = "Allow it, or leave the strategy out."};
    problem.space.cp = {.values = {1}};
    problem.space.given.insert("cp");
    problem.space.recompute.allows_selective = false;
    if (problem.space.recompute.everywhere) problem.space.recompute.everywhere->attention = false;
  }
  const auto llm = std::find_if(problem.model.modules.begin(), problem.model.modules.end(),
                                [](const Module& module) { return module.kind == ModuleKind::kLlm; });
  WEFT_TRY(*llm, with_strategy(*llm, strategy.blocks, tp));
  return problem;
}

Result<PlanSearchResult> search_with(const ModuleStrategy& strategy, const PlanProblem& problem,
                                     const PlanSearchOptions& options) {
  WEFT_TRY(const PlanProblem own, problem_with(strategy, problem));
  WEFT_TRY(PlanSearchResult result, search_plans(own.model, own.cluster, own.workload, own.space, options));
  for (FoundPlan& found : result.best) found.plan.modules.back().strategy = strategy;
  if (result.chosen) result.chosen->plan.modules.back().strategy = strategy;
  return result;
}

Result<std::optional<StrategyGain>> improve_by_strategies(const PlanProblem& problem, const PlanSearchOptions& options,
                                                          PlanSearchResult& result, double spent_s) {
  std::optional<StrategyGain> gain;
  if (!problem.model.numbers.program) return improve_layers(problem, options, spent_s, result);
  if (result.best.empty()) return gain;
  const double end_ms = now_ms() + options.time_limit_s * 1e3;
  const double usual_ms = result.best.front().step_time_ms;
  // Degrees of the plans that were found come first, each with the samples that its fastest plan runs at once.
  std::vector<std::pair<int64_t, int64_t>> degrees;
  const auto add_degree = [&](int64_t tp, int64_t mbs) {
    const bool is_new =
        std::none_of(degrees.begin(), degrees.end(), [&](const auto& each) { return each.first == tp; });
    if (tp > 1 && is_new) degrees.emplace_back(tp, mbs);
  };
  for (const FoundPlan& found : result.best) add_degree(found.candidate.tp, found.candidate.mbs);
  for (const int64_t tp : divisors(problem.cluster.devices_per_node)) {
    if (problem.space.tp.contains(tp)) add_degree(tp, result.best.front().candidate.mbs);
  }
  int64_t num_tried = 0;
  bool are_optimal = result.is_optimal;
  double bound_ms = result.bound_ms;
  for (const auto& [tp, mbs] : degrees) {
    const Result<std::vector<ModuleStrategy>> offered =
        offered_strategies(problem.model, problem.cluster, result.best.front().plan.precision.compute,
                           problem.workload.attention, tp, mbs, options.profile);
    if (!offered) continue;  // too large to search: the usual strategy stays
    for (const ModuleStrategy& strategy : *offered) {
      const bool is_stopped = options.stop != nullptr && options.stop->load();
      PlanSearchOptions how = options;
      how.time_limit_s = (end_ms - now_ms()) / 1e3;
      if (is_stopped || how.time_limit_s <= 0) break;
      if (result.batches > 0) how.batches = result.batches;
      ++num_tried;
      Result<PlanSearchResult> found = search_with(strategy, problem, how);
      if (!found || found->best.empty()) continue;
      are_optimal &= found->is_optimal;
      bound_ms = std::min(bound_ms, found->bound_ms);
      if (!take_over(*std::move(found), kLeastStrategyGain, result)) continue;
      gain = StrategyGain{.strategy = strategy, .usual_ms = usual_ms, .ms = result.best.front().step_time_ms};
    }
  }
  if (!gain) return gain;
  gain->num_tried = num_tried;
  // What is proven of the space is so of every strategy that was tried.
  result.is_optimal = are_optimal;
  result.bound_ms = bound_ms;
  return gain;
}

}  // namespace weft
