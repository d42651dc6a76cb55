#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "weft/parallelize/context_parallel.h"
#include "weft/pipeline/module_groups.h"
#include "weft/pipeline/tied_weights.h"
#include "weft/pipeline/trained_stage.h"
#include "weft/pipeline/training_settings.h"

namespace weft {

/// A module that has a pipeline, on a rank that trains it: the llm with inline encoders, or an encoder beside it.
struct TrainedModule {
  ModuleGroups groups;
  StageModel::TensorParallels tensor_parallel;  ///< by module of the plan; null for those of other pipelines
  ContextParallel context;
  TiedWeights tied;                 ///< of the llm
  std::deque<TrainedStage> stages;  ///< in the order of its chunks
};

/// What modules are made of.
struct ModuleMaking {
  World& world;
  const Plan& plan;
  const ModelNumbers& numbers;
  const TrainingSettings& settings;
  at::TensorOptions options;  ///< of activations
};

/// Every rank of the module's mesh does this alike; this rank must be one of them.
Result<std::unique_ptr<TrainedModule>> make_module(const ModuleMaking& making, size_t module);

}  // namespace weft
