#pragma once

#include <map>
#include <optional>

#include "weft/validate/run_comparison.h"

namespace weft {

/// What a run taught.
struct LearnedProfile {
  Profile profile;
  /// By what the times of a module's blocks were multiplied.
  struct Factors {
    double forward = 1;
    double backward = 1;
  };
  std::map<ModuleKind, Factors> modules;
  double updates = 1;
  std::optional<double> links;  ///< nothing where the run says nothing of them
  Compared before;              ///< the step, with the profile as it was
  Compared after;
};

/// A profile whose prediction of a run's actions fits what they took: times of blocks are scaled, a module's alike, and
/// so are updates and links; what a step has besides is taken from the run. Without a profile, formulas are scaled.
/// The plan must be legal and the one that ran.
Result<LearnedProfile> learn_from_run(const Plan& plan, const RunRecord& record, const Profile* known = nullptr);

/// What formulas say of the blocks that a plan asks for, as a profile.
Result<Profile> profile_of_formulas(const Plan& plan);

}  // namespace weft
