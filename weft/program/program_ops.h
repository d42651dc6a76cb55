#pragma once

#include "weft/program/module.h"
#include "weft/program/program_blocks.h"
#include "weft/program/program_numbers.h"

namespace weft {

/// The operators of a block as they are priced, with the names of their weights. A bias that is added to a product is
/// the product's. `tied` is a weight of the entry that the block reads, too. Fails for what no such operator stands
/// for, with its name.
Result<std::vector<Op>> ops_of(const BlockProgram& block, const ProgramFeatures& features, const ProgramRows& rows,
                               std::optional<std::string> tied);

/// By value of a block's program, the operator of its block whose weight it is, and whether it is the second one, a
/// bias. Nothing for what is no weight.
struct OpWeightPlace {
  size_t op = 0;
  bool is_bias = false;
  bool is_transposed = false;  ///< of a user's own program: the operator has its dims in the other order
};
std::vector<std::optional<OpWeightPlace>> weight_places(const Program& program, const std::vector<Op>& ops);

}  // namespace weft
