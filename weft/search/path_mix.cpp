#include "weft/search/path_mix.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace weft {
namespace {

bool has_step_end(const Schedule& schedule) {
  return !schedule.rows.front().empty() && schedule.rows.front().back().kind == ActionKind::kUpdate;
}

/// Adds all that a stage's rank does from the stage's first F to its last gradient to visits by stage and work.
template <typename Visits>
void add_span(const Schedule& schedule, size_t stage, Visits& visits) {
  const auto& row = schedule.rows[static_cast<size_t>(schedule.rank_of_stage[stage])];
  size_t first = 0, last = 0;
  bool has_begun = false;
  for (size_t i = 0; i < row.size(); ++i) {
    if (row[i].stage != static_cast<int32_t>(stage) || !is_pipeline_compute(row[i].kind)) continue;
    if (!has_begun) first = i;
    has_begun = true;
    if (makes_gradient(row[i].kind)) last = i;
  }
  for (size_t i = first; i <= last; ++i) {
    if (is_pipeline_compute(row[i].kind)) ++visits[static_cast<size_t>(row[i].stage)][work_of(row[i].kind)];
  }
}

/// Adds so many ways down through a stage and back up.
template <typename Visits>
void add_ways(const Schedule& schedule, size_t stage, int32_t ways, Visits& visits) {
  if (ways == 0) return;  // nothing goes on from the last stage
  visits[stage][kForwardWork] += ways;
  visits[stage][kInputWork] += ways;
  if (schedule.crosses_ranks(static_cast<int32_t>(stage))) visits[stage][kTransferWork] += 2 * ways;
}

}  // namespace

std::vector<CriticalPath> plain_paths(const Schedule& schedule) {
  const auto stages = static_cast<size_t>(schedule.num_stages());
  std::vector<CriticalPath> paths;
  for (size_t stage = 0; stage < stages; ++stage) {
    CriticalPath& path = paths.emplace_back();
    path.visits.resize(stages);
    add_span(schedule, stage, path.visits);
    for (size_t before = 0; before < stage; ++before) add_ways(schedule, before, 1, path.visits);
    if (has_step_end(schedule)) path.visits[0][kReduceWork] = path.visits[0][kUpdateWork] = 1;
  }
  return paths;
}

PathMix plain_mix(const Schedule& schedule) {
  const auto stages = static_cast<size_t>(schedule.num_stages());
  PathMix mix(stages, StageTimes{});
  for (size_t stage = 0; stage < stages; ++stage) {
    add_span(schedule, stage, mix);
    add_ways(schedule, stage, static_cast<int32_t>(stages - stage - 1), mix);
  }
  for (StageTimes& weights : mix) {
    for (double& weight : weights) weight /= static_cast<double>(stages);
  }
  if (has_step_end(schedule)) mix[0][kReduceWork] = mix[0][kUpdateWork] = 1;
  return mix;
}

PathMix mix_of(std::span<const CriticalPath> paths) {
  PathMix mix(paths.front().visits.size(), StageTimes{});
  for (const CriticalPath& path : paths) {
    for (size_t stage = 0; stage < mix.size(); ++stage) {
      for (size_t work = 0; work < kNumWorks; ++work)
        mix[stage][work] += path.visits[stage][work] / static_cast<double>(paths.size());
    }
  }
  return mix;
}

double least_makespan_ms(const Schedule& schedule, const PathMix& mix, std::span<const FreeWork> works,
                         const StageTimes& every_stage) {
  // What a millisecond costs on each rank: the least of its chunks and of the works.
  const auto num_ranks =
      static_cast<size_t>(*std::max_element(schedule.rank_of_stage.begin(), schedule.rank_of_stage.end())) + 1;
  std::vector<double> price(num_ranks, std::numeric_limits<double>::infinity());
  double total_ms = 0, fixed_ms = 0;
  for (const StageTimes& weights : mix) {
    for (size_t w = 0; w < kNumWorks; ++w) fixed_ms += weights[w] * every_stage[w];
  }
  for (const FreeWork& work : works) {
    total_ms += work.ms;
    if (work.ms <= 0) continue;
    for (size_t stage = 0; stage < mix.size(); ++stage) {
      double ms = 0;
      for (size_t w = 0; w < kNumWorks; ++w) ms += mix[stage][w] * work.shares[w];
      double& of_rank = price[static_cast<size_t>(schedule.rank_of_stage[stage])];
      of_rank = std::min(of_rank, ms);
    }
  }
  if (total_ms <= 0) return 0;
  std::sort(price.begin(), price.end());
  const double microbatches = schedule.num_microbatches;
  const double host_ms = (every_stage[kForwardWork] + every_stage[kInputWork] + every_stage[kWeightWork]) *
                         static_cast<double>(mix.size()) / static_cast<double>(num_ranks);
  // No rank works longer than the makespan; within that, work goes where the mix meets it least.
  const auto cost_ms = [&](double makespan_ms) {
    double left = total_ms, cost = fixed_ms;
    for (const double of_rank : price) {
      const double taken = std::min(left, std::max(0.0, makespan_ms / microbatches - host_ms));
      cost += taken * of_rank;
      left -= taken;
    }
    return left > 1e-12 * total_ms ? std::numeric_limits<double>::infinity() : cost;
  };
  double low = microbatches * (total_ms / static_cast<double>(num_ranks) + host_ms), high = low;
  while (cost_ms(high) > high) high *= 1.25;
  while (high - low > 1e-4 * high) {
    const double middle = (low + high) / 2;
    (cost_ms(middle) > middle ? low : high) = middle;
  }
  return low;
}

MixBound best_mix(const Schedule& schedule, ScheduleGraph& graph, const PathMix& mix, std::span<const FreeWork> works,
                  const StageTimes& every_stage) {
  const size_t stages = mix.size();
  StageTimes even = every_stage;
  for (const FreeWork& work : works) {
    for (size_t w = 0; w < kNumWorks; ++w) even[w] += work.shares[w] * work.ms / static_cast<double>(stages);
  }
  graph.makespan_ms(std::vector<StageTimes>(stages, even));
  const CriticalPath path = graph.critical_path();
  const PathMix longest = mix_of(std::span(&path, 1));
  MixBound best;
  const auto value = [&](double share) {
    PathMix both = mix;
    for (size_t stage = 0; stage < stages; ++stage) {
      for (size_t w = 0; w < kNumWorks; ++w) both[stage][w] += share * (longest[stage][w] - mix[stage][w]);
    }
    const double ms = least_makespan_ms(schedule, both, works, every_stage);
    if (ms > best.ms || best.mix.empty()) best = {.ms = ms, .mix = std::move(both)};
    return ms;
  };
  // Concave in the share: bounds of mixes are minima of linear functions.
  double low = 0, high = 1;
  value(0);
  constexpr int kRounds = 8;
  for (int round = 0; round < kRounds; ++round) {
    const double a = low + (high - low) * 0.382, b = low + (high - low) * 0.618;
    const double at_a = value(a), at_b = value(b);
    (at_a < at_b ? low : high) = at_a < at_b ? a : b;
  }
  return best;
}

}  // namespace weft
