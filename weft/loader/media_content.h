#pragma once

#include <optional>
#include <vector>

#include "weft/data/conversations/media_rules.h"
#include "weft/mesh/box.h"
#include "weft/prepare/log_mel.h"

namespace weft {

/// Decodes an image or a video and appends a part of its patches, of the shape that its headers have promised. The
/// error is about these files alone.
std::optional<Error> append_patches(const MediaReference& media, const PatchRules& rules, const MediaShape& shape,
                                    Range part, std::vector<float>& patches);

/// The same of the patches of tiles.
std::optional<Error> append_tiles(const MediaReference& media, const TileRules& rules, const MediaShape& shape,
                                  Range part, std::vector<float>& patches);

/// Decodes a clip: [mel bins, part.size()] of its shape.mel_frames. All of them are made, for the loudest is asked for.
Result<std::vector<float>> clip_features(const MediaReference& media, const LogMel& mel, const MediaShape& shape,
                                         Range part);

}  // namespace weft
