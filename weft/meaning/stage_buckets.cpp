#include "weft/meaning/stage_buckets.h"

#include <algorithm>

#include "weft/base/check.h"
#include "weft/meaning/tied_table.h"
#include "weft/plan/module_mesh.h"

namespace weft {
namespace {

/// A weight of a stage, and what decides about its bucket.
struct StageWeight {
  LocalWeight weight;
  size_t block = 0;
  bool is_trained = true;
  bool is_alone = false;  ///< a tied table, whose copies lie in equal buckets
};

/// A rank's place along an axis of a module's mesh; 0 where it has none.
int64_t place_along(const Mesh& mesh, int64_t rank, const char* axis) {
  const auto found = mesh.grid().find(axis);
  return found ? mesh.coordinates_of(rank)[*found] : 0;
}

/// Lists what one stage of a rank has.
class StageLister {
 public:
  StageLister(const Plan& plan, int64_t tp_rank, const TiedTable& table)
      : plan_(plan), tp_rank_(tp_rank), table_(table) {}

  void add(const StagePart& part) {
    const ModulePlan& module = plan_.modules[static_cast<size_t>(part.module)];
    const Module& spec = *plan_.model.find(module.kind);
    const bool is_trained = !plan_.workload.is_frozen(module.kind);
    const bool has_tied_end = !module.is_encoder() && table_.is_copied;
    const OpShare share{.tp = module.tp, .ep = module.ep, .tp_rank = tp_rank_};
    if (part.has_entry) add_block(spec.entry, share, is_trained, has_tied_end && is_trained);
    for (int64_t layer = part.first_layer; layer < part.first_layer + part.num_layers; ++layer)
      add_block(spec.layer_kinds[spec.layers[static_cast<size_t>(layer)]], share, is_trained, false);
    if (!part.has_exit) return;
    if (has_tied_end) {
      const size_t first = weights_.size();
      for (const Op& op : spec.entry.ops) {
        if (std::holds_alternative<Lookup>(op.shape) && op.split == TensorSplit::kColumn) add_op(op, share, is_trained);
      }
      for (size_t i = first; i < weights_.size(); ++i) {
        weights_[i].is_alone = is_trained;
        weights_[i].weight.is_product = true;  // there it is the head's
      }
    }
    add_block(spec.exit, share, is_trained, false);
  }

  size_t num_blocks() const { return num_blocks_; }

  /// Of the weights that are experts' or are not, on so many ranks that have the same.
  OptimizerBuckets buckets(const ModulePlan& module, bool of_experts, bool has_own_experts, int64_t num_ranks) const {
    OptimizerBuckets found{.buckets = {},
                           .weights = {},
                           .block_of = {},
                           .kind_of = {},
                           .rules = zero_rules(effective_zero(module.zero, num_ranks), module.zero_keep_gathered),
                           .num_ranks = num_ranks};
    std::vector<StageWeight> own;
    for (const StageWeight& weight : weights_)
      if ((has_own_experts && weight.weight.is_expert) == of_experts) own.push_back(weight);
    std::vector<int64_t> elements(num_blocks_);
    for (const StageWeight& weight : own) elements[weight.block] += weight.weight.elements;
    const double reduce_bytes = num_bytes(plan_.precision.reduce);
    const std::vector<int64_t> kinds = kinds_of_blocks(elements, module.zero, plan_.buckets_mb * 1e6 / reduce_bytes);
    std::vector<BucketWeight> weights;
    for (const StageWeight& weight : own) {
      found.weights.push_back(weight.weight);
      found.block_of.push_back(weight.block);
      found.kind_of.push_back(weight.is_alone ? static_cast<int64_t>(num_blocks_) : kinds[weight.block]);
      weights.push_back({.elements = weight.weight.elements,
                         .kind = found.kind_of.back(),
                         .is_trained = weight.is_trained,
                         .has_decay = weight.is_trained && weight.weight.is_matrix});
    }
    found.buckets = lay_out_buckets(
        weights, {.max_elements = bucket_elements(plan_.buckets_mb, reduce_bytes), .num_shards = num_ranks});
    return found;
  }

 private:
  void add_block(const Block& block, const OpShare& share, bool is_trained, bool has_table_alone) {
    for (const Op& op : block.ops) {
      const size_t first = weights_.size();
      add_op(op, share, is_trained);
      const bool is_table = std::holds_alternative<Lookup>(op.shape) && op.split == TensorSplit::kColumn;
      for (size_t i = first; i < weights_.size(); ++i) weights_[i].is_alone = has_table_alone && is_table;
    }
    ++num_blocks_;
  }

  void add_op(const Op& op, const OpShare& share, bool is_trained) {
    std::vector<LocalWeight> listed;
    list_weights(op, share, listed);
    for (const LocalWeight& weight : listed)
      weights_.push_back({.weight = weight, .block = num_blocks_, .is_trained = is_trained});
  }

  const Plan& plan_;
  int64_t tp_rank_;
  TiedTable table_;
  std::vector<StageWeight> weights_;
  size_t num_blocks_ = 0;
};

/// Of the stages of a rank in one pipeline, the llm's or an encoder's own.
void add_pipeline(const Plan& plan, int32_t index, const Mesh& mesh, int64_t rank, const std::vector<StagePart>& parts,
                  const TiedTable& table, std::vector<StageBuckets>& stages) {
  const ModulePlan& module = plan.modules[static_cast<size_t>(index)];
  const int64_t row = place_along(mesh, rank, "pp");
  const int32_t end = parts.back().stage + 1;
  for (int32_t stage = 0; stage < end; ++stage) {
    const int64_t stage_row = module.is_encoder() ? stage : place_of_stage(plan, stage).rank;
    if (stage_row != row) continue;
    StageLister weights(plan, place_along(mesh, rank, "tp"), table);
    for (const StagePart& part : parts)
      if (part.stage == stage) weights.add(part);
    const int64_t num_ranks = module.dp * module.cp;
    const bool has_own_experts = module.ep > 1;
    StageBuckets& found = stages.emplace_back();
    found.stage = stage;
    found.module = index;
    found.num_blocks = weights.num_blocks();
    found.optimizers.push_back(weights.buckets(module, false, has_own_experts, num_ranks));
    if (!has_own_experts) continue;
    OptimizerBuckets experts = weights.buckets(module, true, true, num_ranks / module.ep);
    if (!experts.weights.empty()) found.optimizers.push_back(std::move(experts));
  }
}

}  // namespace

std::vector<StageBuckets> stage_buckets(const Plan& plan, int64_t rank) {
  std::vector<StagePart> parts;
  list_stage_parts(plan, parts);
  std::vector<StageBuckets> stages;
  const auto add = [&](size_t index) {
    const ModulePlan& module = plan.modules[index];
    const auto mesh = mesh_of(module);
    WEFT_CHECK(mesh.ok(), "{}", mesh.error().message());
    if (!mesh->contains(rank)) return;
    const auto number = static_cast<int32_t>(index);
    if (module.is_encoder()) {
      add_pipeline(plan, number, *mesh, rank, list_encoder_parts(plan, index), {}, stages);
    } else {
      add_pipeline(plan, number, *mesh, rank, parts, tied_table(plan, parts), stages);
    }
  };
  add(plan.modules.size() - 1);
  for (size_t index = 0; index + 1 < plan.modules.size(); ++index) {
    if (!plan.modules[index].is_in_pipeline()) add(index);
  }
  return stages;
}

}  // namespace weft
