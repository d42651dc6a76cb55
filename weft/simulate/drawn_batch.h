#pragma once

#include <optional>
#include <vector>

#include "weft/cost/cost_model.h"
#include "weft/cost/pipeline_costs.h"
#include "weft/cost/sample_cost.h"
#include "weft/meaning/batch_assignment.h"
#include "weft/schedule/schedule.h"

namespace weft {

/// What tells a plan's heavy samples from light ones, and who takes which. One serves all batches of a plan.
class SampleWork {
 public:
  /// The plan must outlive it.
  SampleWork(const Plan& plan, const CostModel& model);

  /// Multiply-adds with weights of the pipeline's modules.
  double of(const SampleLoad& sample) const;
  BatchAssignment assign(const std::vector<SampleLoad>& samples) const;

 private:
  struct Weight {
    ModuleKind kind;
    double parameters;
  };
  const Plan& plan_;
  std::vector<Weight> weights_;
  std::optional<PlanSampleCosts> costs_;  ///< where the plan balances
};

/// One step's samples, dealt to data-parallel ranks and microbatches as the plan says.
class DrawnBatch {
 public:
  /// What is handed in must outlive it.
  DrawnBatch(const Plan& plan, const CostModel& model, const SampleWork& work, const std::vector<SampleLoad>& samples);

  /// What a replica of the llm takes, by microbatch.
  using Turns = std::vector<std::vector<int64_t>>;
  /// What the replicas with most work take, heaviest first: the step ends with one of them. Where replicas wait for one
  /// another in every microbatch there is one, with the heaviest microbatch of all in each turn.
  std::vector<Turns> slowest() const;

  /// Puts these samples' own times into a table that was made for the mean batch.
  void apply(const Turns& turns, const Schedule& schedule, const PlanCosts& mean, PipelineCosts& times) const;

 private:
  /// Everything of one kind in some samples.
  Segments joined(const std::vector<int64_t>& samples, ModuleKind kind) const;
  double work_of(const std::vector<int64_t>& samples) const;
  void apply_encoder(const PlanCosts::Encoder& mean, const EncoderRows& rows, EncoderCosts& times) const;
  Segments macro_load(const ModulePlan& encoder, int32_t macro) const;

  const Plan& plan_;
  const CostModel& model_;
  const SampleWork& work_;
  const std::vector<SampleLoad>& samples_;  ///< in the order in which they were drawn
  BatchAssignment assignment_;              ///< as a run of the plan would have it
};

}  // namespace weft
