#pragma once

#include <vector>

#include "weft/cost/cost_model.h"
#include "weft/cost/pipeline_costs.h"
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
  const SampleLoad& sample(int64_t microbatch, int64_t replica, int64_t index) const;
  /// Everything of one kind in the samples first ≤ i < first + count of the step's order.
  Segments joined(int64_t first, int64_t count, ModuleKind kind) const;
  void deal();
  void apply_encoder(const PlanCosts::Encoder& mean, const EncoderRows& rows, EncoderCosts& times) const;
  Segments macro_load(const ModulePlan& encoder, int32_t macro) const;
  bool balances(Balance which) const;

  const Plan& plan_;
  const CostModel& model_;
  std::vector<SampleLoad> samples_;  ///< by microbatch, then replica, then place in the microbatch
};

}  // namespace weft
