#include "weft/exchange/mindspeed_entries.h"

#include <fmt/format.h>

#include "weft/exchange/megatron_arguments.h"
#include "weft/meaning/trainable.h"

namespace weft {

std::string mindspeed_key(ModuleKind kind) {
  return kind == ModuleKind::kVision ? "image_encoder" : kind == ModuleKind::kAudio ? "audio_encoder" : "text_decoder";
}

std::string mindspeed_network_key(ModuleKind kind) {
  return kind == ModuleKind::kVision ? "vision_encoder" : "audio_encoder";
}

Json mindspeed_layers(const ModulePlan& module) {
  Json stages = Json::array();
  for (const auto& row : module.layers) stages.push_back(row.front());
  return stages;
}

Json mindspeed_recompute(const ModulePlan& module, Refusals& refusals) {
  const auto recompute = megatron_recompute(module, refusals);
  if (!recompute || recompute->kind == MegatronRecompute::Kind::kNone) return Json::object();
  if (recompute->kind == MegatronRecompute::Kind::kSelective) return {{"recompute_granularity", "selective"}};
  return {{"recompute_granularity", "full"},
          {"recompute_method", "block"},
          {"recompute_num_layers", recompute->num_layers}};
}

std::string mindspeed_context_flags(const ModulePlan& module) {
  ArgumentLine line;
  add_mindspeed_context(module, line);
  std::string text = line.text();
  text.pop_back();
  return text;
}

void refuse_mindspeed_order(const ModulePlan& module, Refusals& refusals) {
  if (has_axis_order(module, {"tp", "cp", "dp", "pp"})) return;
  refusals.add(
      module, "axis_order",
      fmt::format("is [{}], but MindSpeed-MM lays ranks out as [tp, cp, dp, pp]", fmt::join(module.axis_order, ", ")));
}

void refuse_mindspeed_mixed_zero(const Plan& plan, const ModulePlan& module, Refusals& refusals) {
  if (module.zero == plan.llm().zero || !trains(plan, module.kind)) return;
  refusals.add(module, "zero",
               fmt::format("is {} where the llm's is {}, but MindSpeed-MM's distributed optimizer is for all modules "
                           "or none",
                           module.zero, plan.llm().zero));
}

}  // namespace weft
