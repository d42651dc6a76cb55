#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "weft/base/document.h"
#include "weft/base/result.h"

namespace weft {

struct PixelSize {
  int64_t height = 0;
  int64_t width = 0;

  bool operator==(const PixelSize&) const = default;
};

/// How pictures of any size become patches: what preprocessor_config.json says.
struct PatchRules {
  int64_t patch = 14;          ///< pixels of a patch's side
  int64_t merge = 2;           ///< patches of the side of a block that becomes one token
  int64_t temporal_patch = 2;  ///< frames of a patch; an image is repeated
  int64_t min_pixels = 56 * 56;
  int64_t max_pixels = 28 * 28 * 1280;
  std::array<double, 3> mean = {0.48145466, 0.4578275, 0.40821073};
  std::array<double, 3> deviation = {0.26862954, 0.26130258, 0.27577711};
  double rescale = 1.0 / 255;
  bool limits_all_frames = false;  ///< pixels of all frames of a video together have the limits, not those of each
  int64_t max_frame_tokens = 0;    ///< of a video, where the frames' pixels are limited together; 0: as many as fit

  int64_t factor() const { return patch * merge; }
  int64_t values_per_patch() const { return 3 * temporal_patch * patch * patch; }
  bool operator==(const PatchRules&) const = default;
};

/// The rules of videos where no file names others.
PatchRules video_rules();
/// The same of videos whose frames stand apart.
PatchRules apart_video_rules();

/// How the names of the processors begin that a file may be of.
using ProcessorNames = std::span<const std::string>;

/// The rules of images in preprocessor_config.json, in all forms of it: min_pixels and max_pixels beside or inside
/// "size", size.shortest_edge and size.longest_edge, and the "image_processor" of a processor_config.json.
Result<PatchRules> read_image_rules(const Document& document, ProcessorNames processors);
/// The same of a video_preprocessor_config.json, or of the "video_processor" of a processor_config.json. `rules` has
/// what the file does not name.
Result<PatchRules> read_video_rules(const Document& document, PatchRules rules, ProcessorNames processors);

/// An image or video as patches: t frames (of temporal patches) of h rows of w patches.
struct PatchGrid {
  int64_t t = 1;
  int64_t h = 0;
  int64_t w = 0;

  int64_t num_patches() const { return t * h * w; }
  bool operator==(const PatchGrid&) const = default;
};

/// The size to which a picture is resized: multiples of rules.factor() near its own size, and with it the number of
/// pixels within the limits. `source` is what errors call the picture, or the video of `num_frames`.
Result<PixelSize> resized_size(const PatchRules& rules, PixelSize size, std::string_view source,
                               int64_t num_frames = 1);

/// Patches of a picture of a resized size, for `num_frames` frames (1 for an image; an odd last frame is repeated).
PatchGrid patch_grid(const PatchRules& rules, PixelSize resized, int64_t num_frames);

}  // namespace weft
