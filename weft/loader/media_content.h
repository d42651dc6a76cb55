#pragma once

#include <optional>
#include <vector>

#include "weft/data/conversations/media_rules.h"
#include "weft/prepare/log_mel.h"

namespace weft {

/// Decodes an image or a video and appends its patches, of the shape that its headers have promised. The error is about
/// these files alone.
std::optional<Error> append_patches(const MediaReference& media, const PatchRules& rules, const MediaShape& shape,
                                    std::vector<float>& patches);

/// The same of the patches of tiles.
std::optional<Error> append_tiles(const MediaReference& media, const TileRules& rules, const MediaShape& shape,
                                  std::vector<float>& patches);

/// Decodes a clip: [mel bins, shape.mel_frames].
Result<std::vector<float>> clip_features(const MediaReference& media, const LogMel& mel, const MediaShape& shape);

}  // namespace weft
