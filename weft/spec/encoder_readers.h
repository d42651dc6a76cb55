#pragma once

#include "weft/base/fields.h"
#include "weft/spec/model.h"

namespace weft {

/// Both fill in the part of the geometry that they know. `llm_width` is what the encoder's output must fit.
Module read_qwen2_vision(Fields& config, int64_t llm_width, MediaGeometry& media);
Module read_qwen2_5_vision(Fields& config, int64_t llm_width, MediaGeometry& media);
Module read_qwen2_5_audio(Fields& config, int64_t llm_width, MediaGeometry& media);

}  // namespace weft
