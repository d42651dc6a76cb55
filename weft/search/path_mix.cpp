#include "weft/search/path_mix.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace weft {
namespace {

/// Where in its rank's row a stage begins and ends, and what lies between.
struct StageSpan {
  size_t first = 0;  ///< its first F
  size_t last = 0;   ///< its last gradient
};

}  // namespace

std::vector<CriticalPath> plain_paths(const Schedule& schedule) {
  const auto stages = static_cast<size_t>(schedule.num_stages());
  const bool has_end = !schedule.rows.front().empty() && schedule.rows.front().back().kind == ActionKind::kUpdate;
  std::vector<CriticalPath> paths;
  for (size_t stage = 0; stage < stages; ++stage) {
    CriticalPath& path = paths.emplace_back();
    path.visits.resize(stages);
    const auto& row = schedule.rows[static_cast<size_t>(schedule.rank_of_stage[stage])];
    StageSpan span;
    bool has_begun = false;
    for (size_t i = 0; i < row.size(); ++i) {
      if (row[i].stage != static_cast<int32_t>(stage) || !is_pipeline_compute(row[i].kind)) continue;
      if (!has_begun) span.first = i;
      has_begun = true;
      if (makes_gradient(row[i].kind)) span.last = i;
    }
    for (size_t i = span.first; i <= span.last; ++i) {
      if (is_pipeline_compute(row[i].kind)) ++path.visits[static_cast<size_t>(row[i].stage)][work_of(row[i].kind)];
    }
    for (size_t before = 0; before < stage; ++before) {
      ++path.visits[before][kForwardWork];
      ++path.visits[before][kInputWork];
      if (schedule.crosses_ranks(static_cast<int32_t>(before))) path.visits[before][kTransferWork] += 2;
    }
    if (has_end) path.visits[0][kReduceWork] = path.visits[0][kUpdateWork] = 1;
  }
  return paths;
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

double least_makespan_ms(const Schedule& schedule, ScheduleGraph& graph, const PathMix& mix,
                         std::span<const FreeWork> works, const StageTimes& every_stage) {
  const size_t stages = mix.size();
  StageTimes even = every_stage;
  for (const FreeWork& work : works) {
    for (size_t w = 0; w < kNumWorks; ++w) even[w] += work.shares[w] * work.ms / static_cast<double>(stages);
  }
  graph.makespan_ms(std::vector<StageTimes>(stages, even));
  const CriticalPath path = graph.critical_path();
  const PathMix longest = mix_of(std::span(&path, 1));
  const auto value = [&](double share) {
    PathMix both = mix;
    for (size_t stage = 0; stage < stages; ++stage) {
      for (size_t w = 0; w < kNumWorks; ++w) both[stage][w] += share * (longest[stage][w] - mix[stage][w]);
    }
    return least_makespan_ms(schedule, both, works, every_stage);
  };
  // Concave in the share: bounds of mixes are minima of linear functions.
  double low = 0, high = 1, best = value(0);
  constexpr int kRounds = 8;
  for (int round = 0; round < kRounds; ++round) {
    const double a = low + (high - low) * 0.382, b = low + (high - low) * 0.618;
    const double at_a = value(a), at_b = value(b);
    best = std::max({best, at_a, at_b});
    (at_a < at_b ? low : high) = at_a < at_b ? a : b;
  }
  return best;
}

}  // namespace weft
