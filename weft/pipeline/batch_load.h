#pragma once

#include "weft/meaning/step_load.h"
#include "weft/models/inputs.h"

namespace weft {

/// What an encoder works on, of packed samples; nothing where they have none of its media.
std::optional<EncoderLoad> encoder_load(ModuleKind kind, const Inputs& inputs);

/// What the llm and inline encoders do with a microbatch. Media of encoders beside the pipeline are left out.
MicrobatchLoad microbatch_load(const Inputs& inputs, bool vision_is_beside, bool audio_is_beside);

}  // namespace weft
