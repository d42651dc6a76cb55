#pragma once

#include <memory>

#include "weft/search/drawn_loads.h"
#include "weft/search/plan_beside.h"
#include "weft/search/plan_shape.h"
#include "weft/search/plan_space.h"
#include "weft/simulate/plan_simulator.h"

namespace weft {

/// What candidates of a space are tried with: a plan that is filled with one after the other, what prices it, and the
/// shapes of pipelines.
class Workbench {
 public:
  /// `problem` is plan_without_settings'; the space must outlive this.
  Workbench(const PlanSpace& space, Plan problem, PlanSimulator simulator)
      : space_(space),
        plan_(std::move(problem)),
        simulator_(std::move(simulator)),
        shapes_(plan_.workload.global_batch_samples) {
    // As fill_plan writes them.
    simulator_.costs().assume_ascending_ranks();
  }

  const PlanSpace& space() const { return space_; }
  /// Where drawn batches decide: the loads that are assumed instead of the mean batch's.
  DrawnLoads* loads() { return loads_.get(); }
  void assume(std::unique_ptr<DrawnLoads> loads);
  LastMacro last_macro() const { return loads_ == nullptr ? LastMacro::kFullShares : LastMacro::kEvenShares; }
  PlanSimulator& simulator() { return simulator_; }

  /// The plan as it was filled last. What it says beyond modules and schedule never changes.
  Plan& plan() { return plan_; }
  const Plan& plan() const { return plan_; }
  void fill(const Candidate& c) { fill_plan(c, plan_); }
  /// Costs of the plan's modules that lie in its pipeline, by module; nothing for the others. Valid until the next
  /// call.
  const ModuleCostsOf& pipeline_costs();
  /// CostModel::block_costs of the same.
  const ModuleCostsOf& pipeline_blocks();

  size_t num_encoders() const { return plan_.modules.size() - 1; }
  EncoderSet inline_encoders(const Candidate& c) const { return weft::inline_encoders(c, num_encoders()); }
  int64_t microbatches(const Candidate& c) const { return c.microbatches(plan_.workload.global_batch_samples); }
  PlanShape& shape_of(const Candidate& c) { return shapes_.of(c); }

 private:
  const PlanSpace& space_;
  Plan plan_;
  PlanSimulator simulator_;
  PlanShapes shapes_;
  std::unique_ptr<DrawnLoads> loads_;
  ModuleCostsOf costs_;
};

}  // namespace weft
