#include "weft/optim/owned_pieces.h"

namespace weft {

std::vector<OwnedPiece> owned_pieces(const StageOptimizer& optimizer) {
  std::vector<OwnedPiece> pieces;
  for (const OwnedPart& part : optimizer.owned_parts()) {
    int64_t begin = 0;
    for (const WeightPiece& piece : part.parameter->spec.pieces) {
      const ElementRange mine = common({begin, begin + piece.num_elements()}, part.elements);
      if (mine.size() > 0) {
        const auto view = [&](const at::Tensor& flat) {
          return flat.defined() ? range_view(flat, shifted(mine, -part.elements.begin)) : flat;
        };
        pieces.push_back({.parameter = part.parameter.get(),
                          .index = part.index,
                          .piece = &piece,
                          .elements = shifted(mine, -begin),
                          .state = {.master = view(part.state.master),
                                    .moment1 = view(part.state.moment1),
                                    .moment2 = view(part.state.moment2)}});
      }
      begin += piece.num_elements();
    }
  }
  return pieces;
}

}  // namespace weft
