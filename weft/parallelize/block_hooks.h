#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "weft/layers/parameter.h"

namespace weft {

/// A block of a stage: an embedding, a layer, a head.
struct StageBlock {
  std::vector<ParameterPtr> parameters;
  std::optional<size_t> borrowed;  ///< the block whose parameters it uses, too: the embedding that a head is tied to
  bool has_backward = true;        ///< not where no weight of it or before it is trained
};

/// What others do as a microbatch goes through a stage's blocks, by their place among the stage's. They are called for
/// all blocks in order, also for those that have no data in a microbatch. A backward, which comes by in reverse, only
/// tells of blocks that it goes through.
struct BlockHooks {
  std::function<void(size_t)> before_forward;
  std::function<void(size_t)> after_forward;
  std::function<void(size_t)> before_backward;  ///< and those after it have had theirs
};

}  // namespace weft
