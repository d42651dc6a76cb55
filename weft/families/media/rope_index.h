#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "weft/base/result.h"
#include "weft/families/media/clip_layout.h"
#include "weft/families/media/grid.h"

namespace weft {

/// The ids of the tokens that stand for media or enclose them. A family without one of them leaves it at -1.
struct MediaTokens {
  int64_t image = -1;
  int64_t video = -1;
  int64_t audio = -1;
  int64_t vision_start = -1;
  int64_t vision_end = -1;
  int64_t audio_start = -1;
  int64_t audio_end = -1;
};

/// How far apart the frames of a video stand.
enum class TimeRule {
  kText,     ///< not at all: a row of a medium has the position of a token, on one axis
  kFrames,   ///< every frame is one position after the one before
  kSeconds,  ///< `tokens_per_second` positions for each whole second between them
  kApart,    ///< every frame is an image of its own, with tokens of text around it that say when it was taken
  kClock     ///< frames and audio stand on one clock of `clock.positions_per_second`
};

/// What a family says of the positions of media and of the tokens that stand for them.
struct RopeRules {
  TimeRule time = TimeRule::kFrames;
  MediaTokens tokens;
  int64_t merge_size = 2;
  int64_t tokens_per_second = 4;  ///< read for kSeconds
  ClipClock clock;                ///< read for kClock
};

/// The media of one sample, each kind in the order of its tokens.
struct SampleMedia {
  std::span<const Grid> images;
  std::span<const Grid> videos;
  /// Time from one frame (temporal patch) of each video to the next. Not read for kFrames and kApart; for kSeconds,
  /// none given means 1 s for all.
  std::span<const double> video_frame_seconds;
  std::span<const int64_t> audio_frames;  ///< mel frames of each clip, those of videos included; kClock
  bool audio_in_video = false;            ///< every video's audio is interleaved with it; kClock
};

/// Rotary positions of one sample's tokens on three axes.
struct RopeIndex {
  int64_t num_tokens = 0;
  std::vector<int64_t> positions;  ///< [3, num_tokens]: temporal, height, width
  /// What Hugging Face calls the rope delta: one more than the largest position, less the tokens. Its generation used
  /// to go on at index + delta; since transformers 5 it goes on from the last token's position instead, and so do we.
  int64_t delta = 0;

  std::span<const int64_t> temporal() const { return axis(0); }
  std::span<const int64_t> height() const { return axis(1); }
  std::span<const int64_t> width() const { return axis(2); }

 private:
  std::span<const int64_t> axis(int64_t which) const {
    return std::span(positions).subspan(static_cast<size_t>(which * num_tokens), static_cast<size_t>(num_tokens));
  }
};

/// Positions of the tokens of one sample without padding. Tokens that do not fit the media are an error that names the
/// first such token as `tokens[i]`.
Result<RopeIndex> rope_index(const RopeRules& rules, std::span<const int64_t> tokens, const SampleMedia& media);

}  // namespace weft
