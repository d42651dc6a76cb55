#include "weft/engine/prediction_plan.h"

#include <numeric>

#include "weft/meaning/check.h"
#include "weft/meaning/plan_strategy.h"
#include "weft/program/name_weights.h"

namespace weft {
namespace {

/// Microbatches beyond which no legal number is looked for: encoders with many ranks of their own want one each.
constexpr int64_t kMostMicrobatches = 4096;

void fold_context(ModulePlan& module) {
  module.dp *= module.cp;
  module.cp = module.cp_ulysses = 1;
}

/// One chunk a rank, of as many layers as it has in all. An inline encoder, whose layers come before the llm's, then
/// lies on the first.
void join_chunks(Plan& plan) {
  for (ModulePlan& module : plan.modules) {
    if (!module.is_in_pipeline()) continue;
    int64_t all = 0;
    for (std::vector<int64_t>& chunks : module.layers) {
      const int64_t own = std::accumulate(chunks.begin(), chunks.end(), int64_t{0});
      chunks = {module.is_encoder() ? 0 : own};
      all += own;
    }
    if (module.is_encoder()) module.layers.front() = {all};
    module.vpp = 1;
  }
}

/// The norm behind the llm's last layer.
std::string smallest_weight(const Model& model) {
  const Module& llm = model.modules.back();
  return weight_names(llm, num_blocks(llm) - 1).front().front();
}

}  // namespace

Result<Plan> prediction_plan(const Plan& trained, Precision precision) {
  Plan plan = trained;
  // Texts grow by keys and values that are kept, which layers with strategies do not.
  WEFT_TRY(plan.model, usual_model(trained));
  for (ModulePlan& module : plan.modules) module.strategy = {};
  plan.precision = {.compute = precision, .master = precision, .reduce = precision};
  plan.balance = Balance::kNone;
  plan.offload = {};
  plan.workload.frozen.clear();
  plan.trainable = {{.weights = "*", .train = false}, {.weights = smallest_weight(plan.model), .train = true}};
  for (ModulePlan& module : plan.modules) {
    fold_context(module);
    module.recompute.clear();
    if (!module.is_encoder()) continue;
    module.mbs_scale = module.mbs_parts = 1;
    module.form = module.placement == ModulePlacement::kDisjoint ? EncoderForm::kStream : EncoderForm::kBefore;
    module.live_macro_batches = 0;
    module.actions.clear();
    module.recompute_from_inputs = false;
  }
  const ModulePlan& llm = plan.llm();
  if (llm.vpp > 1 || plan.schedule.rows) join_chunks(plan);
  plan.schedule = {.name = "1f1b", .mbs = 1};
  std::vector<Violation> violations;
  // The fewest: all of them are filled, with copies where there are fewer texts.
  for (int64_t count = 1; count <= kMostMicrobatches; count = count < llm.pp ? count + 1 : count + llm.pp) {
    plan.schedule.microbatches = count;
    plan.workload.global_batch_samples = llm.dp * count;
    violations = check_plan(plan);
    if (violations.empty()) return plan;
  }
  return to_error(violations, "keep texts from growing by this plan");
}

}  // namespace weft
