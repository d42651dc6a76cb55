#include "weft/meaning/stage_flow.h"

#include "weft/meaning/trainable.h"
#include "weft/program/name_weights.h"

namespace weft {
namespace {

/// Whether a part has the block at a place of its module.
bool has_block(const StagePart& part, int64_t blocks_of_module, int64_t place) {
  if (place == 0) return part.has_entry;
  if (place + 1 == blocks_of_module) return part.has_exit;
  return place > part.first_layer && place <= part.first_layer + part.num_layers;
}

}  // namespace

std::vector<FlowModule> flow_modules(const Plan& plan, size_t owner) {
  const bool is_encoders = plan.modules[owner].is_encoder();
  const Trainable trainable(plan);
  std::vector<FlowModule> modules;
  for (size_t index = 0; index < plan.modules.size(); ++index) {
    const ModulePlan& module = plan.modules[index];
    const Module& spec = *plan.model.find(module.kind);
    const bool is_in_pipeline = is_encoders ? index == owner : module.is_in_pipeline();
    modules.push_back({.is_llm = !module.is_encoder(),
                       .is_in_pipeline = is_in_pipeline,
                       .is_beside = !is_encoders && !is_in_pipeline,
                       .is_trained = is_in_pipeline ? trainable.first_with_gradients(module.kind) < num_blocks(spec)
                                                    : trainable.gives_gradients(module)});
  }
  for (const StagePart& part : parts_of_pipeline(plan, owner)) {
    const ModuleKind kind = plan.modules[static_cast<size_t>(part.module)].kind;
    FlowModule& module = modules[static_cast<size_t>(part.module)];
    if (part.has_entry) module.first_stage = part.stage;
    if (part.has_exit) module.last_stage = part.stage;
    if (has_block(part, num_blocks(*plan.model.find(kind)), trainable.first_with_gradients(kind)))
      module.first_trained_stage = part.stage;
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
    const bool is_trained = module.is_trained && module.first_trained_stage <= stage;
    if (module.is_llm) {
      if (is_in_llm) parts.push_back({.module = index, .needs_gradient = is_trained || encoders_need_gradient});
      continue;
    }
    encoders_need_gradient |= module.is_trained;
    if (!module.is_in_pipeline || is_in_llm || module.first_stage > stage) continue;
    parts.push_back({.module = index, .is_output = module.last_stage <= stage, .needs_gradient = is_trained});
  }
  return parts;
}

}  // namespace weft
