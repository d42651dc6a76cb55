#pragma once

#include <algorithm>
#include <vector>

#include "weft/cost/cost_model.h"
#include "weft/search/candidate.h"
#include "weft/search/plan_stages.h"

namespace weft {

/// What an encoder beside the pipeline does in a step, on each of its ranks.
struct EncoderWork {
  double forward_ms = 0;   ///< of a whole macro batch
  double backward_ms = 0;  ///< with what is recomputed; 0 where it is frozen
  double macros = 0;       ///< the last may be short: what its busiest rank has of a whole share
  double bridge_ms = 0;
  double tail_ms = 0;  ///< reduction and update
  // In GiB on a rank, as the simulator counts it.
  double static_gib = 0;
  double held_gib = 0;    ///< of a macro batch, from its forward to its backward
  double moment_gib = 0;  ///< while it runs

  double forwards_ms() const { return forward_ms * macros; }
  double backwards_ms() const { return backward_ms * macros; }
  double first_forward_ms() const { return forward_ms * std::min(1.0, macros); }
  double last_backward_ms() const;
  /// On ranks of its own, with one macro batch alive.
  double least_gib() const { return static_gib + held_gib + moment_gib; }
};

/// Who takes the samples of a last macro batch that is short: the first ranks full shares, as the runtime deals them
/// out; or all ranks as many, for bounds that hold however drawn samples are dealt out.
enum class LastMacro { kFullShares, kEvenShares };

/// The work of one of the plan's encoders as it is priced now.
EncoderWork work_of(const Plan& plan, const PlanCosts::Encoder& encoder, LastMacro last);

/// Whether inline encoders may push the llm's beginning into a later stage than the first, as layers are placed.
bool may_begin_later(const Plan& plan);

/// What encoders add to the pipeline's ranks, and to its time.
struct BesidePipeline {
  PlanStages::Beside ranks;
  double before_ms = 0;  ///< what runs before the pipeline's first action
};
/// `works` are by encoder of the plan that is not inline, in its order. Encoders that fill bubbles keep `live` macro
/// batches at most.
BesidePipeline beside_pipeline(const Plan& plan, const std::vector<EncoderWork>& works, int64_t live);

}  // namespace weft
