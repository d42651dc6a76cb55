#pragma once

#include <span>

#include "weft/schedule/encoder_forms.h"

namespace weft {

/// Places EF and EB of the encoders `filling` (indices) into rows that hold everything else already, where they delay
/// it least. `placements` has the times of all encoders. See docs/design/encoder-forms.md.
Schedule fill_bubbles(const Schedule& fixed, std::span<const int32_t> filling,
                      std::span<const EncoderPlacement> placements, const StageDurations& durations);

}  // namespace weft
