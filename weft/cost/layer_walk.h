#pragma once

#include "weft/cost/op_walk.h"
#include "weft/spec/model.h"

namespace weft {

/// One layer of a module.
struct LayerWalk {
  const Block& block;
  bool is_exchanged = false;  ///< its experts are shared out to ranks
  int64_t received_rows = 0;  ///< by experts here, where they are

  CountedTensor forward(const CountedTensor& x, const WalkContext& context) const;
};

}  // namespace weft
