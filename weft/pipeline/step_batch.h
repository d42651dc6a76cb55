#pragma once

#include <map>
#include <vector>

#include "weft/meaning/batch_assignment.h"
#include "weft/meaning/row_numbers.h"
#include "weft/models/inputs.h"

namespace weft {

/// One rank's share of a step's batch.
struct StepBatch {
  /// Of the llm; empty where it is not. Media of encoders beside the pipeline need not be in them, their places must.
  std::vector<Inputs> microbatches;
  /// Of encoders beside the pipeline that are here: a macro batch has its samples' media, maybe none; the rest of
  /// Inputs is not read.
  std::map<ModuleKind, std::vector<Inputs>> encoders;
  // Of the whole batch, the same on all ranks. Only read where encoders are beside the pipeline.
  BatchAssignment assignment;
  std::vector<MediaRowCounts> media;  ///< by sample
};

}  // namespace weft
