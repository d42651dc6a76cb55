#include "weft/search/polish_placement.h"

#include <algorithm>

#include "weft/meaning/stage_parts.h"

namespace weft {
namespace {

/// What is faster by less is not worth another placement.
constexpr double kLeastGain = 1e-5;

/// A change of one module's blocks on a stage, or between it and another.
struct Change {
  size_t module = 0;
  int32_t from = 0, to = 0;  ///< stages; equal where no block moves
  int64_t blocks = 0;        ///< that move
  int64_t full = 0;          ///< more of them recomputed whole
  int64_t attention = 0;     ///< more of them whose attention is
};

class Polisher {
 public:
  Polisher(PlanPricer& pricer, const FoundPlan& found, const RecomputeSpace& recompute)
      : pricer_(pricer), best_(found) {
    const int32_t stages = num_stages(best_.plan);
    if (stages == 1) return;
    for (size_t m = 0; m < best_.plan.modules.size(); ++m) {
      if (!best_.plan.modules[m].is_in_pipeline()) continue;
      for (int32_t stage = 0; stage < stages; ++stage) {
        for (const int64_t blocks : {1, 2}) {
          if (stage + 1 == stages) break;
          changes_.push_back({.module = m, .from = stage, .to = stage + 1, .blocks = blocks});
          changes_.push_back({.module = m, .from = stage + 1, .to = stage, .blocks = blocks});
        }
        for (const int64_t more : {-1, 1}) {
          if (recompute.allows_full) changes_.push_back({.module = m, .from = stage, .to = stage, .full = more});
          if (recompute.allows_selective)
            changes_.push_back({.module = m, .from = stage, .to = stage, .attention = more});
        }
      }
    }
  }

  FoundPlan run(const Deadline& deadline, int64_t most_priced) {
    if (changes_.empty()) return std::move(best_);
    std::optional<PlanPrice> price = pricer_.price(best_.plan);
    if (!price) return std::move(best_);
    const int64_t last = pricer_.num_priced() + most_priced;
    size_t next = 0;
    for (size_t in_vain = 0; in_vain < changes_.size(); ++in_vain) {
      if (pricer_.num_priced() >= last || deadline.is_over()) break;
      Plan plan = best_.plan;
      if (!apply(changes_[next++ % changes_.size()], plan)) continue;
      std::optional<PlanPrice> other = pricer_.price(plan, &*price, 1 - kLeastGain);
      if (!other) continue;
      price = std::move(other);
      best_.plan = std::move(plan);
      best_.step_time_ms = price->step_ms;
      best_.steps_ms = price->steps_ms;
      in_vain = 0;
    }
    return std::move(best_);
  }

 private:
  static bool apply(const Change& change, Plan& plan) {
    ModulePlan& module = plan.modules[change.module];
    if (module.recompute.empty()) {
      for (const auto& row : module.layers) module.recompute.emplace_back(row.size());
    }
    const auto change_stage = [&](int32_t stage, int64_t blocks, int64_t full, int64_t attention) {
      const StagePlace place = place_of_stage(plan, stage);
      const auto rank = static_cast<size_t>(place.rank), chunk = static_cast<size_t>(place.chunk);
      const auto runs = module.recompute_of(rank, chunk);
      int64_t& count = module.layers[rank][chunk];
      count += blocks;
      RecomputeCounts counts{.full = count_of(runs, BlockRecompute::kFull) + full,
                             .selective = count_of(runs, BlockRecompute::kAttention) + attention};
      if (count < 0 || counts.full < 0 || counts.selective < 0) return false;
      if (full > 0 || attention > 0) {
        if (counts.full + counts.selective > count) return false;
      }
      counts.full = std::min(counts.full, count);
      counts.selective = std::min(counts.selective, count - counts.full);
      module.recompute[rank][chunk] = counts;
      return true;
    };
    if (change.from == change.to) return change_stage(change.from, 0, change.full, change.attention);
    return change_stage(change.from, -change.blocks, 0, 0) && change_stage(change.to, change.blocks, 0, 0);
  }

  PlanPricer& pricer_;
  FoundPlan best_;
  std::vector<Change> changes_;
};

}  // namespace

FoundPlan polish_placement(PlanPricer& pricer, const FoundPlan& found, const RecomputeSpace& recompute,
                           const Deadline& deadline, int64_t most_priced) {
  return Polisher(pricer, found, recompute).run(deadline, most_priced);
}

}  // namespace weft
