#pragma once

#include "weft/meaning/strategy.h"
#include "weft/plan/plan.h"

namespace weft {

/// A strategy file for a user's own program as a plan of it says the same: what operators do on the tensor-parallel
/// axis, by kind of block. Fails, with the file's field, where a plan cannot: a mesh with other axes, layers of a kind
/// that differ, inputs that come in parts, another program. Weights lie as operators read them, whatever ZeRO stages
/// the file has for that axis.
Result<ModuleStrategy> module_strategy(const StrategyFile& file, const Model& model);

/// The degree of tensor parallelism that a strategy was made for; 1 where it says none.
int64_t tensor_degree(const ModuleStrategy& strategy);

/// What a plan's model is without the strategies of the plan's modules: a plan with another degree begins with it.
Result<Model> usual_model(const Plan& plan);

}  // namespace weft
