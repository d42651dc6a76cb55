#pragma once

#include <vector>

#include "weft/meaning/stage_parts.h"

namespace weft {

/// The table that embedding and head share in a model that ties them.
struct TiedTable {
  bool is_copied = false;  ///< they are in different stages, and the head's has a copy, even on the same rank
  bool is_summed_over_ranks = false;  ///< they are on different ranks, which sum their gradients of it
};

/// `parts` are list_stage_parts'.
TiedTable tied_table(const Plan& plan, const std::vector<StagePart>& parts);

/// The stage of the llm's pipeline in which the llm begins.
int32_t llm_entry_stage(const Plan& plan);
int32_t llm_entry_stage(const Plan& plan, const std::vector<StagePart>& parts);

}  // namespace weft
