#include "weft/search/balance.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include <fmt/format.h>

#include "weft/base/check.h"
#include "weft/base/text.h"
#include "weft/schedule/lowering.h"
#include "weft/search/balance_memory.h"
#include "weft/search/chain_solver.h"
#include "weft/search/chain_source.h"
#include "weft/search/precision.h"
#include "weft/simulate/run_schedule.h"

namespace weft {
namespace {

using Clock = ChainSearch::Clock;

/// A makespan that can be had: everything recomputed, the largest stage as small as it gets. A stage works that long at
/// most, and runs of blocks beyond it need no look at their recomputation. Infinite when that placement does not fit.
Result<double> makespan_with_all_recomputed(const BalanceCosts& costs, SolverShape& shape, const Deadline& deadline) {
  ChainSource source(costs, shape.in_flight, RecomputeOptions::kAll);
  WEFT_TRY(const StageOptions options, StageOptions::make(source, {.deadline = deadline}));
  const Chain chain = ChainSearch(options).least_bottleneck();
  if (chain.empty()) return kInfinity;
  for (const double gib : memory_of_ranks(shape.schedule, shape.moments, options, chain)) {
    if (gib > with_rounding(costs.memory_gib)) return kInfinity;
  }
  std::vector<StageTimes> times;
  for (const size_t option : chain) times.push_back(options[option].times());
  return shape.graph.makespan_ms(times) * (1 + kPrecision);
}

/// The figures of a placement, from the simulator that plans are priced with.
BalancedPipeline describe(const BalanceCosts& costs, const SolverShape& shape, const ChainSource& source,
                          const StageOptions& options, const Chain& chain) {
  const Schedule& schedule = shape.schedule;
  BalancedPipeline balance;
  std::vector<double> forward, input, weight;
  for (size_t stage = 0; stage < chain.size(); ++stage) {
    const StageOption& option = options[chain[stage]];
    balance.stages.push_back({.blocks = blocks_of_kinds(costs, option.first, option.count),
                              .recomputed = source.recomputed_blocks(static_cast<int32_t>(stage), option),
                              .forward_ms = option.figures[kForwardWork],
                              .backward_ms = option.figures[kInputWork] + option.figures[kWeightWork]});
    forward.push_back(option.figures[kForwardWork]);
    input.push_back(option.figures[kInputWork]);
    weight.push_back(option.figures[kWeightWork]);
  }
  const auto table = [&](const std::vector<double>& values) {
    return CostTable(schedule.num_stages(), schedule.num_microbatches, values);
  };
  const Result<Schedule> lowered = lower_schedule(schedule);
  WEFT_CHECK(lowered.ok(), "a generated schedule does not lower");
  const ScheduleRun run = run_schedule(*lowered, {.forward_ms = table(forward),
                                                  .backward_input_ms = table(input),
                                                  .backward_weight_ms = table(weight),
                                                  .p2p_ms = CostTable(costs.p2p_ms)});
  balance.makespan_ms = run.makespan_ms;
  balance.bubble_fraction = run.bubble_fraction;
  balance.memory_gib = memory_of_ranks(schedule, shape.moments, options, chain);
  for (int32_t rank = 0; rank < schedule.num_ranks(); ++rank)
    balance.stages_of_rank.push_back(stages_of_rank(schedule, rank));
  return balance;
}

}  // namespace

Result<BalancedPipeline> balance(const BalanceCosts& costs, const BalanceOptions& options) {
  WEFT_TRY(Schedule schedule, generate_schedule(costs.schedule, costs.shape));
  SolverEffort effort;
  effort.time_limit = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options.time_limit_s));
  effort.stop = options.stop;
  const Deadline deadline(effort.start + effort.time_limit, options.stop);
  const auto is_stopped = [&] { return options.stop != nullptr && options.stop->load(); };
  const Error interrupted{.kind = ErrorKind::kJob,
                          .problem = "was interrupted before a placement was found",
                          .advice = "Let it run longer."};
  SolverShape shape(std::move(schedule));
  double most_ms = kInfinity;
  if (costs.has_memory_limit()) {
    const Result<double> most = makespan_with_all_recomputed(costs, shape, deadline);
    if (!most) return is_stopped() ? interrupted : most.error();
    most_ms = *most;
  }
  ChainSource source(costs, shape.in_flight,
                     costs.shape.vpp > 1 ? RecomputeOptions::kPareto : RecomputeOptions::kLeast);
  const Result<StageOptions> listed =
      StageOptions::make(source, {.below_ms = most_ms, .microbatches = costs.shape.microbatches, .deadline = deadline});
  if (!listed) return is_stopped() ? interrupted : listed.error();
  const StageOptions& stage_options = *listed;
  const std::vector<double> limits(costs.has_memory_limit() ? shape.moments.size() : 0, costs.memory_gib);
  const SolvedChain solved = solve_chain(shape, stage_options, limits, kInfinity, effort);
  if (solved.is_too_large) {
    return Error{.source = "balance",
                 .field = "chain",
                 .problem = fmt::format("{} blocks on {} stages take more memory to place than a search may have",
                                        with_commas(costs.num_blocks()), with_commas(source.num_stages())),
                 .advice = "Take several layers as one block, or fewer stages."};
  }
  if (solved.best.empty() && !solved.is_exhausted && is_stopped()) return interrupted;
  if (solved.best.empty()) {
    return explain_no_placement(
        costs, shape.schedule,
        {.is_proven = solved.is_exhausted, .deadline = {Clock::now() + effort.time_limit, options.stop}});
  }
  BalancedPipeline balance = describe(costs, shape, source, stage_options, solved.best);
  WEFT_CHECK(std::abs(balance.makespan_ms - solved.best_ms) <= 1e-9 * balance.makespan_ms,
             "the search found {} ms, the simulator {} ms", solved.best_ms, balance.makespan_ms);
  balance.is_optimal = solved.is_exhausted;
  balance.is_stopped = !solved.is_exhausted && is_stopped();
  balance.bound_ms = balance.is_optimal ? balance.makespan_ms : solved.bound_ms;
  balance.num_simulated = solved.num_simulated;
  balance.num_paths = static_cast<int64_t>(shape.paths.size());
  return balance;
}

}  // namespace weft
