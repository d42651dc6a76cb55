#include "weft/search/chunk_placer.h"

#include <algorithm>

namespace weft {

ChunkPlacer::ChunkPlacer(StageSource& source, const SolverShape& shape, std::span<const double> memory_gib)
    : source_(source), shape_(shape), memory_gib_(memory_gib) {
  for (size_t rank = 0; rank < shape.moments.size(); ++rank)
    stages_of_rank_.push_back(stages_of_rank(shape.schedule, static_cast<int32_t>(rank)));
}

double ChunkPlacer::excess_gib(size_t rank, const std::vector<StageOption>& options) const {
  if (memory_gib_.empty()) return 0;
  double most = 0;
  const std::vector<int32_t>& stages = stages_of_rank_[rank];
  for (const MemoryMoment& moment : shape_.moments[rank]) {
    double gib = 0;
    for (size_t chunk = 0; chunk < stages.size(); ++chunk) {
      const StageFigures& figures = options[static_cast<size_t>(stages[chunk])].figures;
      gib += moment.held[chunk] * figures[kActivationGib] + moment.deferred[chunk] * figures[kDeferredGib] +
             figures[kStaticGib] + (moment.runs == static_cast<int32_t>(chunk) ? figures[kWorkspaceGib] : 0);
    }
    most = std::max(most, gib);
  }
  return std::max(0.0, most - memory_gib_[rank]);
}

bool ChunkPlacer::fit_rank(size_t rank, std::vector<StageOption>& options) {
  double excess = excess_gib(rank, options);
  while (excess > 0) {
    double best_rate = 0;
    StageOption best;
    size_t best_stage = 0;
    for (const int32_t s : stages_of_rank_[rank]) {
      const auto stage = static_cast<size_t>(s);
      const StageOption now = options[stage];
      scratch_.clear();
      source_.list(s, now.first, now.count, scratch_);
      // The first recomputed layer brings its workspace, so that more of them may be needed to save anything.
      for (size_t more = static_cast<size_t>(now.choice) + 1; more < scratch_.size(); ++more) {
        options[stage] = scratch_[more];
        const double left = excess_gib(rank, options);
        const double rate = (excess - left) / std::max(options[stage].total_ms() - now.total_ms(), 1e-12);
        if (rate > best_rate * (1 + 1e-12)) {
          best_rate = rate;
          best = options[stage];
          best_stage = stage;
        }
        if (left < excess) break;
      }
      options[stage] = now;
    }
    if (best_rate <= 0) return false;
    options[best_stage] = best;
    excess = excess_gib(rank, options);
  }
  return true;
}

std::vector<int32_t> ChunkPlacer::counts(int32_t fewer) const {
  const int32_t stages = source_.num_stages();
  const int32_t spread = source_.num_blocks() + fewer;
  const int32_t each = spread / stages, extras = spread % stages;
  std::vector<int32_t> counts(static_cast<size_t>(stages), each);
  const auto num_ranks = static_cast<int32_t>(stages_of_rank_.size());
  for (int32_t i = 0; i < extras; ++i) {
    const std::vector<int32_t>& own = stages_of_rank_[static_cast<size_t>(i % num_ranks)];
    ++counts[static_cast<size_t>(own[own.size() - 1 - static_cast<size_t>(i / num_ranks)])];
  }
  counts.back() -= fewer;
  if (*std::min_element(counts.begin(), counts.end()) < 1) counts.clear();
  return counts;
}

std::vector<StageOption> ChunkPlacer::place(const std::vector<int32_t>& counts) {
  std::vector<StageOption> options;
  int32_t first = 0;
  for (int32_t stage = 0; stage < source_.num_stages(); ++stage) {
    scratch_.clear();
    source_.list(stage, first, counts[static_cast<size_t>(stage)], scratch_);
    if (scratch_.empty()) return {};
    options.push_back(scratch_.front());
    first += counts[static_cast<size_t>(stage)];
  }
  for (size_t rank = 0; rank < stages_of_rank_.size(); ++rank) {
    if (!fit_rank(rank, options)) return {};
  }
  return options;
}

}  // namespace weft
