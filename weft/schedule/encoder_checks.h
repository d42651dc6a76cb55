#pragma once

#include <optional>

#include "weft/base/error.h"
#include "weft/schedule/encoder_forms.h"

namespace weft {

/// Why an encoder cannot be placed into a pipeline in its form, if so.
std::optional<Error> check_placement(const Schedule& pipeline, const EncoderPlacement& encoder);

/// Why the times that filling needs are incomplete, if so.
std::optional<Error> check_durations(const Schedule& pipeline, std::span<const EncoderPlacement> encoders,
                                     const StageDurations& durations);

}  // namespace weft
