#pragma once

#include "weft/cost/module_placements.h"
#include "weft/meaning/op_share.h"
#include "weft/spec/precision.h"
#include "weft/spec/workload.h"

namespace weft {

/// How a module's work is divided, as far as the operators of one rank feel it.
struct BlockSetting {
  int64_t tp = 1, cp = 1, cp_ulysses = 1, ep = 1;
  bool sequence_parallel = false;
  bool experts_over_tp = false;
  bool places_whole_rows = false;  ///< of the llm: encoders' rows are placed among whole rows of the embedding
  bool even_experts = false;       ///< a device by itself: experts have the mean of the rows, not the busiest rank's
  bool gives_media_rows = false;   ///< of an inline encoder: its rows go to other context-parallel ranks' tokens
  bool divides_parts = false;      ///< of its further parts each tensor-parallel rank of the llm goes on with some rows
  bool balances_experts = false;   ///< routers have a loss for even loads
  bool overlap_tp = true;          ///< communication of input gradients runs behind weight gradients
  Precision precision = Precision::kBf16;
  AttentionKernel attention = AttentionKernel::kFused;
  GroupLink tp_link, cp_link, ulysses_link, ring_link, ep_link;
  GroupLink balance_link;  ///< of ranks whose routers see one microbatch

  /// By how many the rows between tensor-parallel regions are divided.
  int64_t row_share() const { return sequence_parallel ? tp : 1; }
  /// The largest of any rank.
  OpShare share() const { return {.tp = tp, .ep = ep, .experts_over_tp = experts_over_tp, .tp_rank = {}}; }
  bool operator==(const BlockSetting&) const = default;
};

/// Whether the llm places rows of some encoder among whole rows of its embedding: all that come whole, on every
/// tensor-parallel rank.
bool places_whole_rows(const Plan& plan, const ModulePlan& module);
/// Whether an encoder's rows go to the tokens of other context-parallel ranks inside the pipeline.
bool gives_media_rows(const ModulePlan& module);
/// Whether each tensor-parallel rank of the llm goes on with some rows of the further parts of an encoder's output.
bool divides_parts(const Plan& plan, const ModulePlan& module);

/// A module's setting in a plan, whose groups lie on the cluster as place_module says.
BlockSetting setting_of(const Plan& plan, const ModulePlan& module, const ModulePlacements& placements);

}  // namespace weft
