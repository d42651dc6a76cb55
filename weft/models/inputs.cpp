#include "weft/models/inputs.h"

#include <algorithm>
#include <numeric>

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>

#include "weft/base/check.h"
#include "weft/families/media/audio_index.h"
#include "weft/models/move_inputs.h"

namespace weft {
namespace {

constexpr int64_t kNoTarget = -100;

std::optional<Error> check_tokens(const RawInputs& raw, int64_t vocabulary, int64_t max_positions) {
  const int64_t* ids = raw.input_ids.data_ptr<int64_t>();
  const int64_t num_tokens = raw.input_ids.size(0);
  if (num_tokens == 0) return Error{.field = "input_ids", .problem = "is empty", .advice = "Give at least one token."};
  for (int64_t i = 0; i < num_tokens; ++i) {
    if (ids[i] >= 0 && ids[i] < vocabulary) continue;
    return Error{
        .field = fmt::format("input_ids[{}]", i),
        .problem = fmt::format("is {}, but the model's vocabulary has the ids 0 to {}", ids[i], vocabulary - 1),
        .advice = "Use the tokenizer of this model."};
  }
  int64_t total = 0;
  for (size_t sample = 0; sample < raw.lengths.size(); ++sample) {
    const int64_t length = raw.lengths[sample];
    if (length < 1 || length > max_positions) {
      return Error{.field = fmt::format("lengths[{}]", sample),
                   .problem = fmt::format("is {}, 1 to the model's max_position_embeddings {} are allowed", length,
                                          max_positions),
                   .advice = "Shorten the sample."};
    }
    total += length;
  }
  if (total != num_tokens) {
    return Error{.field = "lengths",
                 .problem = fmt::format("add up to {}, but there are {} tokens", total, num_tokens),
                 .advice = "Give the tokens of every sample, in order."};
  }
  return std::nullopt;
}

std::optional<Error> check_targets(const RawInputs& raw, int64_t vocabulary) {
  if (!raw.targets.defined()) return std::nullopt;
  if (raw.targets.size(0) != raw.input_ids.size(0)) {
    return Error{
        .field = "targets",
        .problem = fmt::format("has {} entries, but there are {} tokens", raw.targets.size(0), raw.input_ids.size(0))};
  }
  const int64_t* targets = raw.targets.data_ptr<int64_t>();
  for (int64_t i = 0; i < raw.targets.size(0); ++i) {
    if (targets[i] == kNoTarget || (targets[i] >= 0 && targets[i] < vocabulary)) continue;
    return Error{.field = fmt::format("targets[{}]", i),
                 .problem = fmt::format("is {}, but the model's vocabulary has the ids 0 to {}; {} stands for none",
                                        targets[i], vocabulary - 1, kNoTarget)};
  }
  return std::nullopt;
}

std::vector<int64_t> places_of(std::span<const int64_t> ids, int64_t token) {
  std::vector<int64_t> places;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] == token) places.push_back(static_cast<int64_t>(i));
  }
  return places;
}

/// Deals media out to samples: each sample takes as many as its tokens of that kind stand for.
class MediaDealer {
 public:
  MediaDealer(const char* kind, const char* field, std::vector<int64_t> tokens)
      : kind_(kind), field_(field), tokens_(std::move(tokens)) {}

  /// The number of media whose tokens add up to `wanted`, beginning where the last sample ended.
  Result<size_t> take(size_t sample, int64_t wanted) {
    size_t count = 0;
    int64_t got = 0;
    while (got < wanted && next_ + count < tokens_.size()) got += tokens_[next_ + count++];
    if (got != wanted) {
      return Error{.field = fmt::format("sample {}", sample),
                   .problem = fmt::format("has {} {} tokens, but the next {} of {} stand for {}", wanted, kind_, count,
                                          field_, got),
                   .advice = fmt::format("Give as many {} tokens as each {} has embeddings.", kind_, kind_)};
    }
    next_ += count;
    return count;
  }

  std::optional<Error> finish() const {
    if (next_ == tokens_.size()) return std::nullopt;
    return Error{
        .field = field_,
        .problem = fmt::format("has {} entries, but the tokens of all samples need only {}", tokens_.size(), next_),
        .advice = fmt::format("Give as many {}s as there are tokens for.", kind_)};
  }

 private:
  const char* kind_;
  const char* field_;
  std::vector<int64_t> tokens_;
  size_t next_ = 0;
};

at::Tensor text_positions(const RawInputs& raw) {
  std::vector<at::Tensor> parts;
  for (const int64_t length : raw.lengths) parts.push_back(at::arange(length, at::kLong));
  return at::cat(parts).unsqueeze(0);
}

/// By image, video and clip, the sample that it is of.
struct MediaSamples {
  std::vector<size_t> images, videos, clips;
};

/// Positions of all samples, [3, tokens], or [1, tokens] where media count as text.
struct Positions {
  at::Tensor values;
  int64_t delta = 0;
  MediaSamples samples;
};

Result<Positions> media_positions(const ModelNumbers& numbers, const RawInputs& raw) {
  if (!raw.video_frame_seconds.empty() && raw.video_frame_seconds.size() != raw.video_grids.size()) {
    return Error{.field = "second_per_grid_ts",
                 .problem = fmt::format("has {} numbers, but there are {} videos", raw.video_frame_seconds.size(),
                                        raw.video_grids.size()),
                 .advice = "Give the seconds between frames of each video: temporal patch size / frames per second."};
  }
  const MediaTokens& tokens = numbers.media.tokens;
  const auto merged = [&](const std::vector<Grid>& grids) {
    std::vector<int64_t> counts;
    for (const Grid& grid : grids) counts.push_back(num_merged_tokens(grid, numbers.media.merge_size));
    return counts;
  };
  std::vector<int64_t> clip_tokens;
  for (const int64_t frames : raw.audio_frames) clip_tokens.push_back(num_audio_tokens(frames));
  MediaDealer images("image", "image_grid_thw", merged(raw.image_grids));
  MediaDealer videos("video", "video_grid_thw", merged(raw.video_grids));
  MediaDealer clips("audio", "audio_feature_lengths", clip_tokens);

  Positions result;
  std::vector<at::Tensor> parts;
  const std::span<const int64_t> all(raw.input_ids.data_ptr<int64_t>(), static_cast<size_t>(raw.input_ids.size(0)));
  size_t token = 0;
  size_t image = 0;
  size_t video = 0;
  size_t clip = 0;
  for (size_t sample = 0; sample < raw.lengths.size(); ++sample) {
    const std::span<const int64_t> ids = all.subspan(token, static_cast<size_t>(raw.lengths[sample]));
    const auto count = [&](int64_t id) { return std::count(ids.begin(), ids.end(), id); };
    WEFT_TRY(const size_t num_images, images.take(sample, count(tokens.image)));
    WEFT_TRY(const size_t num_videos, videos.take(sample, count(tokens.video)));
    WEFT_TRY(const size_t num_clips, clips.take(sample, tokens.audio < 0 ? 0 : count(tokens.audio)));
    SampleMedia media{.images = std::span(raw.image_grids).subspan(image, num_images),
                      .videos = std::span(raw.video_grids).subspan(video, num_videos),
                      .audio_frames = std::span(raw.audio_frames).subspan(clip, num_clips),
                      .audio_in_video = raw.has_audio_in_video && num_videos > 0};
    if (!raw.video_frame_seconds.empty()) {
      media.video_frame_seconds = std::span(raw.video_frame_seconds).subspan(video, num_videos);
    }
    result.samples.images.insert(result.samples.images.end(), num_images, sample);
    result.samples.videos.insert(result.samples.videos.end(), num_videos, sample);
    result.samples.clips.insert(result.samples.clips.end(), num_clips, sample);
    token += ids.size();
    image += num_images;
    video += num_videos;
    clip += num_clips;
    if (numbers.media.time == TimeRule::kText) continue;
    auto index = rope_index(numbers.media, ids, media);
    if (!index) {
      Error error = std::move(index).error();
      if (raw.lengths.size() > 1) error.field = fmt::format("sample {}, {}", sample, error.field);
      return error;
    }
    parts.push_back(at::tensor(index->positions, at::kLong).view({3, index->num_tokens}));
    result.delta = index->delta;
  }
  for (const MediaDealer* dealer : {&images, &videos, &clips}) {
    if (const auto error = dealer->finish()) return *error;
  }
  result.values = parts.empty() ? text_positions(raw) : at::cat(parts, 1);
  return result;
}

Error unexpected_media(const std::string& field, const char* what) {
  return {.field = field,
          .problem = fmt::format("is given, but the model has no {} encoder", what),
          .advice = "Leave it out, or use a model that takes it."};
}

/// Pixels of images and videos in one batch: the encoder treats them alike.
Result<std::optional<VisionInputs>> vision_inputs(const ModelNumbers& numbers, const RawInputs& raw, bool has_content) {
  std::vector<Grid> grids = raw.image_grids;
  grids.insert(grids.end(), raw.video_grids.begin(), raw.video_grids.end());
  if (!numbers.vision) {
    if (raw.pixel_values.defined() || !raw.image_grids.empty())
      return unexpected_media(raw.pixel_values.defined() ? "pixel_values" : "image_grid_thw", "vision");
    if (raw.pixel_values_videos.defined() || !raw.video_grids.empty())
      return unexpected_media(raw.pixel_values_videos.defined() ? "pixel_values_videos" : "video_grid_thw", "vision");
    if (!raw.video_frame_seconds.empty()) return unexpected_media("second_per_grid_ts", "vision");
    return std::optional<VisionInputs>();
  }
  if (!has_content) {
    if (grids.empty()) return std::optional<VisionInputs>();
    WEFT_TRY(VisionLayout layout, vision_layout(*numbers.vision, grids, "pixel_values"));
    return std::optional(std::move(layout.inputs));
  }
  std::vector<at::Tensor> pixels;
  const auto add = [&](const at::Tensor& rows, const std::vector<Grid>& own, const char* field,
                       const char* grid_field) -> std::optional<Error> {
    if (rows.defined() != !own.empty()) {
      return Error{.field = rows.defined() ? grid_field : field,
                   .problem = fmt::format("is missing, but {} is given", rows.defined() ? field : grid_field),
                   .advice = "Give both, or neither."};
    }
    if (!rows.defined()) return std::nullopt;
    const auto checked = prepare_vision(*numbers.vision, rows, own, field);
    if (!checked) return checked.error();
    pixels.push_back(rows);
    return std::nullopt;
  };
  if (const auto error = add(raw.pixel_values, raw.image_grids, "pixel_values", "image_grid_thw")) return *error;
  if (const auto error = add(raw.pixel_values_videos, raw.video_grids, "pixel_values_videos", "video_grid_thw"))
    return *error;
  if (pixels.empty()) return std::optional<VisionInputs>();
  WEFT_TRY(VisionInputs inputs,
           prepare_vision(*numbers.vision, pixels.size() == 1 ? pixels[0] : at::cat(pixels), grids, "pixel_values"));
  return std::optional(std::move(inputs));
}

Result<std::optional<AudioInputs>> audio_inputs(const ModelNumbers& numbers, const RawInputs& raw, bool has_content) {
  if (!numbers.audio) {
    if (raw.input_features.defined()) return unexpected_media("input_features", "audio");
    if (!raw.audio_frames.empty()) return unexpected_media("audio_feature_lengths", "audio");
    if (raw.has_audio_in_video) return unexpected_media("use_audio_in_video", "audio");
    return std::optional<AudioInputs>();
  }
  if (!raw.input_features.defined() && raw.audio_frames.empty()) return std::optional<AudioInputs>();
  if (!has_content) {
    WEFT_TRY(AudioInputs layout, audio_layout(*numbers.audio, raw.audio_frames));
    return std::optional(std::move(layout));
  }
  if (!raw.input_features.defined() || raw.audio_frames.empty()) {
    return Error{.field = raw.input_features.defined() ? "audio_feature_lengths" : "input_features",
                 .problem = "is missing, but the other of the two is given",
                 .advice = "Give the mel features of all clips and the number of frames of each."};
  }
  WEFT_TRY(AudioInputs inputs, prepare_audio(*numbers.audio, raw.input_features, raw.audio_frames, "input_features"));
  return std::optional(std::move(inputs));
}

/// Modules number rows and layers alike, and draw by different seeds.
std::shared_ptr<const DropoutDraws> module_draws(const StepDraws& draws, ModuleKind module,
                                                 const std::vector<int64_t>& rows) {
  constexpr uint64_t kApart = 0x9e3779b97f4a7c15;
  const uint64_t salt = module == ModuleKind::kLlm ? 0 : kApart * (1 + static_cast<uint64_t>(module));
  return std::make_shared<const DropoutDraws>(
      DropoutDraws{.seed = draws.seed ^ salt, .step = draws.step, .rows = at::tensor(rows, at::kLong), .all_rows = {}});
}

/// Numbers of rows, those of a sample counted on from one to the next.
class RowNumbers {
 public:
  explicit RowNumbers(const std::vector<int64_t>& samples) : samples_(samples), next_(samples.size()) {}

  void add(size_t sample, int64_t count) {
    for (int64_t i = 0; i < count; ++i) rows_.push_back(row_number(samples_[sample], next_[sample]++));
  }
  const std::vector<int64_t>& rows() const { return rows_; }

 private:
  const std::vector<int64_t>& samples_;
  std::vector<int64_t> next_, rows_;
};

std::vector<int64_t> token_rows(const StepDraws& draws, const std::vector<int64_t>& lengths) {
  WEFT_CHECK(draws.samples.size() == lengths.size(), "{} samples have {} numbers", lengths.size(),
             draws.samples.size());
  RowNumbers numbers(draws.samples);
  for (size_t sample = 0; sample < lengths.size(); ++sample) numbers.add(sample, lengths[sample]);
  return numbers.rows();
}

/// In the encoder's order. A patch has the place that it has among those of its sample, in whatever windows they lie; a
/// row in front of a tile's patches has that of the first of them, set apart.
std::vector<int64_t> patch_rows(const VisionNumbers& vision, const RawInputs& raw, const MediaSamples& media) {
  constexpr int64_t kInFront = int64_t{1} << 31;
  std::vector<Grid> grids = raw.image_grids;
  grids.insert(grids.end(), raw.video_grids.begin(), raw.video_grids.end());
  std::vector<size_t> samples = media.images;
  samples.insert(samples.end(), media.videos.begin(), media.videos.end());
  RowNumbers numbers(raw.draws->samples);
  for (size_t i = 0; i < grids.size(); ++i) numbers.add(samples[i], grids[i].t * grids[i].h * grids[i].w);
  const auto layout = vision_layout(vision, grids, "pixel_values");
  WEFT_CHECK(layout.ok(), "{}", layout.error().message());
  std::vector<int64_t> rows;
  rows.reserve(layout->patches.size());
  for (size_t row = 0; row < layout->patches.size(); ++row) {
    const int64_t patch = layout->patches[row];
    rows.push_back(patch >= 0 ? numbers.rows()[static_cast<size_t>(patch)]
                              : numbers.rows()[static_cast<size_t>(layout->patches[row + 1])] | kInFront);
  }
  return rows;
}

std::vector<int64_t> clip_rows(const AudioNumbers& audio, const RawInputs& raw, const MediaSamples& media) {
  RowNumbers numbers(raw.draws->samples);
  for (size_t clip = 0; clip < raw.audio_frames.size(); ++clip) {
    const auto index = audio_index(std::span(raw.audio_frames).subspan(clip, 1), audio.half_window);
    WEFT_CHECK(index.ok(), "{}", index.error().message());
    for (const int64_t rows : index->chunk_rows) numbers.add(media.clips[clip], rows);
  }
  return numbers.rows();
}

void number_rows(const ModelNumbers& numbers, const RawInputs& raw, const MediaSamples& media, Inputs& inputs) {
  const StepDraws& draws = *raw.draws;
  inputs.draws = module_draws(draws, ModuleKind::kLlm, token_rows(draws, raw.lengths));
  if (!draws.of_encoders) return;
  if (inputs.vision)
    inputs.vision->draws = module_draws(draws, ModuleKind::kVision, patch_rows(*numbers.vision, raw, media));
  if (inputs.audio)
    inputs.audio->draws = module_draws(draws, ModuleKind::kAudio, clip_rows(*numbers.audio, raw, media));
}

}  // namespace

Result<RawInputs> with_patches(const ModelNumbers& numbers, const RawInputs& raw) {
  RawInputs patched = raw;
  const bool are_tiles = raw.pixel_values.defined() && raw.pixel_values.dim() == 4;
  if (!are_tiles || !numbers.vision || numbers.vision->tile_side == 0) return patched;
  if (!raw.image_grids.empty()) {
    return Error{.field = "image_grid_thw",
                 .problem = "is given, but the images are tiles, all of one size",
                 .advice = "Leave it out."};
  }
  WEFT_TRY(patched.pixel_values, patches_of_tiles(*numbers.vision, raw.pixel_values, "pixel_values"));
  const int64_t side = numbers.vision->tile_side;
  patched.image_grids.assign(static_cast<size_t>(raw.pixel_values.size(0)), Grid{1, side, side});
  return patched;
}

Result<Inputs> prepare_inputs(const ModelNumbers& numbers, int64_t vocabulary, const RawInputs& given,
                              const WantedMedia& wanted) {
  WEFT_TRY(const RawInputs raw, with_patches(numbers, given));
  if (const auto error = check_tokens(raw, vocabulary, numbers.llm.max_positions)) return *error;
  if (const auto error = check_targets(raw, vocabulary)) return *error;
  Inputs inputs{.ids = raw.input_ids, .samples = PackedSegments(raw.lengths)};
  if (wanted.vision) {
    WEFT_TRY(inputs.vision, vision_inputs(numbers, raw, wanted.has_content));
  }
  if (wanted.audio) {
    WEFT_TRY(inputs.audio, audio_inputs(numbers, raw, wanted.has_content));
  }
  MediaSamples media;
  if (numbers.vision) {
    WEFT_TRY(Positions positions, media_positions(numbers, raw));
    inputs.positions = positions.values;
    inputs.position_delta = positions.delta;
    media = std::move(positions.samples);
  } else {
    inputs.positions = text_positions(raw);
  }
  const std::span<const int64_t> ids(raw.input_ids.data_ptr<int64_t>(), static_cast<size_t>(raw.input_ids.size(0)));
  const MediaTokens& tokens = numbers.media.tokens;
  std::vector<int64_t> vision_places = places_of(ids, tokens.image);
  const std::vector<int64_t> video_places = places_of(ids, tokens.video);
  vision_places.insert(vision_places.end(), video_places.begin(), video_places.end());
  inputs.vision_places = at::tensor(vision_places, at::kLong);
  inputs.audio_places = at::tensor(places_of(ids, tokens.audio), at::kLong);
  if (raw.draws) number_rows(numbers, raw, media, inputs);
  if (raw.targets.defined()) {
    inputs.target_rows = raw.targets.ne(kNoTarget).nonzero().squeeze(1);
    inputs.targets = raw.targets.index_select(0, inputs.target_rows);
  }
  return inputs;
}

std::shared_ptr<const DropoutDraws> Inputs::draws_of(ModuleKind module) const {
  switch (module) {
    case ModuleKind::kVision:
      return vision ? vision->draws : nullptr;
    case ModuleKind::kAudio:
      return audio ? audio->draws : nullptr;
    case ModuleKind::kLlm:
      break;
  }
  return draws;
}

RowCounts Inputs::row_counts(ModuleKind module) const {
  switch (module) {
    case ModuleKind::kVision:
      return {vision->positions.size(0), vision->num_rows};
    case ModuleKind::kAudio:
      return {audio->row_positions.size(0), audio->num_rows};
    case ModuleKind::kLlm:
      break;
  }
  return {.inside = named ? named->num_samples * named->rows_per_sample : ids.size(0)};
}

Inputs Inputs::to(const at::TensorOptions& options) const {
  Inputs moved = *this;
  for (at::Tensor* indices :
       {&moved.ids, &moved.positions, &moved.target_rows, &moved.targets, &moved.vision_places, &moved.audio_places}) {
    if (indices->defined()) *indices = moved_to(*indices, options.dtype(indices->dtype()));
  }
  if (vision) moved.vision = vision->to(options);
  if (audio) moved.audio = audio->to(options);
  if (named) {
    NamedInputs own = *named;
    for (auto& [name, tensor] : own.tensors)
      tensor = moved_to(tensor, tensor.is_floating_point() ? options : options.dtype(tensor.dtype()));
    moved.named = std::make_shared<const NamedInputs>(std::move(own));
  }
  return moved;
}

Inputs Inputs::staged(const at::TensorOptions& options) const {
  Inputs staged = to(options.device(at::kCPU));
  if (options.device().is_cpu()) return staged;
  std::vector<at::Tensor*> all = {&staged.ids,     &staged.positions,     &staged.target_rows,
                                  &staged.targets, &staged.vision_places, &staged.audio_places};
  if (staged.vision) {
    VisionInputs& own = *staged.vision;
    all.insert(all.end(), {&own.pixels, &own.positions, &own.patch_rows, &own.output_order, &own.mixed_entries,
                           &own.mixed_weights});
  }
  if (staged.audio) {
    AudioInputs& own = *staged.audio;
    all.insert(all.end(), {&own.frames, &own.first_taps, &own.second_taps, &own.row_positions, &own.pooled_rows});
  }
  for (at::Tensor* tensor : all) {
    if (tensor->defined()) *tensor = tensor->pin_memory();
  }
  if (staged.named) {
    NamedInputs own = *staged.named;
    for (auto& [name, tensor] : own.tensors) tensor = tensor.pin_memory();
    staged.named = std::make_shared<const NamedInputs>(std::move(own));
  }
  return staged;
}

}  // namespace weft
