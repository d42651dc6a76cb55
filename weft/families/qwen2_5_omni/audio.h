#pragma once

#include "weft/families/family.h"

namespace weft {

/// The audio encoder: two convolutions, layers that attend inside chunks, and an average over pairs of rows. Its output
/// must fit the llm.
Module read_omni_audio(Fields& config, int64_t llm_width, const std::string& prefix, DeclaredModel& model);

}  // namespace weft
