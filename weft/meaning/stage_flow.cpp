#include "weft/meaning/stage_flow.h"

#include <algorithm>
#include <numeric>

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

int64_t num_later(const std::vector<int32_t>& stages, int32_t stage) {
  return std::count_if(stages.begin(), stages.end(), [&](int32_t each) { return each > stage; });
}

/// Notes that a part has these layers of its module.
void note_stages(const StagePart& part, const std::vector<int64_t>& layers, std::vector<int32_t>& stages) {
  for (const int64_t layer : layers) {
    if (layer >= part.first_layer && layer < part.first_layer + part.num_layers) stages.push_back(part.stage);
  }
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
                                                    : trainable.gives_gradients(module),
                       .width = spec.width,
                       .output_width = spec.output_width});
  }
  for (const StagePart& part : parts_of_pipeline(plan, owner)) {
    const ModuleKind kind = plan.modules[static_cast<size_t>(part.module)].kind;
    FlowModule& module = modules[static_cast<size_t>(part.module)];
    if (part.has_entry) module.first_stage = part.stage;
    if (part.has_exit) module.last_stage = part.stage;
    if (has_block(part, num_blocks(*plan.model.find(kind)), trainable.first_with_gradients(kind)))
      module.first_trained_stage = part.stage;
    note_stages(part, branch_layers(*plan.model.find(kind)), module.branch_stages);
    if (!module.is_llm) continue;
    for (size_t index = 0; index + 1 < modules.size(); ++index) {
      const Module& encoder = *plan.model.find(plan.modules[index].kind);
      std::vector<int64_t> layers(static_cast<size_t>(encoder.output_parts - 1));
      std::iota(layers.begin(), layers.end(), 0);
      note_stages(part, layers, modules[index].part_stages);
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
      if (const int64_t later = num_later(module.part_stages, stage); later > 0)
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
    const int64_t branches = std::ssize(module.branch_stages) - num_later(module.branch_stages, stage);
    parts.push_back({.module = index, .width = (1 + branches) * module.width, .needs_gradient = is_trained});
  }
  return parts;
}

}  // namespace weft
