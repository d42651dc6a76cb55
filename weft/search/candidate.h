#pragma once

#include <string>
#include <vector>

#include "weft/plan/plan.h"
#include "weft/schedule/generators.h"

namespace weft {

/// How the encoders of a candidate are run; all of them alike.
struct EncoderChoice {
  bool is_inline = true;
  int64_t tp = 1;
  int64_t mbs_scale = 1;
  EncoderForm form = EncoderForm::kBefore;
  bool recompute_from_inputs = false;
};

/// A plan without its layer placement and recomputation.
struct Candidate {
  int64_t tp = 1, cp = 1, cp_ulysses = 1, ep = 1, pp = 1, vpp = 1, dp = 1;
  int64_t mbs = 1;
  int64_t zero = 0;
  bool sequence_parallel = false;
  bool stages_are_neighbours = false;  ///< pp inside dp, instead of dp inside pp
  ScheduleName schedule = ScheduleName::k1f1b;
  EncoderChoice encoders;

  int64_t microbatches(int64_t global_batch) const { return global_batch / (mbs * dp); }
  /// "tp 8, pp 4, dp 2, mbs 1, zero 1, sequence parallel, 1f1b, encoders inline".
  std::string text(bool has_encoders) const;
};

/// What candidates share: model, cluster, workload, and everything that is not searched.
Plan plan_without_settings(Model model, Cluster cluster, Workload workload);

/// The candidate as a plan, with layers spread evenly and nothing recomputed. `plan` is plan_without_settings', or was
/// filled before.
void fill_plan(const Candidate& candidate, Plan& plan);

}  // namespace weft
