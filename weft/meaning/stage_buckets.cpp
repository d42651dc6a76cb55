#include "weft/meaning/stage_buckets.h"

#include <algorithm>

namespace weft {

bool has_backward(const Plan& plan, ModuleKind module) {
  if (!plan.workload.is_frozen(module)) return true;
  const std::vector<Module>& modules = plan.model.modules;
  return module == ModuleKind::kLlm && std::any_of(modules.begin(), modules.end(), [&](const Module& other) {
           return !plan.workload.is_frozen(other.kind);
         });
}

void StageContent::add(const StagePart& part) {
  const ModulePlan& module = plan_->modules[static_cast<size_t>(part.module)];
  const Module& spec = *plan_->model.find(module.kind);
  const bool is_trained = !plan_->workload.is_frozen(module.kind);
  const bool has_tied_end = !module.is_encoder() && table_.is_copied;
  const size_t first_block = blocks_.size();
  parts_.push_back(part);
  if (part.has_entry) add_block(spec.entry, module, is_trained, has_tied_end && is_trained);
  for (int64_t layer = part.first_layer; layer < part.first_layer + part.num_layers; ++layer)
    add_block(spec.layer_kinds[spec.layers[static_cast<size_t>(layer)]], module, is_trained, false);
  if (!part.has_exit) return;
  if (has_tied_end) {
    const size_t first = weights_.size();
    for (const Op& op : spec.entry.ops) {
      if (std::holds_alternative<Lookup>(op.shape) && op.split == TensorSplit::kColumn) add_op(op, module, is_trained);
    }
    for (size_t i = first; i < weights_.size(); ++i) weights_[i].is_alone = is_trained;
  }
  add_block(spec.exit, module, is_trained, false);
  if (!module.is_encoder() && plan_->model.has_tied_embeddings && part.has_entry) blocks_.back().borrowed = first_block;
}

void StageContent::add_block(const Block& block, const ModulePlan& module, bool is_trained, bool has_table_alone) {
  for (const Op& op : block.ops) {
    const size_t first = weights_.size();
    add_op(op, module, is_trained);
    const bool is_table = std::holds_alternative<Lookup>(op.shape) && op.split == TensorSplit::kColumn;
    for (size_t i = first; i < weights_.size(); ++i) weights_[i].is_alone = has_table_alone && is_table;
  }
  blocks_.push_back({.has_backward = has_backward(*plan_, module.kind), .borrowed = {}});
}

void StageContent::add_op(const Op& op, const ModulePlan& module, bool is_trained) {
  std::vector<LocalWeight> listed;
  list_weights(op, {.tp = module.tp, .ep = module.ep, .tp_rank = tp_rank_}, listed);
  for (const LocalWeight& weight : listed) {
    weights_.push_back({.weight = weight,
                        .block = blocks_.size(),
                        .is_trained = is_trained,
                        .has_divided_rows = module.sequence_parallel && module.tp > 1});
  }
}

StageBuckets StageContent::buckets(const ModulePlan& module, bool of_experts) const {
  const bool has_own_experts = module.ep > 1;
  StageBuckets found;
  found.num_ranks = module.dp * module.cp / (of_experts ? module.ep : 1);
  found.rules = zero_rules(effective_zero(module.zero, found.num_ranks), module.zero_keep_gathered);
  found.kinds.resize(blocks_.size());
  std::vector<const StageWeight*> own;
  std::vector<int64_t> elements(blocks_.size());
  for (const StageWeight& weight : weights_) {
    if ((has_own_experts && weight.weight.is_expert) != of_experts) continue;
    own.push_back(&weight);
    elements[weight.block] += weight.weight.elements;
  }
  const double reduce_bytes = num_bytes(plan_->precision.reduce);
  const std::vector<int64_t> kinds = kinds_of_blocks(elements, module.zero, plan_->buckets_mb * 1e6 / reduce_bytes);
  const auto kind_alone = static_cast<int64_t>(blocks_.size());
  std::vector<BucketWeight> weights;
  for (const StageWeight* weight : own) {
    const int64_t kind = weight->is_alone ? kind_alone : kinds[weight->block];
    weights.push_back({.elements = weight->weight.elements,
                       .kind = kind,
                       .is_trained = weight->is_trained,
                       .has_decay = weight->is_trained && weight->weight.is_matrix});
    std::vector<int64_t>& used = found.kinds[weight->block];
    if (std::find(used.begin(), used.end(), kind) == used.end()) used.push_back(kind);
  }
  for (size_t block = 0; block < blocks_.size(); ++block) {
    if (!blocks_[block].borrowed) continue;
    const std::vector<int64_t>& others = found.kinds[*blocks_[block].borrowed];
    found.kinds[block].insert(found.kinds[block].end(), others.begin(), others.end());
  }
  found.layouts = lay_out_buckets(
      weights, {.max_elements = bucket_elements(plan_->buckets_mb, reduce_bytes), .num_shards = found.num_ranks});
  for (size_t bucket = 0; bucket < found.layouts.size(); ++bucket) {
    const std::vector<BucketSlot>& slots = found.layouts[bucket].slots;
    if (!slots.empty() && own[slots.front().parameter]->is_alone) found.table = bucket;
  }
  return found;
}

std::vector<StageContent> stages_of(const Plan& plan, size_t module, const Mesh& mesh, int64_t rank) {
  const bool is_encoder = plan.modules[module].is_encoder();
  std::vector<StagePart> parts;
  if (is_encoder) {
    parts = list_encoder_parts(plan, module);
  } else {
    list_stage_parts(plan, parts);
  }
  const TiedTable table = is_encoder ? TiedTable{} : tied_table(plan, parts);
  const std::vector<int64_t> coordinates = mesh.coordinates_of(rank);
  const int64_t row = coordinates[mesh.grid().axis("pp")];
  std::vector<StageContent> stages;
  const int32_t end = is_encoder ? static_cast<int32_t>(plan.modules[module].pp) : num_stages(plan);
  for (int32_t stage = 0; stage < end; ++stage) {
    if ((is_encoder ? stage : place_of_stage(plan, stage).rank) != row) continue;
    StageContent& content = stages.emplace_back(plan, stage, coordinates[mesh.grid().axis("tp")], table);
    for (const StagePart& part : parts) {
      if (part.stage == stage) content.add(part);
    }
  }
  return stages;
}

}  // namespace weft
