#pragma once

#include "weft/layers/attention_core.h"

namespace weft {

/// Whether a GPU's fused attention takes these packed rows: half precision, heads of eights up to 128 elements.
bool has_device_attention(const at::Tensor& qkv, const HeadCounts& heads);

/// attention_core by a GPU's fused kernels, no matter how rows fall into segments: without padding, masks or scores in
/// memory. `qkv` is used up, here too.
at::Tensor device_attention(const at::Tensor& qkv, const HeadCounts& heads, const RotaryTable& rotary,
                            const PackedSegments& segments, AttentionMask mask, AttentionKeeps keeps);

}  // namespace weft
