#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "weft/data/conversations/data_settings.h"
#include "weft/data/conversations/media_tokens.h"
#include "weft/probe/mel_rules.h"
#include "weft/probe/patch_rules.h"
#include "weft/probe/tile_rules.h"
#include "weft/probe/video_frames.h"

namespace weft {

/// How media files become what a model takes in, by its folder and a data set's limits.
struct MediaRules {
  std::optional<PatchRules> image;  ///< nothing: the model has no encoder for them
  std::optional<PatchRules> video;
  std::optional<TileRules> tiles;        ///< of images, instead, where the model takes images of one size
  std::optional<TileRules> frame_tiles;  ///< of a video's frames, which are a tile each
  std::optional<MelRules> audio;
  FrameSampling frames;
  double frames_per_second = 0;  ///< of videos, where the data set says so
  MediaGeometry geometry;
  std::string frame_caption;  ///< of a video's frames, where each stands apart
  double max_seconds = 0;     ///< of a clip; 0: no limit but the model's

  bool has_pictures() const { return image.has_value() || tiles.has_value(); }
};

/// From preprocessor_config.json or processor_config.json and video_preprocessor_config.json, where they are.
Result<MediaRules> read_media_rules(const Model& model, const std::filesystem::path& folder,
                                    const DataMediaLimits& limits);

/// What becomes of media, by the headers of their files.
struct MediaShape {
  MediaSize size;
  PixelSize source;             ///< of a picture as it is shown
  PixelSize resized;            ///< what it is resized to
  PatchGrid grid;               ///< of an image or a video
  int64_t num_tiles = 0;        ///< of an image or a video; 0: it is not cut into tiles
  std::vector<int64_t> frames;  ///< which of a video's files are looked at
  double frame_seconds = 1;     ///< from one of a video's grids to the next
  int64_t samples = 0;          ///< of a clip, at MelRules::kRateHz
  int64_t mel_frames = 0;
  int64_t positions = 0;  ///< of the audio encoder
};

/// The error is about these files alone.
Result<MediaShape> measure_media(const MediaRules& rules, const MediaReference& media);

}  // namespace weft
