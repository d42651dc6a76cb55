#pragma once

#include "weft/cost/block_time.h"
#include "weft/cost/operator_times.h"
#include "weft/meaning/program_exchanges.h"

namespace weft {

/// A block of a user's own program as its ranks run it: what its operators compute on their parts, by the prices that
/// strategies are searched by, and what its exchanges take. Without a host that is late.
struct ProgramTime {
  BlockTime time;
  OpTime compute;            ///< of all operators
  int64_t num_measured = 0;  ///< operators whose times a profile has, exactly or from another part of the operator
  int64_t num_scaled = 0;    ///< of these, the latter
};
/// The meaning is the block's to the setting's ranks. `measured` takes the place of formulas where it has an operator.
ProgramTime program_time(const ProgramMeaning& meaning, const BlockSetting& setting, const Cluster& cluster,
                         const Segments& segments, const OperatorTimes* measured = nullptr);

}  // namespace weft
