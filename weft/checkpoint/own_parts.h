#pragma once

#include <span>

#include "weft/checkpoint/weight_route.h"
#include "weft/optim/owned_pieces.h"

namespace weft {

/// What the optimizers of a rank own of named weights.
struct OwnParts {
  std::vector<OwnedPiece> pieces;
  std::vector<RoutedPart> parts;   ///< of each piece, with the types and the updates that it has
  std::vector<size_t> optimizers;  ///< which each piece is of

  /// Lets the optimizers go on after so many updates, with moments that are of `updates`, by piece.
  void restore(std::span<StageOptimizer* const> all, int64_t step, const std::vector<int64_t>& updates) const;
};

OwnParts own_parts(std::span<StageOptimizer* const> optimizers, int64_t rank);

/// What an optimizer owns of named weights that this rank is to write, as views: all of it or, where the ranks of its
/// group own the same, this rank's stretch of all of it laid end to end.
std::vector<OwnedPiece> pieces_to_write(const StageOptimizer& optimizer);

/// Makes zero what the optimizers own without a name: rows that only fill up.
void clear_unnamed(std::span<StageOptimizer* const> optimizers);

/// Of each wanted part from `first` on, as many as there are: the updates that its moments will be of.
std::vector<int64_t> updates_after(const PartIndex& held, const std::vector<RoutedCopy>& copies, size_t first,
                                   size_t count);

}  // namespace weft
