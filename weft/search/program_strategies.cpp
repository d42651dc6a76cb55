#include "weft/search/program_strategies.h"

#include <algorithm>

#include <fmt/format.h>

#include "weft/base/clock.h"
#include "weft/base/divisors.h"
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

/// Groups of neighbours, as tensor parallelism has them.
Result<AxisLinks> tensor_links(const Cluster& cluster, int64_t tp) {
  if (cluster.num_devices() % tp != 0)
    return Error{.field = "tp", .problem = "does not divide the devices", .advice = "Use a divisor."};
  WEFT_TRY(const AxisLinks links, AxisLinks::create({{"tp", tp}, {"others", cluster.num_devices() / tp}}, cluster));
  return AxisLinks::of_one({"tp", tp}, links.along(1));
}

/// Rows come whole and leave whole, and weights lie as operators read them.
ShardLimits limits_of_block(const BlockProgram& block, const Program& program) {
  ShardLimits limits = ShardLimits::none(program, 1);
  for (size_t value = 0; value < program.values.size(); ++value) {
    const ProgramValue::Role role = program.values[value].role;
    if (role == ProgramValue::Role::kInput || role == ProgramValue::Role::kData)
      limits.inputs[value][0] = AxisState::replicated();
    limits.stages[value][0] = {0, 0};
  }
  for (size_t op = block.num_own; op < program.operators.size(); ++op) limits.pins[op][0] = Choice::same();
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
                                                          int64_t samples) {
  std::vector<std::vector<Choice>> found;
  if (given.num_own == 0) return found;
  const BlockProgram block = with_whole_end(given);
  const Program program = sized_program(block, samples);
  WEFT_TRY(const ShardProblem problem, ShardProblem::create(program, setting, limits_of_block(block, program)));
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

BlockEntries entries_for(const Block& block, const std::vector<Choice>& choices) {
  BlockEntries entries;
  for (size_t i = 0; i < choices.size(); ++i) {
    const Operator& op = block.program->program.operators[i];
    if (choices[i] != block.program->choices[i])
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

}  // namespace

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
                                                          PlanSearchResult& result) {
  std::optional<StrategyGain> gain;
  if (!problem.model.numbers.program || result.best.empty()) return gain;
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
      if (found->best.front().step_time_ms >= result.best.front().step_time_ms * (1 - kLeastStrategyGain)) continue;
      found->counts = result.counts;
      result = *std::move(found);
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
