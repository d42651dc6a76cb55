#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "weft/exchange/export.h"

namespace weft {

/// How settings name the blocks that are recomputed.
enum class RecomputeForm {
  kByStage,         ///< whole blocks, the first ones of a stage, a number for each stage
  kSameEverywhere,  ///< one number of whole blocks for all stages, or the attention of all blocks
};

/// What one kind of settings of a target can say, value by value. Exports refuse what lies outside, and a search for a
/// target leaves it out. What several values must have in common is judged on whole plans, by can_express.
struct TargetLimits {
  std::vector<std::string_view> schedules;
  int64_t most_cp = INT64_MAX;
  int64_t most_ep = INT64_MAX;
  int64_t most_vpp = INT64_MAX;
  int64_t most_zero = 3;
  bool allows_stages_side_by_side = false;          ///< [tp, cp, pp, dp] beside [tp, cp, dp, pp]
  std::vector<ModulePlacement> encoder_placements;  ///< none: only models without encoders
  std::vector<EncoderForm> encoder_forms;           ///< of encoders beside the pipeline
  bool allows_recompute_from_inputs = false;        ///< of encoders beside the pipeline
  RecomputeForm recompute = RecomputeForm::kByStage;

  bool has_schedule(std::string_view name) const;
  bool has_encoder_placement(ModulePlacement placement) const;
  bool has_encoder_form(EncoderForm form) const;
};

const TargetLimits& megatron_limits();
const TargetLimits& mindformers_limits();
const TargetLimits& mindspeed_rl_limits();
const TargetLimits& torchtitan_limits();
/// Of a search result: one pipeline of all modules.
const TargetLimits& mindspeed_search_limits();
/// Of model.json and arguments: one pipeline of all modules, with what the search result has no place for.
const TargetLimits& mindspeed_pipeline_limits();
/// Of model.json and arguments: modules with degrees of their own.
const TargetLimits& mindspeed_modules_limits();

/// One for each kind of settings that a target has.
std::vector<const TargetLimits*> limits_of(Target target);
/// Of those, the one that a plan would be written with.
const TargetLimits& limits_for(const Plan& plan, Target target);

/// Whether export_plan would write a plan that is legal, once it has a prediction.
bool can_express(const Plan& plan, Target target);
/// The targets that can express it.
std::vector<Target> expressed_by(const Plan& plan);

}  // namespace weft
