#include "weft/data/conversations/media_rules.h"

#include <algorithm>

#include <fmt/format.h>

#include "weft/probe/audio_info.h"
#include "weft/probe/image_info.h"

namespace weft {
namespace {

/// The first of these files that the folder has.
std::optional<std::filesystem::path> first_file(const std::filesystem::path& folder,
                                                std::initializer_list<const char*> names) {
  std::error_code ignored;
  for (const char* name : names) {
    if (std::filesystem::exists(folder / name, ignored)) return folder / name;
  }
  return std::nullopt;
}

Error no_encoder(const MediaRules& rules, const MediaReference& media) {
  if (rules.geometry.patches_per_tile > 0 && media.kind != MediaKind::kAudio) {
    return Error{.source = media.files.front().string(),
                 .problem = fmt::format("is {}, but the model takes tiles, into which pictures are not cut here",
                                        name_of(media.kind)),
                 .advice = "Leave the sample out, or train on synthetic samples."};
  }
  return Error{.source = media.files.front().string(),
               .problem = fmt::format("is {} that the model has no encoder for", name_of(media.kind)),
               .advice = "Use a model for such media, or leave the sample out."};
}

Result<MediaShape> measure_pictures(const MediaRules& rules, const MediaReference& media) {
  const bool is_video = media.kind == MediaKind::kVideo;
  if (is_video && rules.has_frames_apart) {
    return Error{.source = media.files.front().string(),
                 .problem =
                     "is a video, whose frames this model takes one by one, each behind the text of its time, which "
                     "conversations cannot write yet",
                 .advice = "Give its frames as images, or leave the sample out."};
  }
  const PatchRules& patches = is_video ? *rules.video : *rules.image;
  const std::string source = media.files.front().string();
  MediaShape shape;
  int64_t num_frames = 1;
  if (is_video) {
    FrameSampling sampling = rules.frames;
    if (std::ssize(media.files) > sampling.max_frames) sampling.num_frames = sampling.max_frames;
    WEFT_TRY(shape.frames, sampled_frames(sampling, std::ssize(media.files), std::nullopt, source));
    num_frames = std::ssize(shape.frames);
    const double rate = rules.frames_per_second > 0 ? rules.frames_per_second
                                                    : sampled_rate(num_frames, std::ssize(media.files), std::nullopt);
    shape.frame_seconds = seconds_per_grid(patches.temporal_patch, rate);
  }
  const size_t first = is_video ? static_cast<size_t>(shape.frames.front()) : 0;
  WEFT_TRY(const ImageInfo image, probe_image(media.files[first]));
  shape.source = {.height = image.height(), .width = image.width()};
  WEFT_TRY(shape.resized, resized_size(patches, shape.source, source));
  shape.grid = patch_grid(patches, shape.resized, num_frames);
  shape.size = {.tokens = shape.grid.num_patches() / (patches.merge * patches.merge),
                .patches = shape.grid.num_patches()};
  return shape;
}

Result<MediaShape> measure_clip(const MediaRules& rules, const MediaReference& media) {
  WEFT_TRY(const AudioInfo clip, probe_audio(media.files.front()));
  MediaShape shape;
  shape.samples = std::min(resampled_frames(clip.frames, clip.rate_hz, MelRules::kRateHz), rules.audio->max_samples());
  const double seconds = static_cast<double>(shape.samples) / MelRules::kRateHz;
  if (rules.max_seconds > 0 && seconds > rules.max_seconds) {
    return Error{.source = media.files.front().string(),
                 .problem = fmt::format("is {:.4g} s long, audio_max_seconds is {:.4g}", seconds, rules.max_seconds),
                 .advice = "Cut it, or raise the limit."};
  }
  shape.mel_frames = rules.audio->num_frames(shape.samples);
  const int64_t pool = rules.geometry.audio_positions_per_embedding;
  shape.positions = (shape.mel_frames - 1) / rules.geometry.mel_frames_per_audio_position + 1;
  shape.size = {
      .tokens = shape.positions < pool ? 0 : (shape.positions - pool) / pool + 1, .patches = 0, .seconds = seconds};
  return shape;
}

}  // namespace

Result<MediaRules> read_media_rules(const Model& model, const std::filesystem::path& folder,
                                    const DataMediaLimits& limits) {
  MediaRules rules{.geometry = model.media, .max_seconds = limits.audio_max_seconds};
  if (model.find(ModuleKind::kVision) != nullptr && model.media.patches_per_tile == 0) {
    rules.image = PatchRules();
    rules.video = video_rules();
    rules.has_frames_apart = model.numbers.media.time == TimeRule::kApart;
    if (const auto& vision = model.numbers.vision; vision && vision->pixel_middle) {
      rules.image->patch = vision->patch_size;
      rules.image->temporal_patch = vision->temporal_patch_size;
      rules.image->merge = vision->merge_size;
      rules.image->mean.fill(*vision->pixel_middle);
      rules.image->deviation.fill(*vision->pixel_middle);
    }
  }
  if (model.find(ModuleKind::kAudio) != nullptr) rules.audio = MelRules();
  if (const auto path = first_file(folder, {"preprocessor_config.json", "processor_config.json"})) {
    WEFT_TRY(const Document document, read_document(*path));
    if (rules.image) {
      WEFT_TRY(rules.image, read_image_rules(document));
      // Where nothing is said of videos, their patches are those of images.
      rules.video->patch = rules.image->patch;
      rules.video->merge = rules.image->merge;
      rules.video->temporal_patch = rules.image->temporal_patch;
      if (document.root.contains("video_processor") && !rules.has_frames_apart) {
        WEFT_TRY(rules.video, read_video_rules(document));
      }
    }
    if (rules.audio) {
      WEFT_TRY(rules.audio, read_mel_rules(document));
    }
  }
  if (const auto path = first_file(folder, {"video_preprocessor_config.json"});
      path && rules.video && !rules.has_frames_apart) {
    WEFT_TRY(const Document document, read_document(*path));
    WEFT_TRY(rules.video, read_video_rules(document));
  }
  const auto limit = [](int64_t& value, int64_t given) { value = given > 0 ? given : value; };
  if (rules.image) {
    limit(rules.image->max_pixels, limits.image_max_pixels);
    limit(rules.image->min_pixels, limits.image_min_pixels);
    limit(rules.video->max_pixels, limits.video_max_pixels);
    limit(rules.video->min_pixels, limits.video_min_pixels);
    rules.frames.temporal_patch = rules.video->temporal_patch;
  }
  limit(rules.frames.max_frames, limits.video_max_frames);
  rules.frames_per_second = limits.video_fps;
  return rules;
}

Result<MediaShape> measure_media(const MediaRules& rules, const MediaReference& media) {
  const bool is_sound = media.kind == MediaKind::kAudio;
  const bool is_known = is_sound ? rules.audio.has_value() : rules.image.has_value();
  if (!is_known || media.files.empty()) return no_encoder(rules, media);
  return is_sound ? measure_clip(rules, media) : measure_pictures(rules, media);
}

}  // namespace weft
