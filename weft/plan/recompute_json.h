#pragma once

#include "weft/base/fields.h"
#include "weft/plan/plan.h"

namespace weft {

/// By [rank][chunk] a list of words, "full", "attention" and "keep", with a count behind what more than one block does:
/// ["full*2", "keep*14"]. A chunk that keeps everything has none.
Json recompute_to_json(const ModulePlan& module);

/// Reads the field "recompute" of a module in the given version of the document. The words of a chunk add up to its
/// layers, which must have been read.
void read_recompute(Fields& fields, int64_t version, ModulePlan& module);

}  // namespace weft
