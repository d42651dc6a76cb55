#include "weft/meaning/stage_buckets.h"

#include <algorithm>

#include "weft/base/check.h"
#include "weft/meaning/copied_weights.h"
#include "weft/meaning/divided_rows.h"
#include "weft/meaning/expert_ranks.h"
#include "weft/meaning/weight_copies.h"
#include "weft/program/name_weights.h"

namespace weft {

void StageContent::add(const StagePart& part) {
  const ModulePlan& module = plan_->modules[static_cast<size_t>(part.module)];
  const Module& spec = *plan_->model.find(module.kind);
  const bool has_tied_end = !module.is_encoder() && table_.is_copied;
  const bool is_table_alone = has_tied_end && trainable_.trains_table();
  const size_t first_block = blocks_.size();
  parts_.push_back(part);
  if (part.has_entry) add_block(module, 0, is_table_alone);
  for (int64_t layer = part.first_layer; layer < part.first_layer + part.num_layers; ++layer)
    add_block(module, layer + 1, false);
  if (!part.has_exit) return;
  if (has_tied_end) {
    const size_t first = weights_.size();
    for (const Op& op : spec.entry.ops) {
      if (is_divided_table(op)) add_op(op, module, is_table_alone);
    }
    for (size_t i = first; i < weights_.size(); ++i) {
      weights_[i].is_trained = trainable_.trains_table();
      weights_[i].weight.is_product = true;  // there it is the head's
      weights_[i].is_counted = false;        // and the embedding's is
    }
  }
  add_block(module, num_blocks(spec) - 1, false);
  if (!module.is_encoder() && plan_->model.has_tied_embeddings && part.has_entry) blocks_.back().borrowed = first_block;
}

void StageContent::add_block(const ModulePlan& module, int64_t place, bool has_table_alone) {
  const std::vector<bool> trained = trainable_.weights_of(module.kind, place);
  const size_t first = weights_.size();
  for (const Op& op : block_at(*plan_->model.find(module.kind), place).ops)
    add_op(op, module, has_table_alone && is_divided_table(op));
  WEFT_CHECK(weights_.size() - first == trained.size(), "{} weights, {} of which are known", weights_.size() - first,
             trained.size());
  for (size_t i = first; i < weights_.size(); ++i) weights_[i].is_trained = trained[i - first];
  blocks_.push_back({.has_backward = trainable_.backward_of(module.kind, place).runs(), .borrowed = {}});
}

void StageContent::add_op(const Op& op, const ModulePlan& module, bool is_alone) {
  std::vector<LocalWeight> listed;
  list_weights(op, share_of(module, tp_rank_), listed);
  for (const LocalWeight& weight : listed) {
    weights_.push_back({.weight = weight,
                        .block = blocks_.size(),
                        .is_of_table = !module.is_encoder() && is_divided_table(op),
                        .is_alone = is_alone,
                        .has_divided_rows = divides_rows(module) && !op.held,
                        .is_shared_out = weight.is_expert && module.ep > 1,
                        .is_counted = !weight.is_whole || tp_rank_ == 0 || module.tp == 1,
                        .module = static_cast<int32_t>(&module - plan_->modules.data())});
  }
}

std::vector<StageContent::Copies> StageContent::copies() const {
  std::vector<Copies> copies(blocks_.size());
  for (const StageWeight& weight : weights_) {
    if (!weight.is_trained) continue;
    Copies& own = copies[weight.block];
    (weight.is_shared_out ? own.of_experts : own.over_tp) += summed_over_tp(weight.weight, weight.has_divided_rows);
    copies[weight.block].of_keys += weight.weight.same_keys;
  }
  return copies;
}

StageBuckets StageContent::buckets(const ModulePlan& module, bool of_experts) const {
  const bool has_own_experts = module.ep > 1;
  StageBuckets found;
  found.num_ranks = of_experts ? num_expert_copies(module) : num_weight_copies(module);
  found.rules = of_experts ? rules_of_experts(module) : rules_of_weights(module);
  found.bundles.resize(blocks_.size());
  std::vector<const StageWeight*> own;
  std::vector<int64_t> elements(blocks_.size());
  for (const StageWeight& weight : weights_) {
    if ((has_own_experts && weight.weight.is_expert) != of_experts) continue;
    own.push_back(&weight);
    found.weights.push_back(static_cast<size_t>(&weight - weights_.data()));
    elements[weight.block] += weight.weight.elements;
  }
  const double reduce_bytes = num_bytes(plan_->precision.reduce);
  const std::vector<int64_t> bundles = bundles_of_blocks(elements, module.zero, plan_->buckets_mb * 1e6 / reduce_bytes);
  const auto bundle_alone = static_cast<int64_t>(blocks_.size());
  std::vector<BucketWeight> weights;
  for (const StageWeight* weight : own) {
    const int64_t bundle = weight->is_alone ? bundle_alone : bundles[weight->block];
    weights.push_back({.elements = weight->weight.elements,
                       .bundle = bundle,
                       .is_trained = weight->is_trained,
                       .has_decay = weight->is_trained && weight->weight.is_matrix});
    std::vector<int64_t>& used = found.bundles[weight->block];
    if (std::find(used.begin(), used.end(), bundle) == used.end()) used.push_back(bundle);
  }
  for (std::vector<int64_t>& used : found.bundles) std::sort(used.begin(), used.end());
  for (size_t block = 0; block < blocks_.size(); ++block) {
    if (!blocks_[block].borrowed) continue;
    const std::vector<int64_t>& others = found.bundles[*blocks_[block].borrowed];
    found.bundles[block].insert(found.bundles[block].end(), others.begin(), others.end());
  }
  found.layouts = lay_out_buckets(
      weights, {.max_elements = bucket_elements(plan_->buckets_mb, reduce_bytes), .num_shards = found.num_ranks});
  for (size_t bucket = 0; bucket < found.layouts.size(); ++bucket) {
    const std::vector<BucketSlot>& slots = found.layouts[bucket].slots;
    if (!slots.empty() && own[slots.front().parameter]->is_alone) found.table = bucket;
  }
  return found;
}

std::vector<StageContent> stages_of(const Plan& plan, size_t module, const RankPlace& place) {
  const std::vector<StagePart> parts = parts_of_pipeline(plan, module);
  const TiedTable table = plan.modules[module].is_encoder() ? TiedTable{} : tied_table(plan, parts);
  std::vector<StageContent> stages;
  for (const int32_t stage : stages_on(plan, plan.modules[module], place.pp)) {
    StageContent& content = stages.emplace_back(plan, stage, place.tp, table);
    for (const StagePart& part : parts) {
      if (part.stage == stage) content.add(part);
    }
  }
  return stages;
}

}  // namespace weft
