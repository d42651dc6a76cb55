#pragma once

#include "weft/cost/block_time.h"
#include "weft/program/program_blocks.h"

namespace weft {

/// A block of a user's own program as its ranks run it: what its operators compute on their parts, by the prices that
/// strategies are searched by, and what its exchanges take. Without a host that is late.
struct ProgramTime {
  BlockTime time;
  OpTime compute;  ///< of all operators
};
ProgramTime program_time(const BlockProgram& block, const BlockSetting& setting, const Cluster& cluster,
                         const Segments& segments);

}  // namespace weft
