#pragma once

#include <vector>

#include "weft/cost/state_cost.h"
#include "weft/meaning/tied_table.h"
#include "weft/meaning/trainable.h"

namespace weft {

/// What one pipeline stage of the llm, with inline encoders, costs one of its ranks.
struct StageCost {
  // One microbatch.
  PassTime forward;
  PassTime backward_input;
  PassTime backward_weight;
  PassTime recompute;          ///< runs before the input gradient
  double zero_forward_ms = 0;  ///< ZeRO's communication that holds the forward up
  double zero_backward_ms = 0;
  double zero_between_nodes_ms = 0;  ///< that it keeps the node's cards busy, forward and backward together
  double offload_forward_ms = 0;
  double offload_backward_ms = 0;
  double copies_ms = 0;         ///< gradients of copied weights over tensor-parallel ranks, with ZeRO 2 and 3
  double action_ms = 0;         ///< around a forward, and around a backward
  double transfer_ms = 0;       ///< latency of a transfer to a neighbour, and what follows it
  double transfer_busy_ms = 0;  ///< of the sender's link
  // Once a step.
  double reduce_ms = 0;
  double last_copies_ms = 0;  ///< of reduce_ms: gradients of copied weights, with ZeRO 0 and 1
  double update_ms = 0;
  // Bytes.
  StateMemory state;
  double activation_bytes = 0;  ///< of one microbatch
  double deferred_bytes = 0;    ///< more of it between an input gradient and a weight gradient that comes later
  double workspace_bytes = 0;
  double flight_bytes = 0;    ///< gradients on their way to ranks with the same weights, from one action to the next
  double passing_bytes = 0;   ///< gathered values and gradients that are being made, while an action runs
  double transfer_bytes = 0;  ///< on their way to and from neighbours

  double forward_ms() const { return forward.total_ms() + zero_forward_ms + offload_forward_ms + action_ms; }
  double backward_input_ms() const {
    return recompute.total_ms() + backward_input.total_ms() + zero_backward_ms + offload_backward_ms + action_ms;
  }
  double backward_weight_ms() const { return backward_weight.total_ms() + copies_ms; }
  /// Those that are there between actions, too.
  double buffer_bytes() const { return flight_bytes + transfer_bytes; }
};

/// By module of the plan; entries of encoders that are not in the pipeline are not read.
using ModuleCostsOf = std::vector<const ModuleCosts*>;

/// What the host takes around a forward, and around a backward, of the llm's pipeline.
double action_ms(const Plan& plan);

/// Adds what a part costs to its stage.
void price_part(const Plan& plan, const StagePart& part, const ModuleCosts& costs, const TiedTable& table,
                StageCost& stage);

/// The same of a part that was priced as its stage's only one.
void add_part_cost(const StageCost& part, StageCost& stage);

/// What a rank passes to the next stage of a module with so many layers behind, beside rows those that its exit will
/// take.
double bytes_between(const Module& module, const ModuleCosts& costs, int64_t layers_behind);
/// Adds what brings an encoder's rows to the llm: to the stage where the llm begins or, beside the pipeline, to the
/// encoder's last.
void price_output(const Plan& plan, const ModulePlan& encoder, const ModuleCosts& costs, StageCost& stage);

/// Adds what it costs a stage to pass so many bytes of a module to the next one, on every rank.
void price_transfer(const ModulePlan& module, const ModuleCosts& costs, double bytes, StageCost& stage);

/// Adds what it costs a stage to pass on, with the llm's rows, so many of the parts of an encoder's rows that its later
/// layers are to add (num_later_parts).
void price_later_parts(const Plan& plan, const ModulePlan& encoder, const ModuleCostsOf& modules, int64_t num_parts,
                       StageCost& stage);

/// Where transfers and ZeRO's gathers both leave the node, they share its cards: while both are on their way each is
/// half as fast. For a stage whose parts and transfer are priced.
void share_cards(const ModuleCosts& llm, StageCost& stage);

/// The stages' costs, for the microbatch that the modules were priced for. `stages` is resized; nothing else is
/// allocated when it is large enough. The parts are list_stage_parts'.
void price_stages(const Plan& plan, const std::vector<StagePart>& parts, const ModuleCostsOf& modules,
                  std::vector<StageCost>& stages);

/// The stages of an encoder beside the pipeline, for the macro batch that it was priced for.
void price_encoder(const Plan& plan, int32_t module, const ModuleCosts& costs, std::vector<StageCost>& stages);

}  // namespace weft
