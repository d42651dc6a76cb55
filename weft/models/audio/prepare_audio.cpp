#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>

#include "weft/families/media/audio_index.h"
#include "weft/models/audio/audio_inputs.h"
#include "weft/models/move_inputs.h"

namespace weft {

namespace {

std::optional<Error> check_clip(const AudioNumbers& numbers, int64_t frames, size_t clip) {
  const int64_t rows = num_audio_rows(std::min(frames, 2 * numbers.half_window));
  if (frames >= 3 && rows <= numbers.max_positions) return std::nullopt;
  return Error{.field = fmt::format("audio clip {}", clip),
               .problem = frames < 3
                              ? fmt::format("has {} mel frames, too few for an embedding; 3 is the least", frames)
                              : fmt::format("has chunks of {} positions, but the encoder's max_source_positions is {}",
                                            rows, numbers.max_positions),
               .advice = "Cut the clip to a length that the model allows."};
}

}  // namespace

Result<AudioInputs> audio_layout(const AudioNumbers& numbers, const std::vector<int64_t>& clip_frames) {
  int64_t total = 0;
  for (size_t clip = 0; clip < clip_frames.size(); ++clip) {
    if (auto error = check_clip(numbers, clip_frames[clip], clip)) return *std::move(error);
    total += clip_frames[clip];
  }
  WEFT_TRY(const AudioIndex index, audio_index(clip_frames, numbers.half_window));

  AudioInputs inputs{.frames = at::empty({0, numbers.mel_bins}, at::kFloat),
                     .chunks = PackedSegments(index.chunk_rows),
                     .held = Range{}};
  std::vector<int64_t> first_taps;
  std::vector<int64_t> second_taps;
  std::vector<int64_t> positions;
  int64_t begin = 0;
  for (size_t chunk = 0; chunk < index.chunk_frames.size(); ++chunk) {
    const int64_t length = index.chunk_frames[chunk];
    const auto tap = [&](int64_t frame) { return frame >= 0 && frame < length ? begin + frame : total; };
    for (int64_t frame = 0; frame < length; ++frame) {
      first_taps.insert(first_taps.end(), {tap(frame - 1), tap(frame), tap(frame + 1)});
    }
    for (int64_t row = 0; row < index.chunk_rows[chunk]; ++row) {
      second_taps.insert(second_taps.end(), {tap(2 * row - 1), tap(2 * row), tap(2 * row + 1)});
      positions.push_back(row);
    }
    begin += length;
  }
  inputs.first_taps = at::tensor(first_taps, at::kLong);
  inputs.second_taps = at::tensor(second_taps, at::kLong);
  inputs.row_positions = at::tensor(positions, at::kLong);
  inputs.pooled_rows = at::tensor(index.pool_first_row, at::kLong);
  inputs.num_rows = static_cast<int64_t>(index.pool_first_row.size());
  return inputs;
}

Result<AudioInputs> prepare_audio(const AudioNumbers& numbers, const at::Tensor& features,
                                  const std::vector<int64_t>& clip_frames, std::string_view field) {
  if (features.dim() != 2 || features.size(0) != numbers.mel_bins) {
    return Error{.field = std::string(field),
                 .problem = fmt::format("has the shape {}, but this model takes [{} mel bins, frames]",
                                        fmt::join(features.sizes(), " × "), numbers.mel_bins),
                 .advice = "Prepare the audio with this model's own processor."};
  }
  int64_t total = 0;
  for (size_t clip = 0; clip < clip_frames.size(); ++clip) {
    const int64_t frames = clip_frames[clip];
    if (auto error = check_clip(numbers, frames, clip)) return *std::move(error);
    if (frames > features.size(1) - total) {
      return Error{.field = fmt::format("audio clip {}", clip),
                   .problem = fmt::format("has {} frames, but only {} are left of the {} that are given", frames,
                                          features.size(1) - total, features.size(1)),
                   .advice = "Give the frames of all clips one after the other, without padding."};
    }
    total += frames;
  }
  if (features.size(1) != total) {
    return Error{
        .field = std::string(field),
        .problem = fmt::format("has {} frames, but the {} clips have {}", features.size(1), clip_frames.size(), total),
        .advice = "Give the frames of all clips one after the other, without padding."};
  }
  WEFT_TRY(AudioInputs inputs, audio_layout(numbers, clip_frames));
  inputs.frames = features.t().contiguous();
  inputs.held.reset();
  return inputs;
}

AudioInputs AudioInputs::to(const at::TensorOptions& options) const {
  AudioInputs moved = *this;
  moved.frames = moved_to(frames, options);
  for (at::Tensor* indices : {&moved.first_taps, &moved.second_taps, &moved.row_positions, &moved.pooled_rows}) {
    *indices = moved_to(*indices, options.dtype(indices->dtype()));
  }
  return moved;
}

}  // namespace weft
