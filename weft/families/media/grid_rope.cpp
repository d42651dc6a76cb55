#include <algorithm>

#include <fmt/format.h>

#include "weft/families/media/media_cursor.h"
#include "weft/families/media/position_writer.h"
#include "weft/families/media/rope_rules.h"

namespace weft {
namespace {

int64_t frame_distance(const RopeRules& rules, const SampleMedia& media, size_t video) {
  if (rules.time == TimeRule::kFrames) return 1;
  if (media.video_frame_seconds.empty()) return rules.tokens_per_second;
  // Hugging Face cuts the seconds, kept in single precision, down to whole ones before it multiplies: the frames of a
  // video with half a second between them all have one temporal position.
  return rules.tokens_per_second * static_cast<int64_t>(static_cast<float>(media.video_frame_seconds[video]));
}

VisionRun make_run(const Grid& grid, int64_t merge_size, int64_t frame_distance) {
  VisionRun run{.frame_positions = std::vector<int64_t>(static_cast<size_t>(grid.t)),
                .rows = grid.h / merge_size,
                .columns = grid.w / merge_size};
  for (size_t frame = 0; frame < run.frame_positions.size(); ++frame) {
    run.frame_positions[frame] = static_cast<int64_t>(frame) * frame_distance;
  }
  return run;
}

}  // namespace

Result<RopeIndex> grid_rope_index(const RopeRules& rules, std::span<const int64_t> tokens, const SampleMedia& media) {
  MediaCursor cursor(rules, tokens, media);
  PositionWriter writer(static_cast<int64_t>(tokens.size()));
  int64_t position = 0;
  while (writer.num_written() < static_cast<int64_t>(tokens.size())) {
    const int64_t at = writer.num_written();
    const int64_t token = tokens[static_cast<size_t>(at)];
    if (token != rules.tokens.image && token != rules.tokens.video) {
      writer.write_line(position++, 1);
      continue;
    }
    Grid grid;
    int64_t distance = 1;
    if (token == rules.tokens.image) {
      WEFT_TRY(const size_t image, cursor.take_image(at));
      grid = media.images[image];
    } else {
      WEFT_TRY(const size_t video, cursor.take_video(at));
      grid = media.videos[video];
      distance = frame_distance(rules, media, video);
    }
    const auto what =
        fmt::format("{} of grid {} with merge size {}", token == rules.tokens.image ? "an image" : "a video",
                    to_string(grid), rules.merge_size);
    WEFT_TRY(const int64_t count, cursor.check_run(at, num_merged_tokens(grid, rules.merge_size), what));
    writer.write_vision(make_run(grid, rules.merge_size, distance), position, 0, count);
    // What follows does not wait for the last frame: a long video's temporal positions run into those of the text.
    position += std::max(grid.h, grid.w) / rules.merge_size;
  }
  WEFT_TRY([[maybe_unused]] const int64_t num_media, cursor.check_all_taken());
  return std::move(writer).finish();
}

}  // namespace weft
