#include "weft/families/media/audio_index.h"

#include <algorithm>

#include <fmt/format.h>

namespace weft {
namespace {

/// Attention's segment borders are 32-bit numbers.
constexpr int64_t kMaxFrames = INT32_MAX;

Result<int64_t> check_frames(std::span<const int64_t> mel_frames) {
  int64_t total = 0;
  for (size_t clip = 0; clip < mel_frames.size(); ++clip) {
    const int64_t frames = mel_frames[clip];
    if (frames < 1 || frames > kMaxFrames - total) {
      return Error{
          .field = fmt::format("audio_frames[{}]", clip),
          .problem = fmt::format("the clip has {} mel frames after {} of the clips before it; at least 1, and at "
                                 "most {} together, are allowed",
                                 frames, total, kMaxFrames),
          .advice = "Give the number of mel frames of each clip, without padding."};
    }
    total += frames;
  }
  return total;
}

}  // namespace

int64_t num_audio_rows(int64_t mel_frames) {
  return (mel_frames + 1) / 2;
}

int64_t num_audio_tokens(int64_t mel_frames) {
  return num_audio_rows(mel_frames) / 2;
}

Result<AudioIndex> audio_index(std::span<const int64_t> mel_frames, int64_t half_window) {
  WEFT_CHECK(half_window >= 1 && half_window <= kMaxFrames, "half a window is {} frames", half_window);
  WEFT_TRY([[maybe_unused]] const int64_t total, check_frames(mel_frames));

  AudioIndex index;
  int64_t rows_before = 0;
  for (const int64_t frames : mel_frames) {
    for (int64_t begin = 0; begin < frames; begin += 2 * half_window) {
      index.chunk_frames.push_back(std::min(2 * half_window, frames - begin));
      index.chunk_rows.push_back(num_audio_rows(index.chunk_frames.back()));
    }
    const int64_t tokens = num_audio_tokens(frames);
    index.clip_tokens.push_back(tokens);
    for (int64_t token = 0; token < tokens; ++token) index.pool_first_row.push_back(rows_before + 2 * token);
    // Only a clip's last chunk can have an odd number of frames, so its chunks' rows add up to this.
    rows_before += num_audio_rows(frames);
  }
  if (index.chunk_frames.empty()) return index;

  index.padded_frames = *std::ranges::max_element(index.chunk_frames);
  index.padded_rows = *std::ranges::max_element(index.chunk_rows);
  for (size_t chunk = 0; chunk < index.chunk_rows.size(); ++chunk) {
    const int64_t first = static_cast<int64_t>(chunk) * index.padded_rows;
    for (int64_t row = 0; row < index.chunk_rows[chunk]; ++row) index.kept_rows.push_back(first + row);
  }
  return index;
}

}  // namespace weft
