#pragma once

#include <array>
#include <string>
#include <vector>

#include "weft/plan/plan.h"
#include "weft/schedule/generators.h"

namespace weft {

/// Of an encoder beside the pipeline: ZeRO 1 where the llm has any.
inline constexpr int64_t kUsualZero = -1;

/// How one encoder of a candidate is run.
struct EncoderChoice {
  ModulePlacement placement = ModulePlacement::kInline;
  int64_t tp = 1;
  int64_t mbs_scale = 1;
  EncoderForm form = EncoderForm::kBefore;
  bool recompute_from_inputs = false;
  int64_t recompute_layers = 0;  ///< so many, whole
  int64_t ranks = 0;             ///< disjoint: of its own, the last of the cluster
  int64_t stages = 0;            ///< partial: on the last so many pipeline ranks of the llm
  int64_t mbs_parts = 1;         ///< what mbs_scale is divided by
  int64_t cp = 1;                ///< with as much of Ulysses as heads allow
  bool sequence_parallel = false;
  int64_t zero = kUsualZero;
  bool zero_keep_gathered = false;

  bool is_inline() const { return placement == ModulePlacement::kInline; }
  bool fills() const { return !is_inline() && form == EncoderForm::kFill; }
  /// While the pipeline does, on its ranks.
  bool runs_within() const { return fills() || (!is_inline() && form == EncoderForm::kOnDemand); }
  bool operator==(const EncoderChoice&) const = default;
};

/// The most encoders that a model has in front of its llm.
inline constexpr size_t kMostEncoders = 2;
/// By encoder of the model, in flow order.
using EncoderChoices = std::array<EncoderChoice, kMostEncoders>;

/// A plan without its layer placement and recomputation. How samples are reassigned is found when it is priced.
struct Candidate : Degrees {
  int64_t mbs = 1;
  bool stages_are_neighbours = false;  ///< pp inside dp, instead of dp inside pp
  bool recompute_logits = false;       ///< of the llm's loss
  ScheduleName schedule = ScheduleName::k1f1b;
  EncoderChoices encoders;
  Balance balance = Balance::kNone;

  int64_t microbatches(int64_t global_batch) const { return global_batch / (mbs * dp); }
  /// Whether a step is the pipeline's time and the encoders', one after the other.
  bool is_separable() const;
  /// "tp 8, pp 4, dp 2, mbs 1, zero 1, sequence parallel, 1f1b, vision inline".
  std::string text(const Plan& plan) const;
  bool operator==(const Candidate&) const = default;
};

/// A set of encoders: bit e stands for the model's encoder e.
using EncoderSet = unsigned;
inline constexpr size_t kMostEncoderSets = size_t{1} << kMostEncoders;

/// Those of the model's first `num_encoders` that lie in the candidate's pipeline.
EncoderSet inline_encoders(const Candidate& candidate, size_t num_encoders);

/// Degrees with these encoders inline and the others colocated, but for those that have ranks of their own.
Candidate with_inline(const Candidate& degrees, EncoderSet encoders);

/// What candidates share: model, cluster, workload, and everything that is not searched.
Plan plan_without_settings(Model model, Cluster cluster, Workload workload);

/// The candidate as a plan, with layers spread evenly and nothing recomputed. `plan` is plan_without_settings', or was
/// filled before.
void fill_plan(const Candidate& candidate, Plan& plan);

}  // namespace weft
