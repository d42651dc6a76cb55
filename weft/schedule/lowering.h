#pragma once

#include "weft/base/result.h"
#include "weft/schedule/schedule.h"

namespace weft {

/// Inserts the transfers that a compute-only schedule implies: SEND after the action that makes a tensor, RECV on the
/// other rank at the point that it had reached in a joint run. All pairs follow one joint order on both sides, so
/// channels may be unbuffered and in order, and nothing can deadlock. Rows between encoders and the llm are sent when a
/// macro batch is complete, SEND_R after its EF, SEND_G after the B or I that makes the last of its gradients, and are
/// received by who needs them: RECV_R before the first F that reads them, RECV_G before EB. Stages of an encoder's own
/// pipeline send as soon as an action is over and receive right before the next: SEND_EF after EF, RECV_EF before it,
/// and for gradients SEND_EB and RECV_EB around EB. The sends of encoders must not block.
/// Fails, naming the stuck ranks, when the rows wait for each other.
Result<Schedule> lower_schedule(const Schedule& schedule);

}  // namespace weft
