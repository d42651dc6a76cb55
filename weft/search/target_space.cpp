#include "weft/search/target_space.h"

#include <algorithm>

#include <fmt/format.h>

#include "weft/base/text.h"
#include "weft/exchange/target_limits.h"

namespace weft {
namespace {

/// What any of a target's kinds of settings can say.
class AnyLimits {
 public:
  explicit AnyLimits(Target target) : limits_(limits_of(target)) {}

  template <typename Judge>
  bool any(Judge judge) const {
    return std::any_of(limits_.begin(), limits_.end(), [&](const TargetLimits* limits) { return judge(*limits); });
  }
  int64_t most(int64_t TargetLimits::*field) const {
    int64_t most = 0;
    for (const TargetLimits* limits : limits_) most = std::max(most, limits->*field);
    return most;
  }
  bool has_placement(ModulePlacement placement) const {
    return any([&](const TargetLimits& limits) { return limits.has_encoder_placement(placement); });
  }
  bool has_form(EncoderForm form) const {
    return any([&](const TargetLimits& limits) { return limits.has_encoder_form(form); });
  }

 private:
  std::vector<const TargetLimits*> limits_;
};

void narrow(const AnyLimits& limits, EncoderSpace& encoder) {
  encoder.allows_inline &= limits.has_placement(ModulePlacement::kInline);
  encoder.allows_colocated &= limits.has_placement(ModulePlacement::kColocated);
  encoder.allows_disjoint &= limits.has_placement(ModulePlacement::kDisjoint);
  encoder.allows_partial &= limits.has_placement(ModulePlacement::kPartial);
  // A system that runs encoders before each microbatch shares one out among all of their ranks.
  const bool is_free = encoder.allows_before && encoder.allows_fill && encoder.mbs_parts == EncoderSpace{}.mbs_parts;
  if (is_free && limits.has_form(EncoderForm::kOnDemand)) {
    encoder.allows_on_demand = true;
    encoder.mbs_parts = {.values = {1, 2, 4, 8}};
  }
  encoder.allows_before &= limits.has_form(EncoderForm::kBefore);
  encoder.allows_fill &= limits.has_form(EncoderForm::kFill);
  encoder.allows_on_demand &= limits.has_form(EncoderForm::kOnDemand);
  if (!limits.any([](const TargetLimits& l) { return l.allows_recompute_from_inputs; }))
    encoder.recompute_from_inputs = false;
}

bool is_empty(const EncoderSpace& encoder) {
  const bool has_beside =
      encoder.allows_colocated && (encoder.allows_before || encoder.allows_fill || encoder.allows_on_demand);
  return !encoder.allows_inline && !has_beside && !encoder.allows_disjoint && !encoder.allows_partial;
}

Error nothing_left(Target target, std::string problem, std::string advice) {
  return {.source = "--for",
          .problem = fmt::format("{} {}", name_of(target), std::move(problem)),
          .advice = std::move(advice)};
}

}  // namespace

Result<PlanSpace> space_for(Target target, const PlanSpace& space, const Model& model) {
  if (auto error = find_unreadable(model)) return *std::move(error);
  const AnyLimits limits(target);
  PlanSpace narrowed = space;
  narrowed.target = target;
  std::erase_if(narrowed.schedules, [&](ScheduleName schedule) {
    return !limits.any([&](const TargetLimits& l) { return l.has_schedule(name_of(schedule)); });
  });
  if (narrowed.schedules.empty())
    return nothing_left(target, "runs none of the schedules that the search file allows",
                        "Allow 1f1b in it, or leave schedule out.");
  const auto bound = [&](Allowed& allowed, int64_t most) { allowed.at_most = std::min(allowed.at_most, most); };
  bound(narrowed.cp, limits.most(&TargetLimits::most_cp));
  bound(narrowed.ep, limits.most(&TargetLimits::most_ep));
  bound(narrowed.vpp, limits.most(&TargetLimits::most_vpp));
  bound(narrowed.zero, limits.most(&TargetLimits::most_zero));
  if (!limits.any([](const TargetLimits& l) { return l.allows_stages_side_by_side; })) {
    if (space.stages_are_neighbours.value_or(false))
      return nothing_left(target, "has no setting for llm.stages_are_neighbours, which the search file pins",
                          "Leave it out of the search file.");
    narrowed.stages_are_neighbours = false;
  }
  // Other systems deal samples out in their order.
  narrowed.balances = {Balance::kNone};
  if (std::find(space.balances.begin(), space.balances.end(), Balance::kNone) == space.balances.end())
    return nothing_left(target, "has no setting that reassigns samples, which the search file asks for",
                        "Allow none under balance in it, or leave balance out.");
  for (const Module& module : model.modules) {
    if (module.kind == ModuleKind::kLlm) continue;
    EncoderSpace& encoder = narrowed.encoders.at(module.kind);
    const bool had_any = !is_empty(encoder);
    narrow(limits, encoder);
    if (!had_any || !is_empty(encoder)) continue;
    const bool has_encoders = limits.has_placement(ModulePlacement::kInline);
    if (has_encoders)
      return nothing_left(target, fmt::format("has no setting for how the search file places {}", name_of(module.kind)),
                          "Allow the placement inline or colocated.");
    return nothing_left(target,
                        fmt::format("cannot express {}: its settings are for one chain of layers, without {}",
                                    printable(model.name), name_of(module.kind)),
                        "Use mindspeed-mm, which has settings for encoders.");
  }
  return narrowed;
}

}  // namespace weft
