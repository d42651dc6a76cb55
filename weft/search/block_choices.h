#pragma once

#include <vector>

#include "weft/cost/operator_prices.h"
#include "weft/program/module.h"
#include "weft/program/program_strategy.h"

namespace weft {

/// By operator of a block's own, what it does on the tensor-parallel axis.
using BlockChoices = std::vector<Choice>;

/// Choices of the fastest strategy of a block by itself and of slimmer ones, each with less memory than the one before;
/// rows come and leave as they lie between blocks. `samples` run at once.
Result<std::vector<BlockChoices>> choices_of_block(const BlockProgram& given, const ShardSetting& setting,
                                                   int64_t samples, bool divides_rows = false);

/// The words of choices that are not the block's own.
BlockEntries entries_for(const Block& block, const BlockChoices& choices, bool divides_rows = false);

}  // namespace weft
