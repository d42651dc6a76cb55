#include "weft/search/chunk_placer.h"

#include <algorithm>
#include <cmath>

namespace weft {

ChunkPlacer::ChunkPlacer(StageSource& source, const SolverShape& shape, std::span<const double> memory_gib)
    : source_(source), shape_(shape), memory_gib_(memory_gib) {
  for (size_t rank = 0; rank < shape.moments.size(); ++rank)
    stages_of_rank_.push_back(stages_of_rank(shape.schedule, static_cast<int32_t>(rank)));
}

bool ChunkPlacer::State::is_better_than(const State& other) const {
  constexpr double kHair = 1e-12;
  if (excess_gib != other.excess_gib) return excess_gib < other.excess_gib;
  if (std::abs(busiest_ms - other.busiest_ms) > kHair * busiest_ms) return busiest_ms < other.busiest_ms;
  return unevenness < other.unevenness * (1 - kHair);
}

/// Every stage up to its share of all work, as near as blocks allow.
std::vector<int32_t> ChunkPlacer::first_counts() {
  const int32_t stages = source_.num_stages(), blocks = source_.num_blocks();
  std::vector<double> until(static_cast<size_t>(blocks) + 1, 0);
  for (int32_t block = 0; block < blocks; ++block) {
    // Alone on a middle stage, so that embedding and head do not count for their neighbours.
    scratch_.clear();
    source_.list(std::min(1, stages - 1), block, 1, scratch_);
    until[static_cast<size_t>(block) + 1] =
        until[static_cast<size_t>(block)] + (scratch_.empty() ? 1 : scratch_.front().total_ms());
  }
  std::vector<int32_t> counts;
  int32_t begin = 0;
  for (int32_t stage = 0; stage < stages; ++stage) {
    const double target = until.back() * (stage + 1) / stages;
    int32_t end = begin + 1;
    const int32_t most = blocks - (stages - stage - 1);
    while (end < most && (stage + 1 == stages || until[static_cast<size_t>(end) + 1] <= target * (1 + 1e-9))) ++end;
    counts.push_back(end - begin);
    begin = end;
  }
  return counts;
}

double ChunkPlacer::excess_gib(size_t rank, const State& state) const {
  if (memory_gib_.empty()) return 0;
  double most = 0;
  const std::vector<int32_t>& stages = stages_of_rank_[rank];
  for (const MemoryMoment& moment : shape_.moments[rank]) {
    double gib = 0;
    for (size_t chunk = 0; chunk < stages.size(); ++chunk) {
      const StageFigures& figures = state.options[static_cast<size_t>(stages[chunk])].figures;
      gib += moment.held[chunk] * figures[kActivationGib] + moment.deferred[chunk] * figures[kDeferredGib] +
             figures[kStaticGib] + (moment.runs == static_cast<int32_t>(chunk) ? figures[kWorkspaceGib] : 0);
    }
    most = std::max(most, gib);
  }
  return std::max(0.0, most - memory_gib_[rank]);
}

/// Lets the rank's chunks recompute until they fit, the cheapest saving first. Returns what is still too much.
double ChunkPlacer::fit_rank(size_t rank, State& state) {
  double excess = excess_gib(rank, state);
  while (excess > 0) {
    double best_rate = 0;
    size_t best_stage = 0;
    StageOption best_option;
    for (const int32_t s : stages_of_rank_[rank]) {
      const auto stage = static_cast<size_t>(s);
      const StageOption now = state.options[stage];
      scratch_.clear();
      source_.list(s, now.first, now.count, scratch_);
      if (static_cast<size_t>(now.choice) + 1 >= scratch_.size()) continue;
      state.options[stage] = scratch_[static_cast<size_t>(now.choice) + 1];
      const double saved = excess - excess_gib(rank, state);
      const double added = state.options[stage].total_ms() - now.total_ms();
      const double rate = saved / std::max(added, 1e-12);
      if (rate > best_rate) {
        best_rate = rate;
        best_stage = stage;
        best_option = state.options[stage];
      }
      state.options[stage] = now;
    }
    if (best_rate <= 0) return excess;
    state.options[best_stage] = best_option;
    excess = excess_gib(rank, state);
  }
  return 0;
}

void ChunkPlacer::rate(State& state) {
  state.options.clear();
  state.excess_gib = state.busiest_ms = state.unevenness = 0;
  int32_t first = 0;
  for (size_t stage = 0; stage < state.counts.size(); ++stage) {
    scratch_.clear();
    source_.list(static_cast<int32_t>(stage), first, state.counts[stage], scratch_);
    if (scratch_.empty()) {
      state.excess_gib = std::numeric_limits<double>::infinity();
      return;
    }
    state.options.push_back(scratch_.front());
    first += state.counts[stage];
  }
  for (size_t rank = 0; rank < stages_of_rank_.size(); ++rank) {
    state.excess_gib += fit_rank(rank, state);
    double load = 0;
    for (const int32_t stage : stages_of_rank_[rank]) load += state.options[static_cast<size_t>(stage)].total_ms();
    state.unevenness += load * load;
    if (load <= state.busiest_ms) continue;
    state.busiest_ms = load;
    state.busiest = rank;
  }
}

const std::vector<StageOption>& ChunkPlacer::place() {
  constexpr int kMostRounds = 64;
  best_ = {.counts = first_counts()};
  rate(best_);
  const size_t stages = best_.counts.size();
  for (int round = 0; round < kMostRounds; ++round) {
    const State start = best_;
    const bool has_busiest = start.excess_gib < std::numeric_limits<double>::infinity();
    for (size_t from = 0; from < stages; ++from) {
      const bool is_busiest = static_cast<size_t>(shape_.schedule.rank_of_stage[from]) == start.busiest;
      if (start.counts[from] == 1 || (has_busiest && start.excess_gib == 0 && !is_busiest)) continue;
      for (size_t to = 0; to < stages; ++to) {
        if (to == from) continue;
        State moved{.counts = start.counts};
        --moved.counts[from];
        ++moved.counts[to];
        rate(moved);
        if (moved.is_better_than(best_)) best_ = std::move(moved);
      }
    }
    if (!best_.is_better_than(start)) break;
  }
  if (best_.excess_gib > 0) best_.options.clear();
  return best_.options;
}

}  // namespace weft
