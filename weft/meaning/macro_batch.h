#pragma once

#include <cstdint>

#include "weft/plan/plan.h"

namespace weft {

// An encoder beside the pipeline takes a step's samples in the llm's order, macro batch after macro batch. Each of its
// data-parallel ranks takes mbs · mbs_scale / mbs_parts of them at once, a whole number. So a macro batch covers
// several microbatches of all llm ranks, or one microbatch is shared by more encoder ranks than the llm has, or is cut
// into several macro batches.

/// Samples that a rank of the module works on at once: a microbatch, or an encoder's share of a macro batch, of which a
/// step may not have as many.
int64_t samples_at_once(const Plan& plan, const ModulePlan& module);

/// Whether the share of a macro batch is a whole number of samples.
bool has_whole_samples(const Plan& plan, const ModulePlan& encoder);

/// How many macro batches of an encoder beside the pipeline a step has: 2.5 where the last is half full.
double num_macro_batches(const Plan& plan, const ModulePlan& encoder);

/// What the busiest rank has of a whole share in the last macro batch, which may be short: ranks take full shares as
/// long as there are samples, the first ones first, so that it is 1 unless a single rank has any.
double last_macro_share(const Plan& plan, const ModulePlan& encoder);

}  // namespace weft
