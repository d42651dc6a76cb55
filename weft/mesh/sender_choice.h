#pragma once

#include <cstdint>
#include <vector>

#include "weft/mesh/block_index.h"
#include "weft/mesh/bridge.h"

namespace weft {

/// Part of a block that a rank needs and has not.
struct Request {
  int64_t block = 0;
  int64_t rank = 0;
  Box box;
};

/// A sender for every request among the holders of its block: one on the receiver's node where there is one, and the
/// least loaded of these. Which of equally loaded holders comes first turns with the block's number, so that not all
/// blocks come from the first copy. Sorted by sender and receiver.
std::vector<Message> choose_senders(std::vector<Request> requests, const BlockIndex& blocks, const Mesh& mesh,
                                    const Topology* topology);

}  // namespace weft
