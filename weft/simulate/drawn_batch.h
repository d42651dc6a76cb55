#pragma once

#include <vector>

#include "weft/cost/cost_model.h"
#include "weft/cost/pipeline_costs.h"
#include "weft/meaning/batch_assignment.h"
#include "weft/schedule/schedule.h"

namespace weft {

/// One step's samples, drawn from the workload and dealt to data-parallel ranks and microbatches as the plan says.
class DrawnBatch {
 public:
  /// Plan and cost model must outlive it.
  DrawnBatch(const Plan& plan, const CostModel& model, uint64_t seed);

  /// The llm's data-parallel ranks with most work, heaviest first: the step ends with one of them.
  std::vector<int64_t> slowest_replicas() const;

  /// Puts the replica's own times into a table that was made for the mean batch.
  void apply(int64_t replica, const Schedule& schedule, const PlanCosts& mean, PipelineCosts& times) const;

 private:
  /// Everything of one kind in some samples.
  Segments joined(const std::vector<int64_t>& samples, ModuleKind kind) const;
  void apply_encoder(const PlanCosts::Encoder& mean, const EncoderRows& rows, EncoderCosts& times) const;
  Segments macro_load(const ModulePlan& encoder, int32_t macro) const;

  const Plan& plan_;
  const CostModel& model_;
  std::vector<SampleLoad> samples_;  ///< in the order in which they were drawn
  BatchAssignment assignment_;       ///< as a run of the plan would have it
};

}  // namespace weft
