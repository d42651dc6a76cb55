#include "weft/search/place_pipeline.h"

#include <algorithm>

#include "weft/search/chunk_placer.h"
#include "weft/search/local_search.h"

namespace weft {
namespace {

/// Labels that a walk keeps at a block before a placement is left unproven: nearly always few are enough.
constexpr size_t kMostLabels = 256;
constexpr size_t kFewLabels = 4;
/// Walks for a bound: the first ones say most of it.
constexpr int kFewWalks = 4;
/// Simulations of a local search between two walks.
constexpr int64_t kMostLocal = 32;

/// Runs of blocks that are looked at whatever the time: a search without any still answers with a plan that fits. That
/// is enough for the longest models on dozens of stages, and takes fractions of a second.
constexpr int64_t kSureRuns = 200'000;

SolverEffort effort_of(const PlaceLimits& limits) {
  return {.time_limit = std::max<Deadline::Clock::duration>(limits.deadline.left(), std::chrono::milliseconds(1)),
          .most_labels = limits.is_careful && !limits.is_brief ? kMostLabels : kFewLabels,
          .most_local = kMostLocal,
          .most_walks = limits.is_brief ? kFewWalks : std::numeric_limits<int>::max()};
}

/// The options that a placement is made of; empty where one of them was left out.
Chain chain_of(const std::vector<StageOption>& placed, const StageOptions& options) {
  Chain chain;
  for (size_t s = 0; s < placed.size(); ++s) {
    const auto stage = static_cast<int32_t>(s);
    const StageOption& wanted = placed[s];
    const size_t end = options.begin(stage, wanted.first + 1);
    size_t index = options.begin(stage, wanted.first);
    while (index < end && (options[index].count != wanted.count || options[index].choice != wanted.choice)) ++index;
    if (index == end) return {};
    chain.push_back(index);
  }
  return chain;
}

/// Moves blocks between the stages of a placement by the rule.
void move_chunks(PlanStages& stages, SolverShape& shape, const PlaceLimits& limits, PlacedPipeline& placed) {
  constexpr int kKicks = 4;
  constexpr int64_t kMostSimulated = 600;
  // Blocks of several modules may have to move far, since the rule counts blocks, however short.
  constexpr int32_t kReach = 4, kBlocksAStep = 8;
  StageOptions::Limit limit{.below_ms = placed.makespan_ms * (1 + kPrecision),
                            .microbatches = shape.schedule.num_microbatches,
                            .reach = std::max(kReach, stages.num_blocks() / kBlocksAStep),
                            .deadline = limits.deadline,
                            .sure_runs = kSureRuns};
  for (const StageOption& stage : placed.stages) limit.around.push_back(stage.first);
  const Result<StageOptions> options = StageOptions::make(stages, limit);
  if (!options) return;
  const Chain start = chain_of(placed.stages, *options);
  if (start.empty()) return;
  const std::vector<ChainRow> rows = memory_rows(shape.schedule, shape.moments, stages.limits_gib());
  LocalSearch search(shape.schedule, *options, rows, shape.graph);
  const Chain better =
      search.improve(start, {.num_kicks = kKicks, .most_simulated = kMostSimulated, .deadline = limits.deadline});
  if (better.empty()) return;
  std::vector<StageTimes> times;
  for (const size_t option : better) times.push_back((*options)[option].times());
  const double makespan_ms = shape.graph.makespan_ms(times);
  if (makespan_ms >= placed.makespan_ms) return;
  placed.makespan_ms = makespan_ms;
  placed.stages.clear();
  for (const size_t option : better) placed.stages.push_back((*options)[option]);
}

PlacedPipeline place_chunks(PlanStages& stages, SolverShape& shape, double below_ms) {
  PlacedPipeline placed;
  ChunkPlacer placer(stages, shape, stages.limits_gib());
  std::vector<StageTimes> times;
  for (int32_t fewer = 0; fewer <= ChunkPlacer::kMostFewer; ++fewer) {
    const std::vector<int32_t> counts = placer.counts(fewer);
    if (counts.empty()) continue;
    // What is recomputed only takes longer.
    times.clear();
    int32_t first = 0;
    for (int32_t stage = 0; stage < stages.num_stages(); ++stage) {
      times.push_back(stages.plain_times(stage, first, counts[static_cast<size_t>(stage)]));
      first += counts[static_cast<size_t>(stage)];
    }
    if (shape.graph.makespan_ms(times) >= std::min(below_ms, placed.makespan_ms)) continue;
    std::vector<StageOption> options = placer.place(counts);
    if (options.empty()) continue;
    times.clear();
    for (const StageOption& option : options) times.push_back(option.times());
    const double makespan_ms = shape.graph.makespan_ms(times);
    if (makespan_ms >= std::min(below_ms, placed.makespan_ms)) continue;
    placed.makespan_ms = makespan_ms;
    placed.stages = std::move(options);
  }
  placed.bound_ms = std::min(below_ms, placed.makespan_ms);
  placed.is_exhausted = true;
  return placed;
}

/// One stage a rank.
PlacedPipeline place_below(PlanStages& stages, SolverShape& shape, double below_ms, const PlaceLimits& limits) {
  stages.look_below(below_ms);
  const Result<StageOptions> options = StageOptions::make(stages, {.below_ms = below_ms,
                                                                   .microbatches = shape.schedule.num_microbatches,
                                                                   .deadline = limits.deadline,
                                                                   .sure_runs = kSureRuns});
  if (!options) return {};
  const SolvedChain chain = solve_chain(shape, *options, stages.limits_gib(), below_ms, effort_of(limits));
  PlacedPipeline placed{
      .stages = {}, .makespan_ms = chain.best_ms, .bound_ms = chain.bound_ms, .is_exhausted = chain.is_exhausted};
  for (const size_t option : chain.best) placed.stages.push_back((*options)[option]);
  return placed;
}

}  // namespace

PlacedPipeline place_pipeline(PlanStages& stages, SolverShape& shape, const PlaceLimits& limits) {
  const bool has_chunks = static_cast<size_t>(stages.num_stages()) > shape.moments.size();
  if (has_chunks && !limits.moves_chunks) return place_chunks(stages, shape, limits.below_ms);
  if (has_chunks) {
    PlacedPipeline placed = place_chunks(stages, shape, kInfinity);
    // What is far behind stays behind.
    constexpr double kFarBehind = 1.06;
    if (!placed.stages.empty() && placed.makespan_ms < kFarBehind * limits.below_ms)
      move_chunks(stages, shape, limits, placed);
    // What the rule places is no bound here.
    placed.bound_ms = 0;
    return placed;
  }
  // The nearer the limit, the fewer ways there are to fill a stage.
  for (const double beyond : {1.02, 1.1, 1.3}) {
    const double below_ms = beyond * limits.near_ms;
    if (limits.near_ms == 0 || below_ms >= limits.below_ms) break;
    PlacedPipeline placed = place_below(stages, shape, below_ms, limits);
    if (!placed.stages.empty()) return placed;
  }
  return place_below(stages, shape, limits.below_ms, limits);
}

}  // namespace weft
