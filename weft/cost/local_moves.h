#pragma once

#include "weft/meaning/program_exchanges.h"

namespace weft {

/// What a rank reads and writes in its own memory to bring values of a block into other layouts: parts that it keeps,
/// zeros around them, blocks that are laid side by side before they are sent or after they have come.
struct LocalMoves {
  double forward_bytes = 0;
  double backward_input_bytes = 0;
  double backward_weight_bytes = 0;
};

/// Of the first tensor-parallel rank, which has as much as any.
LocalMoves local_moves(const ProgramMeaning& meaning, const RunLengths& lengths, int64_t element_bytes);

/// Whether parts of a dim of a rank's tensor lie behind each other in memory, so that nothing is packed.
bool lies_outermost(const Layout& layout, size_t dim);

/// Elements that such a rank reads and writes in one step, besides what its group communicates.
int64_t moved_elements(const Step& step);

}  // namespace weft
