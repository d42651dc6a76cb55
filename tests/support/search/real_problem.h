#pragma once

#include "tests/support/source_tree.h"
#include "weft/search/plan_advice.h"
#include "weft/spec/scenario.h"

namespace weft {

/// A problem of the size that practitioners have, from the scenarios that are shipped.
inline PlanProblem real_problem(const char* model, const char* cluster, int64_t nodes, const char* workload,
                                int64_t batch) {
  const Scenarios scenarios(source_tree() / "scenarios");
  PlanProblem problem{.model = *scenarios.model(model),
                      .cluster = *scenarios.cluster(cluster, nodes),
                      .workload = *scenarios.workload(workload),
                      .space = {}};
  problem.workload.global_batch_samples = batch;
  return problem;
}

}  // namespace weft
