#pragma once

#include "weft/base/result.h"
#include "weft/plan/plan.h"

namespace weft {

/// A plan of the same ranks that texts grow by: modules lie where they do in a plan for training and divide their
/// weights alike, but for chunks, of which a rank has one, with the layers of all. A text's tokens come one at a time,
/// so nobody shares them out: what were ranks of context parallelism take texts of their own, as those of data
/// parallelism do, and a microbatch is one text. Nothing is trained but the smallest weight, so that no memory goes to
/// gradients and moments. An Error where no number of microbatches is legal.
Result<Plan> prediction_plan(const Plan& trained, Precision precision);

/// Texts that such a plan grows at once.
inline int64_t num_texts(const Plan& plan) {
  return plan.workload.global_batch_samples;
}

}  // namespace weft
