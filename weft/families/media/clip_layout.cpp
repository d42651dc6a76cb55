#include "weft/families/media/clip_layout.h"

#include <algorithm>
#include <cmath>

#include "weft/base/check.h"

namespace weft {
namespace {

/// Where each chunk ends, of `count` tokens in order of time. A token past the end of the open chunk closes it, but
/// only that one: after a gap of several chunks, the next ones hold a single token each until the count has caught up.
template <typename TimeOf>
std::vector<int64_t> chunk_ends(int64_t count, int64_t positions_per_chunk, const TimeOf& time_of) {
  using Time = decltype(time_of(int64_t{0}));
  std::vector<int64_t> ends;
  int64_t border = positions_per_chunk;
  for (int64_t token = 0; token < count; ++token) {
    if (time_of(token) < static_cast<Time>(border)) continue;
    ends.push_back(token);
    border += positions_per_chunk;
  }
  ends.push_back(count);
  return ends;
}

/// As Hugging Face's processor computes it, product by product.
double time_of_frame(const Clip& clip, const ClipClock& clock, int64_t frame) {
  return static_cast<double>(frame) * clip.frame_seconds * static_cast<double>(clock.positions_per_second);
}

/// As Hugging Face's model computes it: reordered, some frames would come out one position off.
float single_time_of_frame(double frame_seconds, const ClipClock& clock, int64_t frame) {
  const float at_seconds = static_cast<float>(frame) * static_cast<float>(frame_seconds);
  return at_seconds * static_cast<float>(clock.positions_per_second);
}

std::vector<int64_t> audio_chunk_ends(int64_t audio_tokens, const ClipClock& clock) {
  return chunk_ends(audio_tokens, clock.positions_per_chunk(), [](int64_t token) { return token; });
}

std::vector<ClipPiece> alternate(const std::vector<int64_t>& video_ends, const std::vector<int64_t>& audio_ends) {
  std::vector<ClipPiece> pieces;
  const auto add = [&](bool is_audio, const std::vector<int64_t>& ends, size_t chunk) {
    if (chunk < ends.size()) pieces.push_back({is_audio, chunk == 0 ? 0 : ends[chunk - 1], ends[chunk]});
  };
  for (size_t chunk = 0; chunk < std::max(video_ends.size(), audio_ends.size()); ++chunk) {
    add(false, video_ends, chunk);
    add(true, audio_ends, chunk);
  }
  return pieces;
}

}  // namespace

std::vector<ClipPiece> clip_layout(const Clip& clip, const ClipClock& clock) {
  const auto time_of = [&](int64_t token) { return time_of_frame(clip, clock, token / clip.tokens_per_frame()); };
  return alternate(chunk_ends(clip.video.t * clip.tokens_per_frame(), clock.positions_per_chunk(), time_of),
                   audio_chunk_ends(clip.audio_tokens, clock));
}

std::vector<int64_t> frame_positions(int64_t num_frames, double frame_seconds, const ClipClock& clock) {
  std::vector<int64_t> positions;
  positions.reserve(static_cast<size_t>(num_frames));
  for (int64_t frame = 0; frame < num_frames; ++frame) {
    positions.push_back(static_cast<int64_t>(single_time_of_frame(frame_seconds, clock, frame)));
  }
  return positions;
}

std::vector<ClipPiece> clip_layout_of_positions(const Clip& clip, const ClipClock& clock) {
  const std::vector<int64_t> frames = frame_positions(clip.video.t, clip.frame_seconds, clock);
  const auto time_of = [&](int64_t token) { return frames[static_cast<size_t>(token / clip.tokens_per_frame())]; };
  return alternate(chunk_ends(clip.video.t * clip.tokens_per_frame(), clock.positions_per_chunk(), time_of),
                   audio_chunk_ends(clip.audio_tokens, clock));
}

std::optional<ClipMismatch> find_clip_mismatch(const Clip& clip, const ClipClock& clock,
                                               const std::vector<bool>& is_audio) {
  WEFT_CHECK(static_cast<int64_t>(is_audio.size()) == clip.num_tokens(), "{} tokens for a clip of {}", is_audio.size(),
             clip.num_tokens());
  const int64_t video_tokens = clip.video.t * clip.tokens_per_frame();
  int64_t video = 0;
  int64_t audio = 0;
  int64_t border = 0;
  const auto is_audio_here = [&] { return is_audio[static_cast<size_t>(video + audio)]; };
  const auto closes_chunk = [&](int64_t token) {
    const int64_t frame = token / clip.tokens_per_frame();
    const double time = time_of_frame(clip, clock, frame);
    const double past = time - static_cast<double>(border);
    const bool is_rounded = time != static_cast<double>(single_time_of_frame(clip.frame_seconds, clock, frame));
    const bool on_border = is_rounded && std::abs(past) <= 1e-6 * static_cast<double>(border);
    return on_border && audio < clip.audio_tokens ? is_audio_here() : past >= 0;
  };
  while (video < video_tokens || audio < clip.audio_tokens) {
    border += clock.positions_per_chunk();
    for (bool open = video < video_tokens; open; open = video < video_tokens && !closes_chunk(video)) {
      if (is_audio_here()) return ClipMismatch{.offset = video + audio, .expects_audio = false};
      ++video;
    }
    for (; audio < std::min(border, clip.audio_tokens); ++audio) {
      if (!is_audio_here()) return ClipMismatch{.offset = video + audio, .expects_audio = true};
    }
  }
  return std::nullopt;
}

}  // namespace weft
