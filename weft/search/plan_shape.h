#pragma once

#include <map>
#include <memory>
#include <optional>
#include <tuple>

#include "weft/search/candidate.h"
#include "weft/search/chain_solver.h"

namespace weft {

/// A pipeline schedule with all that does not depend on times. Most schedules are ruled out by their mix alone, so that
/// the rest is made when it is asked for.
class PlanShape {
 public:
  explicit PlanShape(Schedule whole) : whole_(std::move(whole)), mix_(plain_mix(whole_)) {}

  const Schedule& schedule() const { return solver_ != nullptr ? solver_->schedule : whole_; }
  /// Of the plain paths.
  const PathMix& mix() const { return mix_; }
  SolverShape& solver();
  const Schedule& lowered();

 private:
  Schedule whole_;  // the solver's once there is one
  PathMix mix_;
  std::unique_ptr<SolverShape> solver_;
  std::optional<Schedule> lowered_;
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
