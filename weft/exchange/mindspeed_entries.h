#pragma once

#include <string>

#include "weft/base/json.h"
#include "weft/exchange/refusals.h"

namespace weft {

// What the forms of MindSpeed-MM's settings share: entries of model.json, and arguments that go with them.

/// "image_encoder", "audio_encoder", "text_decoder".
std::string mindspeed_key(ModuleKind kind);
/// Where the network of an encoder stands below that: "vision_encoder", "audio_encoder".
std::string mindspeed_network_key(ModuleKind kind);

/// How many layers each pipeline rank has.
Json mindspeed_layers(const ModulePlan& module);

/// recompute_granularity and what goes with it; empty without recomputation.
Json mindspeed_recompute(const ModulePlan& module, Refusals& refusals);

/// What all forms refuse: another order of axes, and ZeRO in some trained modules only.
void refuse_mindspeed_order(const ModulePlan& module, Refusals& refusals);
void refuse_mindspeed_mixed_zero(const Plan& plan, const ModulePlan& module, Refusals& refusals);

/// --context-parallel-algo, for a module with cp above 1.
std::string mindspeed_context_flags(const ModulePlan& module);

}  // namespace weft
