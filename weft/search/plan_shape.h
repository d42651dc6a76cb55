#pragma once

#include <map>
#include <memory>
#include <tuple>

#include "weft/search/candidate.h"
#include "weft/search/chain_solver.h"

namespace weft {

/// A pipeline schedule with all that does not depend on times.
struct PlanShape {
  explicit PlanShape(Schedule whole);

  Schedule lowered;
  SolverShape solver;
};

/// The shapes of the pipelines that candidates have, made once each.
class PlanShapes {
 public:
  explicit PlanShapes(int64_t global_batch_samples) : global_batch_samples_(global_batch_samples) {}

  /// Valid until one of another candidate is asked for.
  PlanShape& of(const Candidate& c);

 private:
  using Key = std::tuple<ScheduleName, int64_t, int64_t, int64_t>;  // pp, vpp, microbatches

  int64_t global_batch_samples_;
  std::map<Key, std::unique_ptr<PlanShape>> shapes_;
  int64_t size_ = 0;  // pairs of stage and microbatch
};

}  // namespace weft
