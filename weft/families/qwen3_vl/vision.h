#pragma once

#include "weft/families/family.h"

namespace weft {

/// Patches with learned positions, of whose layers some hand their rows to mergers of their own: an output row is the
/// last layer's merged row, and behind it those of these layers.
Module read_stacked_patch_encoder(Fields& config, int64_t llm_width, int64_t llm_layers, const std::string& path,
                                  DeclaredModel& model);

}  // namespace weft
