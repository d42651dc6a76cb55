#pragma once

#include <cstdint>
#include <span>

#include "weft/base/result.h"
#include "weft/families/media/rope_index.h"

namespace weft {

/// Behind `rope_index`, which has checked the media.
Result<RopeIndex> grid_rope_index(const RopeRules& rules, std::span<const int64_t> tokens, const SampleMedia& media);
Result<RopeIndex> clock_rope_index(const RopeRules& rules, std::span<const int64_t> tokens, const SampleMedia& media);

}  // namespace weft
