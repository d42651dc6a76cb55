#include "weft/meaning/stage_flow.h"

#include <algorithm>

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

int64_t num_branches(const Module& module, int64_t layers_behind) {
  return std::count_if(module.exit.ops.begin(), module.exit.ops.end(),
                       [&](const Op& op) { return op.branches_from >= 0 && op.branches_from < layers_behind; });
}

int64_t num_later_parts(const Module& encoder, int64_t llm_layers_behind) {
  return std::max<int64_t>(0, encoder.output_parts - 1 - llm_layers_behind);
}

int64_t layers_behind(std::span<const StagePart> parts, size_t module, int32_t stage) {
  int64_t behind = 0;
  for (const StagePart& part : parts) {
    if (part.stage <= stage && part.module == static_cast<int32_t>(module))
      behind = std::max(behind, part.first_layer + part.num_layers);
  }
  return behind;
}

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
                                                    : trainable.gives_gradients(module),
                       .width = spec.width,
                       .output_width = spec.output_width});
  }
  const std::vector<StagePart> parts = parts_of_pipeline(plan, owner);
  int32_t last_stage = 0;
  for (const StagePart& part : parts) {
    const ModuleKind kind = plan.modules[static_cast<size_t>(part.module)].kind;
    FlowModule& module = modules[static_cast<size_t>(part.module)];
    if (part.has_entry) module.first_stage = part.stage;
    if (part.has_exit) module.last_stage = part.stage;
    if (has_block(part, num_blocks(*plan.model.find(kind)), trainable.first_with_gradients(kind)))
      module.first_trained_stage = part.stage;
    last_stage = std::max(last_stage, part.stage);
  }
  for (size_t index = 0; index < modules.size(); ++index) {
    const Module& spec = *plan.model.find(plan.modules[index].kind);
    for (int32_t stage = 0; stage <= last_stage; ++stage) {
      modules[index].branches.push_back(num_branches(spec, layers_behind(parts, index, stage)));
      modules[index].later_parts.push_back(num_later_parts(spec, layers_behind(parts, modules.size() - 1, stage)));
    }
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
      if (is_in_llm)
        parts.push_back(
            {.module = index, .width = module.width, .needs_gradient = is_trained || encoders_need_gradient});
      continue;
    }
    encoders_need_gradient |= module.is_trained;
    if (is_in_llm) {
      if (const int64_t later = module.later_parts[static_cast<size_t>(stage)]; later > 0)
        parts.push_back({.module = index,
                         .kind = FlowKind::kTaken,
                         .width = later * llm.width,
                         .needs_gradient = module.is_trained});
      continue;
    }
    if (!module.is_in_pipeline || module.first_stage > stage) continue;
    if (module.last_stage <= stage) {
      parts.push_back(
          {.module = index, .kind = FlowKind::kOutput, .width = module.output_width, .needs_gradient = is_trained});
      continue;
    }
    const int64_t branches = module.branches[static_cast<size_t>(stage)];
    parts.push_back({.module = index, .width = (1 + branches) * module.width, .needs_gradient = is_trained});
  }
  return parts;
}

}  // namespace weft
