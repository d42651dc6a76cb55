#pragma once

#include <cstdint>
#include <iterator>
#include <vector>

#include "weft/spec/sample_load.h"

namespace weft {

/// Where a token has no target.
inline constexpr int64_t kNoTarget = -100;

/// Patches of an image: so many rows of so many.
struct ImageGrid {
  int64_t rows = 0;
  int64_t columns = 0;

  int64_t num_patches() const { return rows * columns; }
  bool operator==(const ImageGrid&) const = default;
};

/// Patches of a video: so many frames, of temporal patches, of an image's patches each.
struct VideoGrid {
  int64_t frames = 0;
  ImageGrid frame;
  double frame_seconds = 1;  ///< from one to the next

  int64_t num_patches() const { return frames * frame.num_patches(); }
  bool operator==(const VideoGrid&) const = default;
};

/// One training sample: tokens, what they are to predict, and the media that some of them stand for.
struct Sample {
  std::vector<int64_t> ids;
  /// Tokens of each conversation in it, which do not see each other; empty: there is one.
  std::vector<int64_t> segments;
  std::vector<int64_t> targets;  ///< of each token the next one, or kNoTarget
  std::vector<ImageGrid> images;
  std::vector<float> pixels;  ///< of all images, patch by patch
  std::vector<VideoGrid> videos;
  std::vector<float> video_pixels;
  std::vector<int64_t> clip_frames;
  std::vector<float> features;             ///< [mel bins, frames of all clips]
  std::vector<std::vector<double>> named;  ///< by input of a user's own program, which reads nothing else
  SampleLoad load;                         ///< what it asks of each module
  bool stands_in = false;                  ///< for a sample of which nothing can be used

  int64_t num_segments() const { return segments.empty() ? 1 : std::ssize(segments); }
};

}  // namespace weft
