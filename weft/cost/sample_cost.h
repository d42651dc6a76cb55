#pragma once

#include <map>
#include <vector>

#include "weft/cost/cost_model.h"

namespace weft {

/// What one more sample adds to a module's forward and backward: so much a token, so much a pair that attention
/// computes and, in a ring, so much a sequence. The times that it comes from are not straight everywhere (short
/// products are bound by memory, and the host can be slower than the device); it follows them around what the plan's
/// module takes at once on average.
class SampleCost {
 public:
  /// Milliseconds of one rank, all stages of a pipeline together. Never negative.
  double operator()(const Segments& segments) const;
  /// What a rank takes besides, however many samples it takes at once.
  double fixed_ms() const { return fixed_ms_; }

 private:
  friend SampleCost sample_cost(const CostModel& model, const Plan& plan, const ModulePlan& module);
  struct PairTerm {
    Attention attention;  ///< says which pairs there are
    double ms_per_pair = 0;
  };

  double ms_per_token_ = 0;
  double ms_per_sequence_ = 0;
  double fixed_ms_ = 0;
  std::vector<PairTerm> pairs_;  ///< of different masks
};

SampleCost sample_cost(const CostModel& model, const Plan& plan, const ModulePlan& module);

/// What samples cost in a plan, for those who deal them out.
class PlanSampleCosts {
 public:
  PlanSampleCosts(const CostModel& model, const Plan& plan);

  /// In the llm's pipeline: the llm and inline encoders.
  double llm_ms(const SampleLoad& sample) const;
  /// In an encoder beside the pipeline.
  double encoder_ms(ModuleKind kind, const SampleLoad& sample) const;

 private:
  std::map<ModuleKind, SampleCost> in_pipeline_;
  std::map<ModuleKind, SampleCost> beside_;
};

}  // namespace weft
