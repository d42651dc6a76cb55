#include "weft/search/program_strategies.h"

#include <algorithm>
#include <optional>

#include "weft/base/clock.h"
#include "weft/base/divisors.h"
#include "weft/cost/measured_links.h"
#include "weft/search/block_choices.h"
#include "weft/search/layer_strategies.h"

namespace weft {
namespace {

/// Groups of neighbours, as tensor parallelism has them.
Result<AxisLinks> tensor_links(const Cluster& cluster, int64_t tp) {
  if (cluster.num_devices() % tp != 0)
    return Error{.field = "tp", .problem = "does not divide the devices", .advice = "Use a divisor."};
  WEFT_TRY(const AxisLinks links, AxisLinks::create({{"tp", tp}, {"others", cluster.num_devices() / tp}}, cluster));
  return AxisLinks::of_one({"tp", tp}, links.along(1));
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
    for (const BlockChoices& each : choices) own.push_back(entries_for(*kind, each));
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

Result<std::optional<StrategyGain>> improve_by_strategies(const PlanProblem& problem, const PlanSearchOptions& options,
                                                          PlanSearchResult& result, double spent_s) {
  std::optional<StrategyGain> gain;
  if (result.best.empty() || !problem.space.allows_strategies) return gain;
  if (!problem.model.numbers.program) return improve_layers(problem, options, result, spent_s);
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
    for (const ModuleStrategy& each : *offered) {
      const PlanStrategy strategy = {{.module = ModuleKind::kLlm, .strategy = each}};
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
      if (!is_faster(*found, kLeastStrategyGain, result)) continue;
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
  // The best of the space may have another strategy than the plan that was improved beyond it.
  if (are_optimal) result.improved_by = std::max(0.0, 1 - result.best.front().step_time_ms / bound_ms);
  return gain;
}

}  // namespace weft
