#pragma once

#include <cstdint>
#include <vector>

#include "weft/models/media/grid.h"

namespace weft {

/// The clock that a video's frames and its audio share.
struct ClipClock {
  int64_t positions_per_second = 25;
  double seconds_per_chunk = 2;

  int64_t positions_per_chunk() const {
    return static_cast<int64_t>(static_cast<double>(positions_per_second) * seconds_per_chunk);
  }
};

/// Tokens [begin, end) of a clip's video or of its audio.
struct ClipPiece {
  bool is_audio = false;
  int64_t begin = 0;
  int64_t end = 0;

  bool operator==(const ClipPiece&) const = default;
};

/// How the tokens of a video and its audio alternate: a chunk's video, its audio, the next chunk's video, and so on.
/// Who writes a sample's tokens goes by this.
std::vector<ClipPiece> clip_layout(const Grid& video, int64_t merge_size, double frame_seconds, int64_t audio_tokens,
                                   const ClipClock& clock);

/// The same for frames at given positions. A frame on the very border of a chunk can come out on the other side of it
/// than in `clip_layout`, which computes in double precision; Hugging Face's processor and model differ like that.
std::vector<ClipPiece> clip_layout_at(const std::vector<int64_t>& frame_positions, int64_t tokens_per_frame,
                                      int64_t audio_tokens, const ClipClock& clock);

/// Where frames stand on the clock, counted from the first, in the model's single precision.
std::vector<int64_t> frame_positions(int64_t num_frames, double frame_seconds, const ClipClock& clock);

}  // namespace weft
