#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "weft/families/media/grid.h"

namespace weft {

/// The clock that a video's frames and its audio share.
struct ClipClock {
  int64_t positions_per_second = 25;
  double seconds_per_chunk = 2;

  int64_t positions_per_chunk() const {
    return static_cast<int64_t>(static_cast<double>(positions_per_second) * seconds_per_chunk);
  }
};

/// A video with its audio.
struct Clip {
  Grid video;
  int64_t merge_size = 2;
  double frame_seconds = 0;  ///< from one frame (temporal patch) to the next
  int64_t audio_tokens = 0;

  int64_t tokens_per_frame() const { return num_merged_tokens({1, video.h, video.w}, merge_size); }
  int64_t num_tokens() const { return video.t * tokens_per_frame() + audio_tokens; }
};

/// Tokens [begin, end) of a clip's video or of its audio.
struct ClipPiece {
  bool is_audio = false;
  int64_t begin = 0;
  int64_t end = 0;

  bool operator==(const ClipPiece&) const = default;
};

/// How the tokens of a clip alternate: a chunk's video, its audio, the next chunk's video, and so on. Who writes a
/// sample's tokens goes by this.
std::vector<ClipPiece> clip_layout(const Clip& clip, const ClipClock& clock);

/// Where frames stand on the clock, counted from the first, in the model's single precision.
std::vector<int64_t> frame_positions(int64_t num_frames, double frame_seconds, const ClipClock& clock);

/// The layout by those positions. A frame on the very border of two chunks can come out on the other side of it than in
/// `clip_layout`, which computes in double precision: Hugging Face's model and processor differ like that, too.
std::vector<ClipPiece> clip_layout_of_positions(const Clip& clip, const ClipClock& clock);

/// A token of a clip that is audio and should be video, or the other way round.
struct ClipMismatch {
  int64_t offset = 0;
  bool expects_audio = false;
};

/// The first token of a clip that is not where it should be. `is_audio` says of each of its tokens what it is. Either
/// side of a border is right for a frame that rounding to single precision could put on either.
std::optional<ClipMismatch> find_clip_mismatch(const Clip& clip, const ClipClock& clock,
                                               const std::vector<bool>& is_audio);

}  // namespace weft
