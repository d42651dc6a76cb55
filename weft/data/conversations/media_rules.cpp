#include "weft/data/conversations/media_rules.h"

#include <algorithm>

#include <fmt/format.h>

#include "weft/data/conversations/media_fit.h"
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
  if (media.kind != MediaKind::kAudio && rules.geometry.patches_per_embedding > 0) {
    return Error{.source = media.files.front().string(),
                 .problem = fmt::format("is {}, and the model's family does not say which processor prepares those",
                                        name_of(media.kind)),
                 .advice = "Leave the sample out, or name the processors in the family (VisionNumbers::processors)."};
  }
  return Error{.source = media.files.front().string(),
               .problem = fmt::format("is {} that the model has no encoder for", name_of(media.kind)),
               .advice = "Use a model for such media, or leave the sample out."};
}

std::string replaced(std::string text, std::string_view what, const std::string& by) {
  const size_t place = text.find(what);
  return place == std::string::npos ? text : text.replace(place, what.size(), by);
}

/// The frames of a video that are looked at, and when.
Result<double> choose_frames(const MediaRules& rules, const MediaReference& media, int64_t temporal_patch,
                             MediaShape& shape) {
  FrameSampling sampling = rules.frames;
  const int64_t total = std::ssize(media.files);
  if (total > sampling.max_frames) {
    if (sampling.max_frames < temporal_patch) {
      return Error{.source = media.files.front().string(),
                   .problem = fmt::format("is a video of {} frames; video_max_frames is {}, but a patch has {} of them",
                                          total, sampling.max_frames, temporal_patch),
                   .advice = "Raise video_max_frames."};
    }
    // Whole patches, as transformers has its own limit. Frames that are asked for by number it rounds up, too.
    const bool is_whole = sampling.spread == FrameSpread::kFromFirst;
    sampling.num_frames = sampling.max_frames - (is_whole ? sampling.max_frames % temporal_patch : 0);
  }
  WEFT_TRY(shape.frames, sampled_frames(sampling, total, std::nullopt, media.files.front().string()));
  if (!rules.frame_caption.empty()) {
    const double rate = rules.frames_per_second > 0 ? rules.frames_per_second : kUnknownFrameRate;
    for (const double seconds : patch_seconds(shape.frames, temporal_patch, rate)) {
      std::string caption = replaced(rules.frame_caption, "{seconds}", fmt::format("{:.1f}", seconds));
      caption = replaced(caption, "{number}", std::to_string(shape.size.captions.size() + 1));
      shape.size.captions.push_back(std::move(caption));
    }
  }
  return rules.frames_per_second > 0 ? rules.frames_per_second
                                     : sampled_rate(std::ssize(shape.frames), total, std::nullopt);
}

Result<PixelSize> picture_size(const MediaReference& media, const MediaShape& shape) {
  const size_t first = shape.frames.empty() ? 0 : static_cast<size_t>(shape.frames.front());
  WEFT_TRY(const ImageInfo image, probe_image(media.files[first]));
  return PixelSize{.height = image.height(), .width = image.width()};
}

Result<MediaShape> measure_pictures(const MediaRules& rules, const MediaReference& media) {
  const bool is_video = media.kind == MediaKind::kVideo;
  const PatchRules& patches = is_video ? *rules.video : *rules.image;
  MediaShape shape;
  int64_t num_frames = 1;
  if (is_video) {
    WEFT_TRY(const double rate, choose_frames(rules, media, patches.temporal_patch, shape));
    num_frames = std::ssize(shape.frames);
    shape.frame_seconds = seconds_per_grid(patches.temporal_patch, rate);
  }
  WEFT_TRY(shape.source, picture_size(media, shape));
  WEFT_TRY(shape.resized, resized_size(patches, shape.source, media.files.front().string(), num_frames));
  shape.grid = patch_grid(patches, shape.resized, num_frames);
  shape.size.tokens = shape.grid.num_patches() / (patches.merge * patches.merge);
  shape.size.patches = shape.grid.num_patches();
  return shape;
}

Result<MediaShape> measure_tiles(const MediaRules& rules, const MediaReference& media) {
  const bool is_video = media.kind == MediaKind::kVideo;
  const TileRules& tiles = is_video ? *rules.frame_tiles : *rules.tiles;
  MediaShape shape;
  if (is_video) {
    WEFT_TRY([[maybe_unused]] const double rate, choose_frames(rules, media, 1, shape));
  }
  WEFT_TRY(shape.source, picture_size(media, shape));
  const TileGrid grid = is_video ? TileGrid() : tile_grid(tiles, shape.source);
  shape.resized = {.height = grid.rows * tiles.side, .width = grid.columns * tiles.side};
  shape.num_tiles = is_video ? std::ssize(shape.frames) : grid.num_tiles();
  shape.size.patches = shape.num_tiles * rules.geometry.patches_per_tile;
  shape.size.tokens = shape.size.patches / rules.geometry.patches_per_embedding;
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

/// Where nothing is said of videos, their patches are those of images.
void follow_images(MediaRules& rules) {
  rules.video->patch = rules.image->patch;
  rules.video->merge = rules.image->merge;
  rules.video->temporal_patch = rules.image->temporal_patch;
}

/// What holds where no file says otherwise.
void start_pictures(const Model& model, MediaRules& rules) {
  const VisionNumbers& vision = *model.numbers.vision;
  PatchRules patches{.patch = vision.patch_size,
                     .merge = vision.merge_size,
                     .temporal_patch = vision.temporal_patch_size,
                     .mean = vision.pixel_mean,
                     .deviation = vision.pixel_deviation};
  rules.frame_caption = model.numbers.video_text.caption;
  if (vision.tile_side > 0) {
    rules.tiles = rules.frame_tiles = TileRules{.patches = patches, .side = vision.tile_side * vision.patch_size};
    rules.frames.spread = FrameSpread::kMiddles;
    return;
  }
  const bool is_apart = model.numbers.media.time == TimeRule::kApart;
  rules.image = patches;
  rules.video = is_apart ? apart_video_rules() : video_rules();
  follow_images(rules);
  rules.frames.spread = is_apart ? FrameSpread::kToLast : FrameSpread::kFromFirst;
}

std::optional<Error> read_videos(const Document& document, const VisionNumbers& vision, MediaRules& rules) {
  if (rules.frame_tiles) {
    auto read = read_tile_rules(document, "video_processor", *rules.frame_tiles, vision.processors);
    if (!read) return read.error();
    rules.frame_tiles = *read;
    return std::nullopt;
  }
  auto read = read_video_rules(document, rules.video->limits_all_frames ? apart_video_rules() : video_rules(),
                               vision.processors);
  if (!read) return read.error();
  rules.video = *read;
  return find_misfit(document, "video_processor", *read, vision);
}

std::optional<Error> read_pictures(const Document& document, const VisionNumbers& vision, MediaRules& rules) {
  if (rules.tiles) {
    auto read = read_tile_rules(document, "image_processor", *rules.tiles, vision.processors);
    if (!read) return read.error();
    rules.tiles = rules.frame_tiles = *read;  // where nothing is said of videos
  } else {
    auto read = read_image_rules(document, vision.processors);
    if (!read) return read.error();
    if (auto error = find_misfit(document, "image_processor", *read, vision)) return error;
    rules.image = *read;
    follow_images(rules);
  }
  return document.root.contains("video_processor") ? read_videos(document, vision, rules) : std::nullopt;
}

}  // namespace

Result<MediaRules> read_media_rules(const Model& model, const std::filesystem::path& folder,
                                    const DataMediaLimits& limits) {
  MediaRules rules{.geometry = model.media, .max_seconds = limits.audio_max_seconds};
  const auto& vision = model.numbers.vision;
  const auto& audio = model.numbers.audio;
  if (vision && !vision->processors.empty()) {
    if (auto error = find_odd_channels(*vision, (folder / "config.json").string())) return *std::move(error);
    start_pictures(model, rules);
  }
  if (audio) rules.audio = MelRules{.num_mels = audio->mel_bins};
  if (const auto path = first_file(folder, {"preprocessor_config.json", "processor_config.json"})) {
    WEFT_TRY(const Document document, read_document(*path));
    if (rules.has_pictures()) {
      if (const auto error = read_pictures(document, *vision, rules)) return *error;
    }
    if (rules.audio) {
      WEFT_TRY(rules.audio, read_mel_rules(document));
      if (auto error = find_misfit(document, *rules.audio, *audio)) return *std::move(error);
    }
  }
  if (const auto path = first_file(folder, {"video_preprocessor_config.json"}); path && rules.has_pictures()) {
    WEFT_TRY(const Document document, read_document(*path));
    if (const auto error = read_videos(document, *vision, rules)) return *error;
  }
  const auto limit = [](int64_t& value, int64_t given) { value = given > 0 ? given : value; };
  if (rules.frame_tiles) rules.frames.temporal_patch = 1;
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
  const bool is_known = is_sound ? rules.audio.has_value() : rules.has_pictures();
  if (!is_known || media.files.empty()) return no_encoder(rules, media);
  if (is_sound) return measure_clip(rules, media);
  return rules.tiles ? measure_tiles(rules, media) : measure_pictures(rules, media);
}

}  // namespace weft
