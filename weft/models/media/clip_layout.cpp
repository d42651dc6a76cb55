#include "weft/models/media/clip_layout.h"

#include <algorithm>

namespace weft {
namespace {

/// Where each chunk ends, of `count` tokens in order of time. A token that is past the end of the open chunk closes it,
/// but only one chunk per token: after a gap of several chunks the following ones hold a single token until the count
/// has caught up. Models were trained on that.
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

std::vector<ClipPiece> clip_layout(const Grid& video, int64_t merge_size, double frame_seconds, int64_t audio_tokens,
                                   const ClipClock& clock) {
  const int64_t tokens_per_frame = num_merged_tokens({1, video.h, video.w}, merge_size);
  const auto per_second = static_cast<double>(clock.positions_per_second);
  const auto time_of = [&](int64_t token) {
    return static_cast<double>(token / tokens_per_frame) * frame_seconds * per_second;
  };
  return alternate(chunk_ends(video.t * tokens_per_frame, clock.positions_per_chunk(), time_of),
                   audio_chunk_ends(audio_tokens, clock));
}

std::vector<ClipPiece> clip_layout_at(const std::vector<int64_t>& frame_positions, int64_t tokens_per_frame,
                                      int64_t audio_tokens, const ClipClock& clock) {
  const auto time_of = [&](int64_t token) { return frame_positions[static_cast<size_t>(token / tokens_per_frame)]; };
  const int64_t video_tokens = static_cast<int64_t>(frame_positions.size()) * tokens_per_frame;
  return alternate(chunk_ends(video_tokens, clock.positions_per_chunk(), time_of),
                   audio_chunk_ends(audio_tokens, clock));
}

std::vector<int64_t> frame_positions(int64_t num_frames, double frame_seconds, const ClipClock& clock) {
  const auto seconds = static_cast<float>(frame_seconds);
  const auto per_second = static_cast<float>(clock.positions_per_second);
  std::vector<int64_t> positions;
  positions.reserve(static_cast<size_t>(num_frames));
  for (int64_t frame = 0; frame < num_frames; ++frame) {
    // Rounded after each product, then cut off: reordered, some frames would be one position off.
    const float at_seconds = static_cast<float>(frame) * seconds;
    positions.push_back(static_cast<int64_t>(at_seconds * per_second));
  }
  return positions;
}

}  // namespace weft
