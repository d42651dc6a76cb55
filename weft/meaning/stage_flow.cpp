#include "weft/meaning/stage_flow.h"

namespace weft {

std::vector<FlowModule> flow_modules(const Plan& plan, std::optional<size_t> encoder) {
  std::vector<FlowModule> modules;
  for (size_t index = 0; index < plan.modules.size(); ++index) {
    const ModulePlan& module = plan.modules[index];
    const bool is_in_pipeline = encoder ? index == *encoder : module.is_in_pipeline();
    modules.push_back({.is_llm = !module.is_encoder(),
                       .is_in_pipeline = is_in_pipeline,
                       .is_beside = !encoder && !is_in_pipeline,
                       .is_frozen = plan.workload.is_frozen(module.kind)});
  }
  std::vector<StagePart> parts;
  if (encoder) {
    parts = list_encoder_parts(plan, *encoder);
  } else {
    list_stage_parts(plan, parts);
  }
  for (const StagePart& part : parts) {
    FlowModule& module = modules[static_cast<size_t>(part.module)];
    if (part.has_entry) module.first_stage = part.stage;
    if (part.has_exit) module.last_stage = part.stage;
  }
  return modules;
}

std::vector<FlowPart> flow_after(const std::vector<FlowModule>& modules, int32_t stage,
                                 const std::function<bool(size_t)>& has_data) {
  std::vector<FlowPart> parts;
  const FlowModule& llm = modules.back();
  const bool is_in_llm = llm.is_in_pipeline && llm.first_stage <= stage;
  bool encoders_need_gradient = false;
  for (size_t index = 0; index < modules.size(); ++index) {
    const FlowModule& module = modules[index];
    if (!has_data(index)) continue;
    if (module.is_llm) {
      if (is_in_llm) parts.push_back({.module = index, .needs_gradient = !module.is_frozen || encoders_need_gradient});
      continue;
    }
    encoders_need_gradient |= !module.is_frozen;
    if (!module.is_in_pipeline || is_in_llm || module.first_stage > stage) continue;
    parts.push_back({.module = index, .is_output = module.last_stage <= stage, .needs_gradient = !module.is_frozen});
  }
  return parts;
}

}  // namespace weft
