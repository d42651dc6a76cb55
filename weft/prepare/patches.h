#pragma once

#include <cstdint>
#include <span>

#include "weft/prepare/pixels.h"
#include "weft/probe/patch_rules.h"

namespace weft {

/// A part of a picture's patches, in the processor's order: block of merged patches by block, row by row within each.
struct PatchRange {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t size() const { return end - begin; }
  bool operator==(const PatchRange&) const = default;
};

/// Writes patches of a picture (one frame, which is repeated) or of a video (all frames in their order, of one size),
/// resized to `size` and normalised: [range.size(), rules.values_per_patch()], value for value as transformers' default
/// processor does. Only pixel rows that the range needs are worked on.
void prepare_patches(std::span<const Pixels* const> frames, const PatchRules& rules, PixelSize size, PatchRange range,
                     std::span<float> to);

}  // namespace weft
