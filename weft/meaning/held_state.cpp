#include "weft/meaning/held_state.h"

#include <algorithm>
#include <vector>

#include "weft/meaning/bucket_layout.h"
#include "weft/meaning/op_share.h"
#include "weft/meaning/rank_groups.h"
#include "weft/meaning/tied_table.h"
#include "weft/meaning/trainable.h"
#include "weft/meaning/zero_rules.h"
#include "weft/spec/weight_names.h"

namespace weft {
namespace {

/// A weight of a stage, and what decides about its bucket.
struct StageWeight {
  LocalWeight weight;
  size_t block = 0;
  bool is_trained = true;
  bool is_alone = false;  ///< a tied table, whose copies lie in equal buckets
};

int64_t whole_bytes(Precision precision, int64_t elements) {
  return static_cast<int64_t>(num_bytes(precision)) * elements;
}

/// Lists what one stage of a rank has.
class StageLister {
 public:
  StageLister(const Plan& plan, int64_t tp_rank, const TiedTable& table)
      : plan_(plan), trainable_(plan), tp_rank_(tp_rank), table_(table) {}

  void add(const StagePart& part) {
    const ModulePlan& module = plan_.modules[static_cast<size_t>(part.module)];
    const Module& spec = *plan_.model.find(module.kind);
    const bool has_tied_end = !module.is_encoder() && table_.is_copied;
    const bool is_table_alone = has_tied_end && trainable_.trains_table();
    const OpShare share{.tp = module.tp, .ep = module.ep, .tp_rank = tp_rank_};
    if (part.has_entry) add_block(spec, 0, share, is_table_alone);
    for (int64_t layer = part.first_layer; layer < part.first_layer + part.num_layers; ++layer)
      add_block(spec, layer + 1, share, false);
    if (!part.has_exit) return;
    if (has_tied_end) {
      for (const Op& op : spec.entry.ops) {
        if (is_table(op)) add_op(op, share, is_table_alone);
      }
      for (StageWeight& weight : weights_) {
        if (weight.block == num_blocks_) weight.is_trained = trainable_.trains_table();
      }
    }
    add_block(spec, num_blocks(spec) - 1, share, false);
  }

  /// Of the weights that are experts' or are not, on so many ranks that have the same.
  HeldState held(const ModulePlan& module, bool of_experts, bool has_own_experts, int64_t num_ranks) const {
    std::vector<StageWeight> own;
    for (const StageWeight& weight : weights_)
      if ((has_own_experts && weight.weight.is_expert) == of_experts) own.push_back(weight);
    if (own.empty()) return {};
    const PrecisionPlan& precision = plan_.precision;
    const int64_t zero = effective_zero(module.zero, num_ranks);
    const ZeroRules rules = zero_rules(zero, module.zero_keep_gathered);
    std::vector<int64_t> elements(num_blocks_);
    for (const StageWeight& weight : own) elements[weight.block] += weight.weight.elements;
    const double reduce_bytes = num_bytes(precision.reduce);
    const std::vector<int64_t> kinds = kinds_of_blocks(elements, module.zero, plan_.buckets_mb * 1e6 / reduce_bytes);
    std::vector<BucketWeight> weights;
    for (const StageWeight& weight : own) {
      weights.push_back({.elements = weight.weight.elements,
                         .kind = weight.is_alone ? static_cast<int64_t>(num_blocks_) : kinds[weight.block],
                         .is_trained = weight.is_trained,
                         .has_decay = weight.is_trained && weight.weight.is_matrix});
    }
    HeldState held;
    for (const BucketLayout& bucket : lay_out_buckets(
             weights, {.max_elements = bucket_elements(plan_.buckets_mb, reduce_bytes), .num_shards = num_ranks})) {
      const int64_t all = bucket.num_elements;
      const int64_t owned = rules.divides_states ? all / num_ranks : all;
      held.weights += whole_bytes(precision.compute, rules.releases_values ? owned : all);
      if (!bucket.is_trained) continue;
      held.gradients +=
          whole_bytes(rules.gradient_sums(precision.reduce, precision.master), rules.scatters_gradients ? owned : all);
      const int64_t states = precision.master == precision.compute ? 2 : 3;
      held.optimizer += whole_bytes(precision.master, states * owned);
    }
    return held;
  }

 private:
  static bool is_table(const Op& op) {
    return std::holds_alternative<Lookup>(op.shape) && op.split == TensorSplit::kColumn;
  }

  void add_block(const Module& module, int64_t place, const OpShare& share, bool has_table_alone) {
    const std::vector<bool> trained = trainable_.weights_of(module.kind, place);
    const size_t first = weights_.size();
    for (const Op& op : block_at(module, place).ops) add_op(op, share, has_table_alone && is_table(op));
    WEFT_CHECK(weights_.size() - first == trained.size(), "{} weights, {} of which are known", weights_.size() - first,
               trained.size());
    for (size_t i = first; i < weights_.size(); ++i) weights_[i].is_trained = trained[i - first];
    ++num_blocks_;
  }

  void add_op(const Op& op, const OpShare& share, bool is_alone) {
    std::vector<LocalWeight> listed;
    list_weights(op, share, listed);
    for (const LocalWeight& weight : listed)
      weights_.push_back({.weight = weight, .block = num_blocks_, .is_alone = is_alone});
  }

  const Plan& plan_;
  Trainable trainable_;
  int64_t tp_rank_;
  TiedTable table_;
  std::vector<StageWeight> weights_;
  size_t num_blocks_ = 0;
};

/// Of the stages of a rank in one pipeline, the llm's or an encoder's own.
HeldState held_in_pipeline(const Plan& plan, const ModulePlan& module, const RankGroups& groups,
                           const std::vector<StagePart>& parts, const TiedTable& table) {
  HeldState held;
  for (const int32_t stage : stages_on(plan, module, groups.place.pp)) {
    StageLister weights(plan, groups.place.tp, table);
    for (const StagePart& part : parts)
      if (part.stage == stage) weights.add(part);
    const bool has_own_experts = module.ep > 1;
    held += weights.held(module, false, has_own_experts, static_cast<int64_t>(groups.data.size()));
    if (has_own_experts) held += weights.held(module, true, true, static_cast<int64_t>(groups.same_experts.size()));
  }
  return held;
}

}  // namespace

HeldState held_state(const Plan& plan, int64_t rank) {
  HeldState held;
  std::vector<StagePart> parts;
  list_stage_parts(plan, parts);
  for (size_t index = 0; index < plan.modules.size(); ++index) {
    const ModulePlan& module = plan.modules[index];
    if (module.is_encoder() && module.is_in_pipeline()) continue;
    const std::optional<RankGroups> groups = rank_groups(plan, index, rank);
    if (!groups) continue;
    held += module.is_encoder() ? held_in_pipeline(plan, module, *groups, list_encoder_parts(plan, index), {})
                                : held_in_pipeline(plan, module, *groups, parts, tied_table(plan, parts));
  }
  return held;
}

}  // namespace weft
