#include "weft/search/plan_beside.h"

#include <algorithm>
#include <cmath>

#include "weft/base/units.h"
#include "weft/meaning/macro_batch.h"
#include "weft/meaning/stage_parts.h"
#include "weft/meaning/trainable.h"
#include "weft/simulate/plan_simulator.h"

namespace weft {

double EncoderWork::last_backward_ms() const {
  const double share = macros - (std::ceil(macros) - 1);
  return backward_ms * share;
}

EncoderWork work_of(const Plan& plan, const PlanCosts::Encoder& encoder, LastMacro last) {
  const ModulePlan& module = plan.modules[static_cast<size_t>(encoder.module)];
  const StageCost& stage = encoder.stages.front();
  const bool is_trained = trains(plan, module.kind);
  const bool keeps = is_trained && !module.recompute_from_inputs;
  EncoderWork work{.forward_ms = stage.forward_ms(), .bridge_ms = encoder.bridge_ms};
  work.macros = num_macro_batches(plan, module);
  if (last == LastMacro::kFullShares) work.macros = std::ceil(work.macros) - 1 + last_macro_share(plan, module);
  if (is_trained) {
    work.backward_ms = stage.backward_input_ms() + stage.backward_weight_ms();
    if (module.recompute_from_inputs) work.backward_ms += work.forward_ms;
  }
  work.tail_ms = stage.reduce_ms + stage.update_ms;
  const double outputs = (is_trained ? 2 : 1) * encoder.output_bytes;
  const double allocator_factor = plan.cluster.measured.allocator_factor();
  work.static_gib = (stage.state.total() + allocator_factor * stage.buffer_bytes()) / kGiB;
  work.held_gib = allocator_factor * (outputs + (keeps ? stage.activation_bytes : 0)) / kGiB;
  const double moment = stage.workspace_bytes + stage.passing_bytes + (keeps ? 0 : stage.activation_bytes);
  work.moment_gib = allocator_factor * moment / kGiB;
  return work;
}

bool may_begin_later(const Plan& plan) {
  return num_stages(plan) > 1 && std::any_of(plan.modules.begin(), plan.modules.end(), [](const ModulePlan& module) {
           return module.is_encoder() && module.is_in_pipeline();
         });
}

BesidePipeline beside_pipeline(const Plan& plan, const std::vector<EncoderWork>& works, int64_t live) {
  const int64_t pp = plan.llm().pp;
  const auto ranks = static_cast<size_t>(pp);
  BesidePipeline beside{.ranks = nothing_beside(pp)};
  double bridge_ms = 0, back_bridge_ms = 0, first_ms = 0;
  bool has_backward = false;
  size_t next = 0;
  for (const ModulePlan& module : plan.modules) {
    if (module.is_in_pipeline()) continue;
    const EncoderWork& work = works[next++];
    if (module.placement == ModulePlacement::kDisjoint) continue;
    const bool is_partial = module.placement == ModulePlacement::kPartial;
    const double per_stage = static_cast<double>(plan.llm().ranks.size()) / static_cast<double>(pp);
    const auto first =
        is_partial ? ranks - static_cast<size_t>(static_cast<double>(module.ranks.size()) / per_stage) : 0;
    const double macros = std::ceil(work.macros);
    const double alive = module.form == EncoderForm::kBefore ? macros : std::min(macros, static_cast<double>(live));
    for (size_t rank = first; rank < ranks; ++rank) {
      BesideMemory& memory = beside.ranks.memory[rank];
      memory.static_gib += work.static_gib;
      memory.held_gib += alive * work.held_gib;
      memory.moment_gib = std::max(memory.moment_gib, work.moment_gib);
      beside.ranks.update_ms[rank] += work.tail_ms;
      if (module.form == EncoderForm::kBefore && !is_partial) beside.ranks.backward_ms[rank] += work.backwards_ms();
    }
    if (module.form != EncoderForm::kBefore) continue;
    if (is_partial) {
      // The first stage has none of it, and waits for the first macro batch.
      first_ms = std::max(first_ms, work.first_forward_ms() + work.bridge_ms);
      continue;
    }
    beside.before_ms += work.forwards_ms();
    // A bridge is hidden by the other macro batches. Of several encoders the last has nothing behind its forwards, and
    // the first nothing in front of its backwards.
    bridge_ms = work.bridge_ms - work.forward_ms * (macros - 1);
    if (work.backward_ms > 0 && !has_backward) {
      back_bridge_ms = work.bridge_ms - work.backward_ms * (macros - 1);
      has_backward = true;
    }
  }
  // The first stage may then wait for no rows and give no gradients.
  if (may_begin_later(plan)) return beside;
  beside.before_ms = std::max(beside.before_ms + std::max(0.0, bridge_ms), first_ms);
  // Weight gradients that are left to do hide the bridge back.
  const bool splits = has_split_backward(plan, plan.llm());
  if (!splits && back_bridge_ms > 0 && beside.ranks.backward_ms[0] > 0) beside.ranks.backward_ms[0] += back_bridge_ms;
  return beside;
}

}  // namespace weft
