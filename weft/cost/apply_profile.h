#pragma once

#include <string>
#include <vector>

#include "weft/cost/measured_links.h"
#include "weft/plan/plan.h"

namespace weft {

/// What of a machine a profile measured besides blocks.
struct MachineSource {
  std::vector<LinkSource> links;
  int64_t update_points = 0;
  double update_error_percent = 0;  ///< what the line through the updates misses at most
  bool has_action = false;
  bool has_step = false;
  bool has_reserved = false;
  bool has_memory = false;  ///< bytes of every block of the model, so that nothing is added for the allocator
  std::vector<std::string> warnings;
};

/// Puts what a profile says of the machine into the plan's cluster, for as long as the plan is priced: links, updates
/// of the optimizer (so much a step and so much an element), the executor's own time, and what the device has reserved.
/// The cluster file's figures stay where nothing was measured.
MachineSource apply_profile(const Profile& profile, Plan& plan);

}  // namespace weft
