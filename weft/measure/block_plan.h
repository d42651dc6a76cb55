#pragma once

#include "weft/plan/plan.h"
#include "weft/profile/profile.h"

namespace weft {

/// A plan in which one rank has a block to itself, and that rank.
struct BlockPlan {
  Plan plan;
  size_t module = 0;  ///< of the plan
  int64_t rank = 0;
};

struct BlockPlanOptions {
  Precision precision = Precision::kFp32;
  BlockRecompute recompute = BlockRecompute::kKeep;
};
/// The error says what of the shape the model, or training, does not have.
Result<BlockPlan> plan_of_block(const Model& model, const BlockShape& shape, const BlockPlanOptions& options);

/// A plan of one rank that trains a model of which every module has one layer.
Plan plan_of_step(const Model& model, Precision precision, int64_t microbatches);

/// A plan of three ranks, of which the one in the middle has the first layers of the llm alone.
Plan plan_of_layers(const Model& model, Precision precision, int64_t num_layers);

}  // namespace weft
