#pragma once

#include <optional>
#include <vector>

#include "weft/cost/block_memory.h"
#include "weft/meaning/program_exchanges.h"

namespace weft {

/// What a rank has to do with one operator of a program's block, in elements of one run.
struct OperatorElements {
  int64_t made = 0;
  int64_t read = 0;     ///< of activations, as they were made or arrived
  int64_t arrived = 0;  ///< of it, what was brought into another layout for this operator first
  int64_t scores = 0;   ///< that attention which drops some keeps: weights between the rows of a sample
  bool is_product = false;
};

/// By operator, of one tensor-parallel rank or, where none is named, the most that any has.
std::vector<OperatorElements> elements_of(const ProgramMeaning& meaning, const RunLengths& lengths,
                                          std::optional<int64_t> tp_rank);

/// What a run of a block's program keeps and needs: what every operator makes is kept until its backward.
BlockMemory program_memory(const BlockProgram& block, const BlockSetting& setting, const Segments& segments);

/// As a plan's setting has them.
ProgramMeaning::Ranks ranks_of(const BlockSetting& setting);

/// Samples of a microbatch, of which segments say the rows.
int64_t samples_of(const BlockProgram& block, const Segments& segments);

}  // namespace weft
