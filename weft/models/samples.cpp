#include "weft/models/samples.h"

#include <algorithm>

#include "weft/base/check.h"
#include "weft/families/media/audio_index.h"

namespace weft {
namespace {

/// Images, videos or clips in their order, with the rows of all of them in one tensor.
struct Media {
  const at::Tensor& rows;  ///< along `dim`
  int64_t dim = 0;
  std::vector<int64_t> tokens;    ///< that each stands for
  std::vector<int64_t> num_rows;  ///< of each
  size_t next = 0;
  int64_t next_row = 0;

  struct Taken {
    size_t first = 0;
    size_t count = 0;
    at::Tensor rows;
  };
  /// Those that the next `wanted` tokens stand for.
  Taken take(int64_t wanted) {
    Taken taken{.first = next};
    const int64_t first_row = next_row;
    for (int64_t got = 0; got < wanted; ++next) {
      WEFT_CHECK(next < tokens.size(), "media for {} of {} tokens", got, wanted);
      got += tokens[next];
      next_row += num_rows[next];
    }
    taken.count = next - taken.first;
    if (taken.count > 0) taken.rows = rows.narrow(dim, first_row, next_row - first_row);
    return taken;
  }
};

Media grid_media(const at::Tensor& rows, const std::vector<Grid>& grids, int64_t merge_size) {
  Media media{.rows = rows};
  for (const Grid& grid : grids) {
    media.tokens.push_back(num_merged_tokens(grid, merge_size));
    media.num_rows.push_back(num_patches(grid));
  }
  return media;
}

template <typename T>
std::vector<T> part_of(const std::vector<T>& list, const Media::Taken& taken) {
  if (list.empty()) return {};
  const auto begin = list.begin() + static_cast<std::ptrdiff_t>(taken.first);
  return {begin, begin + static_cast<std::ptrdiff_t>(taken.count)};
}

}  // namespace

std::vector<RawInputs> split_samples(const ModelNumbers& numbers, const RawInputs& given) {
  const auto patched = with_patches(numbers, given);
  WEFT_CHECK(patched.ok(), "{}", patched.error().message());
  const RawInputs& raw = *patched;
  const MediaTokens& ids = numbers.media.tokens;
  Media images = grid_media(raw.pixel_values, raw.image_grids, numbers.media.merge_size);
  Media videos = grid_media(raw.pixel_values_videos, raw.video_grids, numbers.media.merge_size);
  Media clips{.rows = raw.input_features, .dim = 1, .num_rows = raw.audio_frames};
  for (const int64_t frames : raw.audio_frames) clips.tokens.push_back(num_audio_tokens(frames));

  std::vector<RawInputs> samples;
  int64_t begin = 0;
  for (const int64_t length : raw.lengths) {
    RawInputs sample{.input_ids = raw.input_ids.narrow(0, begin, length),
                     .lengths = {length},
                     .has_audio_in_video = raw.has_audio_in_video};
    if (raw.targets.defined()) sample.targets = raw.targets.narrow(0, begin, length);
    begin += length;
    const int64_t* first = sample.input_ids.data_ptr<int64_t>();
    const auto count = [&](int64_t id) { return id < 0 ? 0 : std::count(first, first + length, id); };

    const Media::Taken own_images = images.take(count(ids.image));
    sample.pixel_values = own_images.rows;
    sample.image_grids = part_of(raw.image_grids, own_images);
    const Media::Taken own_videos = videos.take(count(ids.video));
    sample.pixel_values_videos = own_videos.rows;
    sample.video_grids = part_of(raw.video_grids, own_videos);
    sample.video_frame_seconds = part_of(raw.video_frame_seconds, own_videos);
    const Media::Taken own_clips = clips.take(count(ids.audio));
    sample.input_features = own_clips.rows;
    sample.audio_frames = part_of(raw.audio_frames, own_clips);
    samples.push_back(std::move(sample));
  }
  return samples;
}

}  // namespace weft
