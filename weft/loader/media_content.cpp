#include "weft/loader/media_content.h"

#include <span>

#include <fmt/format.h>

#include "weft/prepare/decode_image.h"
#include "weft/prepare/patches.h"
#include "weft/prepare/tiles.h"
#include "weft/prepare/waveform.h"

namespace weft {
namespace {

/// A picture, or those frames of a video that are looked at.
Result<std::vector<Pixels>> read_pictures(const MediaReference& media, const MediaShape& shape) {
  std::vector<Pixels> pictures;
  const bool is_video = media.kind == MediaKind::kVideo;
  const size_t num_pictures = is_video ? shape.frames.size() : 1;
  for (size_t i = 0; i < num_pictures; ++i) {
    const std::filesystem::path& file = media.files[is_video ? static_cast<size_t>(shape.frames[i]) : 0];
    WEFT_TRY(Pixels picture, read_image(file));
    if (picture.height != shape.source.height || picture.width != shape.source.width) {
      return Error{.source = file.string(),
                   .problem = fmt::format("is {} × {} pixels, {} × {} were expected", picture.width, picture.height,
                                          shape.source.width, shape.source.height),
                   .advice = "Frames of a video have one size; a file must not change while it is used."};
    }
    pictures.push_back(std::move(picture));
  }
  return pictures;
}

}  // namespace

std::optional<Error> append_patches(const MediaReference& media, const PatchRules& rules, const MediaShape& shape,
                                    Range part, std::vector<float>& patches) {
  const auto pictures = read_pictures(media, shape);
  if (!pictures) return pictures.error();
  std::vector<const Pixels*> frames;
  for (const Pixels& picture : *pictures) frames.push_back(&picture);
  const size_t before = patches.size();
  patches.resize(before + static_cast<size_t>(part.size() * rules.values_per_patch()));
  prepare_patches(frames, rules, shape.resized, {.begin = part.begin, .end = part.end},
                  std::span(patches).subspan(before));
  return std::nullopt;
}

std::optional<Error> append_tiles(const MediaReference& media, const TileRules& rules, const MediaShape& shape,
                                  Range part, std::vector<float>& patches) {
  const auto pictures = read_pictures(media, shape);
  if (!pictures) return pictures.error();
  int64_t first = 0;
  for (const Pixels& picture : *pictures) {
    const int64_t count = num_patches_of_tiles(rules, shape.resized);
    const Range own = intersection(part, {first, first + count});
    if (!own.empty())
      prepare_tiles(picture, rules, shape.resized, {.begin = own.begin - first, .end = own.end - first}, patches);
    first += count;
  }
  return std::nullopt;
}

Result<std::vector<float>> clip_features(const MediaReference& media, const LogMel& mel, const MediaShape& shape,
                                         Range part) {
  WEFT_TRY(Waveform sound, read_audio(media.files.front()));
  sound = resampled(std::move(sound), MelRules::kRateHz);
  if (std::ssize(sound.samples) < shape.samples) {
    return Error{.source = media.files.front().string(),
                 .problem = fmt::format("has {} values, {} were expected", sound.samples.size(), shape.samples),
                 .advice = "A file must not change while it is used."};
  }
  std::vector<float> all = mel.features(std::span(sound.samples).first(static_cast<size_t>(shape.samples)));
  if (part == Range{0, shape.mel_frames}) return all;
  std::vector<float> own;
  for (auto band = all.begin(); band != all.end(); band += shape.mel_frames)
    own.insert(own.end(), band + part.begin, band + part.end);
  return own;
}

}  // namespace weft
