#include "weft/exchange/target_limits.h"

#include <algorithm>

#include "weft/base/check.h"
#include "weft/exchange/mindspeed_mm.h"
#include "weft/exchange/targets.h"

namespace weft {
namespace {

template <typename Value>
bool contains(const std::vector<Value>& values, const Value& value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

}  // namespace

bool TargetLimits::has_schedule(std::string_view name) const {
  return contains(schedules, name);
}

bool TargetLimits::has_encoder_placement(ModulePlacement placement) const {
  return contains(encoder_placements, placement);
}

bool TargetLimits::has_encoder_form(EncoderForm form) const {
  return contains(encoder_forms, form);
}

const TargetLimits& megatron_limits() {
  static const TargetLimits kLimits{.schedules = {"1f1b", "interleaved_1f1b"},
                                    .allows_stages_side_by_side = true,
                                    .encoder_placements = {},
                                    .encoder_forms = {},
                                    .recompute = RecomputeForm::kSameEverywhere};
  return kLimits;
}

const TargetLimits& mindformers_limits() {
  static const TargetLimits kLimits{
      .schedules = {"1f1b", "interleaved_1f1b", "gpipe"}, .encoder_placements = {}, .encoder_forms = {}};
  return kLimits;
}

const TargetLimits& mindspeed_rl_limits() {
  static const TargetLimits kLimits{.schedules = {"1f1b", "interleaved_1f1b"},
                                    .most_zero = 1,
                                    .allows_stages_side_by_side = true,
                                    .encoder_placements = {},
                                    .encoder_forms = {},
                                    .recompute = RecomputeForm::kSameEverywhere};
  return kLimits;
}

const TargetLimits& torchtitan_limits() {
  static const TargetLimits kLimits{.schedules = {"1f1b", "interleaved_1f1b", "gpipe", "zb_v"},
                                    .encoder_placements = {},
                                    .encoder_forms = {},
                                    .recompute = RecomputeForm::kSameEverywhere};
  return kLimits;
}

const TargetLimits& mindspeed_search_limits() {
  static const TargetLimits kLimits{.schedules = {"1f1b"},
                                    .most_cp = 1,
                                    .most_ep = 1,
                                    .most_vpp = 1,
                                    .most_zero = 1,
                                    .encoder_placements = {ModulePlacement::kInline},
                                    .encoder_forms = {}};
  return kLimits;
}

const TargetLimits& mindspeed_pipeline_limits() {
  static const TargetLimits kLimits{.schedules = {"1f1b"},
                                    .most_ep = 1,
                                    .most_vpp = 1,
                                    .most_zero = 1,
                                    .encoder_placements = {ModulePlacement::kInline},
                                    .encoder_forms = {},
                                    .recompute = RecomputeForm::kSameEverywhere};
  return kLimits;
}

const TargetLimits& mindspeed_modules_limits() {
  static const TargetLimits kLimits{.schedules = {"1f1b"},
                                    .most_ep = 1,
                                    .most_vpp = 1,
                                    .most_zero = 1,
                                    .encoder_placements = {ModulePlacement::kColocated},
                                    .encoder_forms = {EncoderForm::kBefore, EncoderForm::kOnDemand},
                                    .recompute = RecomputeForm::kSameEverywhere};
  return kLimits;
}

std::vector<const TargetLimits*> limits_of(Target target) {
  switch (target) {
    case Target::kMegatron:
      return {&megatron_limits()};
    case Target::kMindspeedMm:
      return {&mindspeed_search_limits(), &mindspeed_pipeline_limits(), &mindspeed_modules_limits()};
    case Target::kMindformers:
      return {&mindformers_limits()};
    case Target::kMindspeedRl:
      return {&mindspeed_rl_limits()};
    case Target::kTorchtitan:
      return {&torchtitan_limits()};
  }
  WEFT_CHECK(false, "no such target");
}

const TargetLimits& limits_for(const Plan& plan, Target target) {
  if (target != Target::kMindspeedMm) return *limits_of(target).front();
  if (!is_one_pipeline(plan)) return mindspeed_modules_limits();
  return refused_by_mindspeed_search(plan) ? mindspeed_pipeline_limits() : mindspeed_search_limits();
}

bool can_express(const Plan& plan, Target target) {
  const bool has_strategy = std::any_of(plan.modules.begin(), plan.modules.end(),
                                        [](const ModulePlan& module) { return !module.strategy.is_empty(); });
  if (plan.model.numbers.program || has_strategy) return false;
  switch (target) {
    case Target::kMegatron:
      return export_megatron(plan).ok();
    case Target::kMindspeedMm:
      // The search's file wants a prediction, which is no setting.
      return (is_one_pipeline(plan) && !refused_by_mindspeed_search(plan)) || export_mindspeed_mm(plan).ok();
    case Target::kMindformers:
      return export_mindformers(plan).ok();
    case Target::kMindspeedRl:
      return export_mindspeed_rl(plan).ok();
    case Target::kTorchtitan:
      return export_torchtitan(plan).ok();
  }
  WEFT_CHECK(false, "no such target");
}

std::vector<Target> expressed_by(const Plan& plan) {
  std::vector<Target> targets;
  for (const Target target :
       {Target::kMegatron, Target::kMindspeedMm, Target::kMindformers, Target::kMindspeedRl, Target::kTorchtitan}) {
    if (can_express(plan, target)) targets.push_back(target);
  }
  return targets;
}

}  // namespace weft
