#pragma once

#include <vector>

#include "weft/cost/cost_model.h"
#include "weft/cost/pipeline_costs.h"
#include "weft/cost/sample_cost.h"
#include "weft/meaning/balance.h"
#include "weft/schedule/schedule.h"

namespace weft {

/// What a plan's samples cost, and who takes which. One serves all batches of a plan.
class SampleWork {
 public:
  /// The plan must outlive it.
  SampleWork(const Plan& plan, const CostModel& model) : plan_(plan), costs_(model, plan) {}

  /// By sample of a batch.
  BatchCosts of(const std::vector<SampleLoad>& samples) const;

 private:
  const Plan& plan_;
  PlanSampleCosts costs_;
};

/// One step's samples, dealt to data-parallel ranks and microbatches as the plan says.
class DrawnBatch {
 public:
  /// What is handed in must outlive it.
  DrawnBatch(const Plan& plan, const CostModel& model, const SampleWork& work, const std::vector<SampleLoad>& samples);

  /// What a replica of the llm takes, by microbatch.
  using Turns = std::vector<std::vector<int64_t>>;
  /// What the replicas that take longest have, slowest first: the step ends with one of them. Where replicas wait for
  /// one another in every microbatch there is one, with the longest microbatch of all in each turn.
  std::vector<Turns> slowest() const;
  /// What each replica has, by data-parallel rank; the same for all where they wait for one another.
  std::vector<Turns> replicas() const;

  /// Puts these samples' own times into a table that was made for the mean batch.
  void apply(const Turns& turns, const Schedule& schedule, const PlanCosts& mean, PipelineCosts& times) const;

  /// What some samples ask of a module, all together.
  Segments joined(const std::vector<int64_t>& samples, ModuleKind kind) const;
  /// What the encoder's busiest data-parallel rank takes of a macro batch.
  Segments macro_load(const ModulePlan& encoder, int32_t macro) const;

 private:
  /// What some samples cost, all together.
  static double sum_of(const std::vector<int64_t>& samples, const std::vector<double>& costs);
  /// Of the encoder with this place among those beside the pipeline.
  void apply_encoder(const PlanCosts& mean, size_t index, const ScheduledEncoder& rows, EncoderCosts& times) const;

  const Plan& plan_;
  const CostModel& model_;
  const std::vector<SampleLoad>& samples_;  ///< in the order in which they were drawn
  BatchCosts costs_;
  BatchAssignment assignment_;  ///< as a run of the plan would have it
};

}  // namespace weft
