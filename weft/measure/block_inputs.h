#pragma once

#include "weft/models/inputs.h"
#include "weft/profile/profile.h"

namespace weft {

/// A microbatch of the tokens that a shape asks for.
struct BlockInputs {
  Inputs inputs;
  double tokens = 0;  ///< of the module: as near to the shape's as patches and positions allow
};

/// Of the shape's module, before context parallelism shares it out. Every token of the llm has a target; an encoder's
/// inputs have no tokens.
Result<BlockInputs> inputs_of_block(const Model& model, ModelNumbers numbers, const BlockShape& shape);

}  // namespace weft
