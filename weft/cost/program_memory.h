#pragma once

#include "weft/cost/block_memory.h"
#include "weft/meaning/program_exchanges.h"

namespace weft {

/// What a run of a block's program keeps and needs: what its walk (program_walk.h) holds on a GPU.
BlockMemory program_memory(const Block& block, const BlockSetting& setting, const Segments& segments);

/// As a plan's setting has them.
ProgramMeaning::Ranks ranks_of(const BlockSetting& setting);

/// Samples of a microbatch, of which segments say the rows, or the part of one of so many context-parallel ranks.
int64_t samples_of(const BlockProgram& block, const Segments& segments, int64_t cp = 1);

}  // namespace weft
