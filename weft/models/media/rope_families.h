#pragma once

#include <cstdint>
#include <span>

#include "weft/base/result.h"
#include "weft/models/media/rope_index.h"

namespace weft {

/// Behind `rope_index`, which has checked the media.
Result<RopeIndex> qwen_vl_rope_index(const RopeRules& rules, std::span<const int64_t> tokens, const SampleMedia& media);
Result<RopeIndex> qwen_omni_rope_index(const RopeRules& rules, std::span<const int64_t> tokens,
                                       const SampleMedia& media);

}  // namespace weft
