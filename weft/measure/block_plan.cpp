#include "weft/measure/block_plan.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "weft/base/check.h"
#include "weft/base/text.h"
#include "weft/meaning/rank_groups.h"
#include "weft/meaning/usual_precision.h"
#include "weft/mesh/mesh.h"
#include "weft/program/program_strategy.h"

namespace weft {
namespace {

/// Data-parallel ranks that share out the optimizer's states, so that a large block's need not be there.
constexpr int64_t kStateShares = 16;

/// By pipeline rank. The block is alone on its stage.
struct StageLayers {
  std::vector<std::vector<int64_t>> layers;
  int64_t stage = 0;
};

/// The entry, layers before, the layer, layers behind, the exit.
Result<StageLayers> layers_around(const Module& module, const BlockShape& shape) {
  const auto count = std::ssize(module.layers);
  if (shape.block == module.entry.name) return StageLayers{{{0}, {count}, {0}}, 0};
  if (shape.block == module.exit.name) return StageLayers{{{0}, {count}, {0}}, 2};
  std::vector<std::string> known = {module.entry.name, module.exit.name};
  for (int64_t layer = 0; layer < count; ++layer) {
    const Block& kind = module.distinct_layers[module.layers[static_cast<size_t>(layer)]];
    if (kind.name == shape.block) return StageLayers{{{0}, {layer}, {1}, {count - layer - 1}, {0}}, 2};
    if (std::find(known.begin(), known.end(), kind.name) == known.end()) known.push_back(kind.name);
  }
  return Error{.field = "block",
               .problem = fmt::format("is {}, the {} of the model has {}", in_quotes(shape.block),
                                      name_of(shape.module), joined_or(known)),
               .advice = "'weft describe' lists a model's blocks." + did_you_mean(shape.block, known)};
}

std::vector<int64_t> ranks_from(int64_t first, int64_t count) {
  std::vector<int64_t> ranks(static_cast<size_t>(count));
  std::iota(ranks.begin(), ranks.end(), first);
  return ranks;
}

ModulePlan module_on_ranks(const Module& module, std::vector<int64_t> ranks) {
  return {.kind = module.kind,
          .ranks = std::move(ranks),
          .axis_order = default_axis_order(),
          .layers = {{std::ssize(module.layers)}}};
}

/// The model as its family declares it: strategies are for one degree of tensor parallelism.
Model without_strategies(Model model) {
  for (Module& module : model.modules) {
    for (Block& layer : module.distinct_layers) layer = without_strategy(std::move(layer));
  }
  return model;
}

/// A plan with nothing but the llm, and no settings of it yet.
Plan plan_of_llm(const Model& model, Precision precision) {
  Plan plan;
  plan.model = without_strategies(model);
  std::erase_if(plan.model.modules, [](const Module& module) { return module.kind != ModuleKind::kLlm; });
  plan.precision = usual_precision(precision);
  plan.cluster.nodes = plan.cluster.devices_per_node = 1;
  return plan;
}

}  // namespace

Result<BlockPlan> plan_of_block(const Model& model, const BlockShape& shape, const BlockPlanOptions& options) {
  const Module* module = model.find(shape.module);
  if (module == nullptr) {
    return Error{.field = "module",
                 .problem = fmt::format("is {}, which {} does not have", name_of(shape.module), model.name)};
  }
  if (shape.attention == AttentionKernel::kUnfused) {
    return Error{.field = "attention",
                 .problem = "is unfused, which training does not run",
                 .advice = "Write attention: fused in the workload."};
  }
  WEFT_TRY(const StageLayers around, layers_around(*module, shape));
  const bool is_llm = shape.module == ModuleKind::kLlm;
  ModulePlan settings{Degrees{.tp = shape.tp,
                              .cp = shape.cp,
                              .cp_ulysses = shape.cp_ulysses,
                              .ep = shape.ep,
                              .pp = std::ssize(around.layers),
                              .dp = kStateShares * shape.ep,
                              .sequence_parallel = shape.sequence_parallel && shape.tp > 1,
                              .experts_over_tp = shape.experts_over_tp,
                              .zero = 1}};
  settings.kind = shape.module;
  settings.placement = is_llm ? ModulePlacement::kBase : ModulePlacement::kDisjoint;
  settings.axis_order = default_axis_order();
  settings.layers = around.layers;
  if (options.recompute != BlockRecompute::kKeep) {
    for (const std::vector<int64_t>& chunk : around.layers) {
      Recompute recompute;
      recompute.add(options.recompute, chunk.front());
      settings.recompute.push_back({recompute});
    }
  }
  settings.ranks = ranks_from(0, settings.num_ranks());
  BlockPlan made;
  Plan& plan = made.plan;
  plan.model = without_strategies(model);
  if (!shape.strategy.empty()) {
    for (Module& own : plan.model.modules) {
      if (own.kind == shape.module) own = *module;
    }
  }
  plan.world_size = std::ssize(settings.ranks) + (is_llm ? 0 : 1);
  plan.precision = usual_precision(options.precision);
  plan.overlap_dp = false;
  plan.schedule.microbatches = 1;
  // Only what is measured, so that nothing else is waited for.
  std::erase_if(plan.model.modules,
                [&](const Module& other) { return other.kind != shape.module && other.kind != ModuleKind::kLlm; });
  plan.modules.push_back(std::move(settings));
  // The llm is on a rank of its own and does nothing.
  if (!is_llm) plan.modules.push_back(module_on_ranks(*model.find(ModuleKind::kLlm), {plan.world_size - 1}));
  plan.cluster.nodes = 1;
  plan.cluster.devices_per_node = plan.world_size;
  for (int64_t rank = 0; rank < plan.world_size; ++rank) {
    const std::optional<RankGroups> groups = rank_groups(plan, 0, rank);
    if (!groups || groups->place.pp != around.stage) continue;
    made.rank = rank;
    return made;
  }
  WEFT_CHECK(false, "no rank has the stage {}", around.stage);
}

Plan plan_of_step(const Model& model, Precision precision, int64_t microbatches) {
  Plan plan;
  plan.model = without_strategies(model);
  plan.precision = usual_precision(precision);
  plan.cluster.nodes = plan.cluster.devices_per_node = 1;
  for (Module& module : plan.model.modules) {
    module.layers.resize(1);
    ModulePlan& settings = plan.modules.emplace_back(module_on_ranks(module, {0}));
    if (settings.is_encoder()) settings.placement = ModulePlacement::kInline;
  }
  plan.schedule.microbatches = microbatches;
  plan.workload.global_batch_samples = microbatches;
  return plan;
}

Plan plan_of_layers(const Model& model, Precision precision, int64_t num_layers) {
  Plan plan = plan_of_llm(model, precision);
  const Module& llm = plan.model.modules.front();
  ModulePlan& settings = plan.modules.emplace_back(module_on_ranks(llm, {0, 1, 2}));
  settings.pp = plan.world_size = plan.cluster.devices_per_node = 3;
  settings.layers = {{0}, {num_layers}, {std::ssize(llm.layers) - num_layers}};
  return plan;
}

}  // namespace weft
