#pragma once

#include "weft/pipeline/module_groups.h"
#include "weft/pipeline/tied_weights.h"
#include "weft/pipeline/trained_stage.h"
#include "weft/pipeline/training_settings.h"

namespace weft {

/// Gives a stage of a module its optimizers, and its weights memory: fresh ones where there is a seed.
void make_optimizers(const Plan& plan, const ModulePlan& module, const TrainingSettings& settings,
                     const ModuleGroups& groups, const TiedWeights& tied, TrainedStage& stage);

}  // namespace weft
