#pragma once

#include <string>
#include <vector>

#include "weft/profile/profile.h"
#include "weft/search/explain_plan.h"

namespace weft {

/// One step on the way from a plan to another.
struct PlanChange {
  std::string words;                  ///< "zero 1 -> 0", "tp 8 -> 2, dp 1 -> 4"
  double saved_ms = 0;                ///< of the step; negative where it takes longer
  bool fits = true;                   ///< in memory, with this change and all before it
  std::vector<PartDifference> parts;  ///< of what is saved, as what takes longer before; they add up
};

/// From one plan to another of the same model, cluster and batch, change by change: settings that can change alone do
/// so, and what can only change together is one change. Every plan on the way is legal; what the changes save adds up
/// to the difference of the two steps. Batches are those of `to`.
Result<std::vector<PlanChange>> changes_between(const Plan& from, const Plan& to, const Profile* profile = nullptr);

}  // namespace weft
