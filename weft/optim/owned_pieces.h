#pragma once

#include <vector>

#include "weft/optim/stage_optimizer.h"

namespace weft {

/// One piece of what an optimizer owns. Pieces without a name are zero.
struct OwnedPiece {
  const Parameter* parameter = nullptr;
  size_t index = 0;  ///< of the parameter among the stage's
  const WeightPiece* piece = nullptr;
  ElementRange elements;  ///< of the piece, flattened
  AdamWState state;       ///< of these elements, as views
};

/// All of them. Who fills their master weights, from wherever, has the optimizer restore() values from them: a rank
/// then never holds more of a weight than it keeps.
std::vector<OwnedPiece> owned_pieces(const StageOptimizer& optimizer);

}  // namespace weft
