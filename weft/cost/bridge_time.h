#pragma once

#include <span>

#include "weft/cost/stage_cost.h"

namespace weft {

/// What one microbatch's embeddings take from an encoder beside the pipeline to where the llm begins, and their
/// gradients back.
struct BridgeTime {
  double busy_ms = 0;     ///< bytes over bandwidth, with the link to itself
  double latency_ms = 0;  ///< until the first byte
  bool leaves_node = false;
};

/// With nothing else on the link. `costs` are the encoder's.
BridgeTime bridge_alone(const Plan& plan, const ModulePlan& encoder, const ModuleCosts& costs);

/// Beside what leaves the node at the same time, over the same cards: the pipeline's transfers, what ZeRO gathers and
/// scatters with every microbatch, and the bridges of other encoders. While two are on their way each is half as fast,
/// so that each of the others holds a bridge up by its own length, and by the bridge's at most. `bridges` are those of
/// all encoders, `llm` the llm's costs.
double shared_bridge_ms(const Plan& plan, const ModuleCosts& llm, std::span<const BridgeTime> bridges, size_t index);

/// What the same bridges take from a transfer of the stage at which the llm begins, where they end: each holds it up
/// for as long as it is held up itself. Transfers of other stages meet none.
double bridges_hold_up_ms(const Plan& plan, const ModuleCosts& llm, std::span<const BridgeTime> bridges);

/// Adds that to the stage at which the llm begins, where it passes anything on. `stages` are priced for the parts.
void share_with_bridges(const Plan& plan, const std::vector<StagePart>& parts, const ModuleCosts& llm,
                        std::span<const BridgeTime> bridges, std::vector<StageCost>& stages);

}  // namespace weft
