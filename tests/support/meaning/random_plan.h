#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weft/plan/plan.h"

// Legal plans of all kinds, for tests of whatever reads plans.

namespace weft {

/// What may be drawn. Tests leave out what they cannot judge.
struct RandomPlanSpace {
  int64_t world_size = 8;
  std::vector<ModulePlacement> placements = {ModulePlacement::kInline, ModulePlacement::kColocated,
                                             ModulePlacement::kDisjoint, ModulePlacement::kPartial};
  std::vector<EncoderForm> forms = {EncoderForm::kBefore, EncoderForm::kFill,
                                    EncoderForm::kOnDemand};  ///< on the llm's ranks
  std::vector<std::string> schedules = {"gpipe", "1f1b", "interleaved_1f1b", "zb_h1", "zb_v", "explicit"};
  std::vector<int64_t> zeros = {0, 1, 2, 3};
  int64_t most_cp = 8;
  int64_t most_mbs = 2;
  int64_t most_microbatches = 6;
  int64_t most_scale = 4;
  bool allows_fractions = true;  ///< of mbs, as macro batches
  bool allows_ep = true;
  bool allows_recompute = true;
  bool allows_frozen = true;
  bool allows_rules = true;  ///< about single weights
  bool allows_balance = true;
  bool allows_empty_stages = true;  ///< pipeline stages without a block
  bool allows_any_axis_order = true;
};

/// A plan for a model on a made-up cluster and workload that check_plan accepts. The same seed gives the same plan. The
/// model must have something to draw: an llm, and placements for its encoders if it has any.
Plan random_plan(const Model& model, uint64_t seed, const RandomPlanSpace& space = {});

/// A plan's settings in one line, letters and digits only: "llm_tp2sp_cp2u1_pp2x1_dp1_...". For names of tests.
std::string settings_text(const Plan& plan);

}  // namespace weft
