#include "weft/pipeline/trained_module.h"

#include "weft/meaning/divided_rows.h"
#include "weft/pipeline/copied_gradients.h"
#include "weft/pipeline/stage_optimizers.h"

namespace weft {
namespace {

std::unique_ptr<StageWeights> make_weights(const Plan& plan, const ModuleGroups& groups, const TrainedStage& stage) {
  const auto sum = [copies = find_copies(*stage.model, groups), experts = stage.experts.get()](
                       const StageOptimizer& optimizer, size_t block) mutable {
    for (CopiedGradients& own : copies[block]) {
      if (own.is_of_experts == (&optimizer == experts)) sum_copies(own);
    }
  };
  return std::make_unique<StageWeights>(stage.model->blocks(), stage.optimizers(),
                                        StageWeights::Options{.overlap = plan.overlap_dp, .complete = sum});
}

}  // namespace

Result<std::unique_ptr<TrainedModule>> make_module(const ModuleMaking& making, size_t module) {
  const Plan& plan = making.plan;
  WEFT_TRY(ModuleGroups groups, make_groups(making.world, plan, module));
  WEFT_TRY(ContextParallel context, ContextParallel::create(making.world, plan, module));
  std::unique_ptr<TrainedModule> made(new TrainedModule{.groups = std::move(groups), .context = std::move(context)});
  made->tensor_parallel.resize(plan.modules.size());
  for (const size_t own : modules_of_pipeline(plan, module)) {
    const ModulePlan& settings = plan.modules[own];
    made->tensor_parallel[own] = std::make_unique<TensorParallel>(made->groups.tensor, divides_rows(settings));
  }
  for (const int32_t index : stages_on(plan, plan.modules[module], made->groups.place.pp)) {
    TrainedStage& stage = made->stages.emplace_back();
    stage.share = made->tensor_parallel[module]->share();
    stage.model = std::make_unique<StageModel>(
        StageModel::Settings{.plan = plan,
                             .numbers = making.numbers,
                             .stage = index,
                             .options = making.options,
                             .experts = made->groups.experts,
                             .balance = made->groups.balance ? made->groups.balance : made->context.group(),
                             .context = made->context,
                             .module = module,
                             .loss = making.settings.loss},
        made->tensor_parallel);
  }
  if (!plan.modules[module].is_encoder()) made->tied = TiedWeights(plan, made->stages, made->groups);
  for (TrainedStage& stage : made->stages) {
    make_optimizers(plan, plan.modules[module], making.settings, made->groups, made->tied, stage);
    stage.weights = make_weights(plan, made->groups, stage);
  }
  return made;
}

}  // namespace weft
