#include "weft/engine/sample_inputs.h"

#include <algorithm>

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

namespace weft {
namespace {

template <typename T>
void append(std::vector<T>& all, const std::vector<T>& part) {
  all.insert(all.end(), part.begin(), part.end());
}

template <typename T>
at::Tensor tensor_of(const std::vector<T>& values, at::IntArrayRef shape, at::ScalarType type) {
  return at::from_blob(const_cast<T*>(values.data()), shape, at::TensorOptions().dtype(type)).clone();
}

}  // namespace

SampleForm sample_form(const ModelNumbers& numbers, int64_t vocabulary) {
  const MediaTokens& tokens = numbers.media.tokens;
  SampleForm form{.vocabulary = vocabulary,
                  .max_tokens = numbers.llm.max_positions,
                  .image = {.begin = tokens.vision_start, .inside = tokens.image, .end = tokens.vision_end},
                  .audio = {.begin = tokens.audio_start, .inside = tokens.audio, .end = tokens.audio_end},
                  .other_special = tokens.video};
  if (numbers.vision) {
    form.merge_size = numbers.vision->merge_size;
    form.tile_side = numbers.vision->tile_side;
    form.patch_elements = numbers.vision->patch_elements();
  }
  if (numbers.audio) form.mel_bins = numbers.audio->mel_bins;
  return form;
}

Result<RawInputs> raw_inputs_of(const ModelNumbers& numbers, const std::vector<Sample>& samples) {
  RawInputs raw;
  std::vector<int64_t> ids, targets;
  int64_t num_pixels = 0, num_video_pixels = 0;
  std::vector<at::Tensor> clips;
  for (const Sample& sample : samples) {
    append(ids, sample.ids);
    append(targets, sample.targets);
    num_pixels += std::ssize(sample.pixels);
    num_video_pixels += std::ssize(sample.video_pixels);
    if (sample.segments.empty()) raw.lengths.push_back(std::ssize(sample.ids));
    append(raw.lengths, sample.segments);
    for (const ImageGrid& grid : sample.images) raw.image_grids.push_back({1, grid.rows, grid.columns});
    for (const VideoGrid& video : sample.videos) {
      raw.video_grids.push_back({video.frames, video.frame.rows, video.frame.columns});
      raw.video_frame_seconds.push_back(video.frame_seconds);
    }
    append(raw.audio_frames, sample.clip_frames);
    if (sample.features.empty()) continue;
    const int64_t bins = numbers.audio->mel_bins;
    clips.push_back(tensor_of(sample.features, {bins, std::ssize(sample.features) / bins}, at::kFloat));
  }
  const auto num_tokens = std::ssize(ids);
  raw.input_ids = tensor_of(ids, {num_tokens}, at::kLong);
  raw.targets = tensor_of(targets, {num_tokens}, at::kLong);
  const auto pixel_rows = [&](int64_t count, std::vector<float> Sample::*pixels) {
    const int64_t width = numbers.vision->patch_elements();
    at::Tensor rows = at::empty({count / width, width}, at::TensorOptions().dtype(at::kFloat));
    float* next = rows.data_ptr<float>();
    for (const Sample& sample : samples) next = std::copy((sample.*pixels).begin(), (sample.*pixels).end(), next);
    return rows;
  };
  if (num_pixels > 0) raw.pixel_values = pixel_rows(num_pixels, &Sample::pixels);
  if (num_video_pixels > 0) raw.pixel_values_videos = pixel_rows(num_video_pixels, &Sample::video_pixels);
  if (!clips.empty()) raw.input_features = at::cat(clips, 1);
  return raw;
}

namespace {

/// A batch of samples that have nothing but named numbers.
Inputs named_inputs_of(const ProgramNumbers& numbers, const std::vector<Sample>& samples,
                       const std::optional<StepDraws>& draws) {
  std::vector<std::vector<std::vector<double>>> all;
  for (const Sample& sample : samples) all.push_back(sample.named);
  NamedInputs named = named_inputs(numbers, all);
  Inputs inputs;
  if (draws) {
    named.samples = draws->samples;
    inputs.draws = std::make_shared<const DropoutDraws>(
        DropoutDraws{.seed = draws->seed, .step = draws->step, .rows = {}, .all_rows = {}});
  }
  inputs.named = std::make_shared<const NamedInputs>(std::move(named));
  return inputs;
}

}  // namespace

Result<Inputs> inputs_of(const ModelNumbers& numbers, int64_t vocabulary, const std::vector<Sample>& samples,
                         const WantedMedia& wanted, const std::optional<StepDraws>& draws) {
  if (numbers.program) return named_inputs_of(*numbers.program, samples, draws);
  WEFT_TRY(RawInputs raw, raw_inputs_of(numbers, samples));
  raw.draws = draws;
  return prepare_inputs(numbers, vocabulary, raw, wanted);
}

}  // namespace weft
