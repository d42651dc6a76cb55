#include "weft/pipeline/stage_optimizers.h"

#include <functional>

#include "weft/meaning/bucket_layout.h"
#include "weft/meaning/zero_rules.h"
#include "weft/models/initialize.h"
#include "weft/optim/owned_pieces.h"
#include "weft/pipeline/tensor_type.h"

namespace weft {
namespace {

std::vector<int64_t> elements_of_blocks(const std::vector<StageBlock>& blocks) {
  std::vector<int64_t> elements;
  for (const StageBlock& block : blocks) {
    int64_t& sum = elements.emplace_back(0);
    for (const ParameterPtr& parameter : block.parameters) sum += parameter->value.numel();
  }
  return elements;
}

/// Fresh weights: every rank draws what it owns, and what it uses beside comes from the ranks that own that.
void draw_owned(StageOptimizer& optimizer, uint64_t seed) {
  for (const OwnedPiece& owned : owned_pieces(optimizer))
    initialize_elements(*owned.piece, owned.parameter->spec.init, seed, owned.elements.begin, owned.state.master);
  optimizer.restore(0);
}

std::unique_ptr<StageOptimizer> make_optimizer(const std::vector<StageBlock>& blocks, const Group& group,
                                               OptimizerOptions options, const TiedWeights& tied) {
  const double reduce_bytes = static_cast<double>(c10::elementSize(options.reduce_type));
  const std::vector<int64_t> bundles =
      bundles_of_blocks(elements_of_blocks(blocks), options.zero, options.buckets_mb * 1e6 / reduce_bytes);
  std::vector<StageParameter> parameters;
  for (size_t block = 0; block < blocks.size(); ++block) {
    for (const ParameterPtr& parameter : blocks[block].parameters) {
      // A tied table is alone, so that both copies lie in equal buckets.
      const bool is_alone = tied.contains(*parameter);
      parameters.push_back({parameter, is_alone ? static_cast<int64_t>(blocks.size()) : bundles[block]});
    }
  }
  options.zero = effective_zero(options.zero, group.size());
  return std::make_unique<StageOptimizer>(std::move(parameters), group, options);
}

}  // namespace

void make_optimizers(const Plan& plan, const ModulePlan& module, const TrainingSettings& settings,
                     const ModuleGroups& groups, const TiedWeights& tied, TrainedStage& stage) {
  const OptimizerOptions options{.zero = module.zero,
                                 .keep_gathered = module.zero_keep_gathered,
                                 .buckets_mb = plan.buckets_mb,
                                 .overlap = plan.overlap_dp,
                                 .adamw = settings.adamw,
                                 .weight_rules = settings.weight_rules,
                                 .peak_learning_rate = settings.peak_learning_rate,
                                 .compute_type = tensor_type(plan.precision.compute),
                                 .master_type = tensor_type(plan.precision.master),
                                 .reduce_type = tensor_type(plan.precision.reduce)};
  const auto is_expert = [&](const ParameterPtr& parameter) {
    return groups.experts && parameter->spec.pieces.front().is_expert;
  };
  std::vector<StageBlock> shared = stage.model->blocks();
  std::vector<StageBlock> experts = shared;
  for (StageBlock& block : shared) std::erase_if(block.parameters, is_expert);
  size_t num_of_experts = 0;
  for (StageBlock& block : experts) {
    std::erase_if(block.parameters, std::not_fn(is_expert));
    num_of_experts += block.parameters.size();
  }
  stage.optimizer = make_optimizer(shared, groups.data, options, tied);
  if (num_of_experts > 0) stage.experts = make_optimizer(experts, *groups.same_experts, options, tied);
  if (!settings.seed) return;
  for (StageOptimizer* optimizer : stage.optimizers()) draw_owned(*optimizer, *settings.seed);
}

}  // namespace weft
