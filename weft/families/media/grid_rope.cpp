#include <algorithm>

#include <fmt/format.h>

#include "weft/families/media/media_cursor.h"
#include "weft/families/media/position_writer.h"
#include "weft/families/media/rope_rules.h"

namespace weft {
namespace {

int64_t frame_distance(const RopeRules& rules, const SampleMedia& media, size_t video) {
  if (rules.time == TimeRule::kFrames || rules.time == TimeRule::kApart) return 1;
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

/// Goes through videos run by run of their tokens: all frames of one or, where they stand apart, frame by frame.
class VideoRuns {
 public:
  VideoRuns(const RopeRules& rules, const SampleMedia& media) : rules_(rules), media_(media) {}

  /// What begins at a token, and how far apart its frames are.
  struct Run {
    Grid grid;
    int64_t frame_distance = 1;
  };
  Result<Run> take(MediaCursor& cursor, int64_t at) {
    if (frames_left_ == 0) {
      WEFT_TRY(video_, cursor.take_video(at));
      frames_left_ = rules_.time == TimeRule::kApart ? media_.videos[video_].t : 1;
    }
    --frames_left_;
    Run run{media_.videos[video_], frame_distance(rules_, media_, video_)};
    if (rules_.time == TimeRule::kApart) run.grid.t = 1;
    return run;
  }

  std::optional<Error> check_complete(int64_t num_tokens) const {
    if (frames_left_ == 0) return std::nullopt;
    return Error{.field = fmt::format("tokens[{}]", num_tokens),
                 .problem = fmt::format("the tokens end here, but {} of the {} frames of video {} are still to come",
                                        frames_left_, media_.videos[video_].t, video_ + 1),
                 .advice = "Give every frame of a video a run of tokens of its own, with other tokens in between."};
  }

 private:
  const RopeRules& rules_;
  const SampleMedia& media_;
  size_t video_ = 0;
  int64_t frames_left_ = 0;
};

}  // namespace

Result<RopeIndex> grid_rope_index(const RopeRules& rules, std::span<const int64_t> tokens, const SampleMedia& media) {
  MediaCursor cursor(rules, tokens, media);
  PositionWriter writer(static_cast<int64_t>(tokens.size()));
  VideoRuns videos(rules, media);
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
      WEFT_TRY(const VideoRuns::Run run, videos.take(cursor, at));
      grid = run.grid;
      distance = run.frame_distance;
    }
    const auto what =
        fmt::format("{} of grid {} with merge size {}", token == rules.tokens.image ? "an image" : "a video",
                    to_string(grid), rules.merge_size);
    WEFT_TRY(const int64_t count, cursor.check_run(at, num_merged_tokens(grid, rules.merge_size), what));
    writer.write_vision(make_run(grid, rules.merge_size, distance), position, 0, count);
    // What follows does not wait for the last frame: a long video's temporal positions run into those of the text.
    position += std::max(grid.h, grid.w) / rules.merge_size;
  }
  if (const auto error = videos.check_complete(writer.num_written())) return *error;
  WEFT_TRY([[maybe_unused]] const int64_t num_media, cursor.check_all_taken());
  return std::move(writer).finish();
}

}  // namespace weft
