#include <string>
#include <utility>

#include <fmt/format.h>

#include "weft/families/media/audio_index.h"
#include "weft/families/media/media_cursor.h"
#include "weft/families/media/position_writer.h"
#include "weft/families/media/rope_rules.h"

namespace weft {
namespace {

/// Positions of one sample whose video and audio share a clock, part by part. Every part starts after the largest
/// position of the part before it.
class ClockPositions {
 public:
  ClockPositions(const RopeRules& rules, std::span<const int64_t> tokens, const SampleMedia& media)
      : rules_(rules),
        ids_(rules.tokens),
        tokens_(tokens),
        media_(media),
        cursor_(rules, tokens, media),
        writer_(static_cast<int64_t>(tokens.size())) {}

  Result<RopeIndex> find() && {
    while (at() < static_cast<int64_t>(tokens_.size())) {
      WEFT_TRY([[maybe_unused]] const int64_t next, write_part());
    }
    WEFT_TRY([[maybe_unused]] const int64_t num_media, cursor_.check_all_taken());
    return std::move(writer_).finish();
  }

 private:
  int64_t at() const { return writer_.num_written(); }
  bool stands_at(int64_t index, int64_t id) const {
    return index < static_cast<int64_t>(tokens_.size()) && tokens_[static_cast<size_t>(index)] == id;
  }

  /// Each of these returns the next token's index.
  Result<int64_t> write_part() {
    if (stands_at(at(), ids_.image)) return write_image();
    if (stands_at(at(), ids_.video)) return write_video();
    if (stands_at(at(), ids_.audio)) return write_audio();
    if (media_.audio_in_video && stands_at(at(), ids_.vision_start) && stands_at(at() + 1, ids_.audio_start)) {
      return write_clip();
    }
    if (stands_at(at(), ids_.audio_start)) {
      WEFT_TRY([[maybe_unused]] const int64_t next, cursor_.check_token(at() + 1, ids_.audio, "an audio token",
                                                                        "an audio start outside a video with audio"));
    }
    writer_.write_line(writer_.after_last_piece(), 1);
    return at();
  }

  Result<int64_t> write_image() {
    WEFT_TRY(const size_t image, cursor_.take_image(at()));
    const Grid& grid = media_.images[image];
    const std::string what = vision_name("an image", grid);
    WEFT_TRY([[maybe_unused]] const int64_t start, cursor_.check_before(at(), ids_.vision_start, "vision start", what));
    WEFT_TRY(const int64_t count, cursor_.check_run(at(), num_merged_tokens(grid, rules_.merge_size), what));
    // Of several frames, each is a second after the one before.
    writer_.write_vision(make_run(grid, frame_positions(grid.t, 1, rules_.clock)), writer_.after_last_piece(), 0,
                         count);
    return check_end(ids_.vision_end, "vision end", what);
  }

  Result<int64_t> write_video() {
    WEFT_TRY(const size_t video, cursor_.take_video(at()));
    const Grid& grid = media_.videos[video];
    const std::string what = vision_name("a video", grid);
    if (media_.audio_in_video) {
      WEFT_TRY([[maybe_unused]] const int64_t start, cursor_.check_before(at(), ids_.audio_start, "audio start", what));
      WEFT_CHECK(false, "an audio start at {} was passed without its clip", at() - 1);
    }
    WEFT_TRY([[maybe_unused]] const int64_t start, cursor_.check_before(at(), ids_.vision_start, "vision start", what));
    WEFT_TRY(const int64_t count, cursor_.check_run(at(), num_merged_tokens(grid, rules_.merge_size), what));
    writer_.write_vision(video_run(video), writer_.after_last_piece(), 0, count);
    return check_end(ids_.vision_end, "vision end", what);
  }

  Result<int64_t> write_audio() {
    WEFT_TRY(const size_t clip, cursor_.take_audio(at()));
    const int64_t mel_frames = media_.audio_frames[clip];
    const std::string what = fmt::format("an audio clip of {} mel frames", mel_frames);
    WEFT_TRY([[maybe_unused]] const int64_t start, cursor_.check_before(at(), ids_.audio_start, "audio start", what));
    WEFT_TRY(const int64_t count, cursor_.check_run(at(), num_audio_tokens(mel_frames), what));
    writer_.write_line(writer_.after_last_piece(), count);
    return check_end(ids_.audio_end, "audio end", what);
  }

  /// A video with its audio: both starts at one position, video and audio from the next one in alternating pieces, and
  /// both ends at the position after the piece that came last, even where an earlier one reached further.
  Result<int64_t> write_clip() {
    WEFT_TRY(const size_t video, cursor_.take_video(at()));
    WEFT_TRY(const size_t audio, cursor_.take_audio(at()));
    const Clip clip{.video = media_.videos[video],
                    .merge_size = rules_.merge_size,
                    .frame_seconds = media_.video_frame_seconds[video],
                    .audio_tokens = num_audio_tokens(media_.audio_frames[audio])};
    WEFT_TRY(const int64_t next, check_clip(at() + 2, clip));

    write_twice(writer_.after_last_piece());
    const int64_t first = writer_.after_last_piece();
    const VisionRun run = video_run(video);
    // Where the tokens were laid out with a frame on the other side of a chunk's border, Hugging Face gives them the
    // positions as they come, and so does this.
    for (const ClipPiece& piece : clip_layout_of_positions(clip, rules_.clock)) {
      if (piece.is_audio) {
        writer_.write_line(first + piece.begin, piece.end - piece.begin);
      } else {
        writer_.write_vision(run, first, piece.begin, piece.end);
      }
    }
    write_twice(writer_.after_last_piece());
    return next;
  }

  /// From `begin` stand the clip's tokens, as they should alternate, and both ends.
  Result<int64_t> check_clip(int64_t begin, const Clip& clip) const {
    const std::string what = fmt::format("{} with {} audio tokens, {} s from frame to frame, in chunks of {} s,",
                                         vision_name("a video", clip.video), clip.audio_tokens, clip.frame_seconds,
                                         rules_.clock.seconds_per_chunk);
    WEFT_TRY(const int64_t count, cursor_.check_mixed_run(begin, clip.num_tokens(), what));
    std::vector<bool> is_audio;
    for (int64_t i = 0; i < count; ++i) is_audio.push_back(stands_at(begin + i, ids_.audio));
    if (const auto wrong = find_clip_mismatch(clip, rules_.clock, is_audio)) {
      return cursor_.check_token(begin + wrong->offset, wrong->expects_audio ? ids_.audio : ids_.video,
                                 wrong->expects_audio ? "an audio token" : "a video token", what);
    }
    WEFT_TRY(const int64_t last, cursor_.check_token(begin + count, ids_.audio_end, "an audio end", what));
    return cursor_.check_token(last, ids_.vision_end, "a vision end", what);
  }

  /// The end token gets its position as text does, so it is only looked at. Returns its index.
  Result<int64_t> check_end(int64_t id, std::string_view name, std::string_view what) const {
    WEFT_TRY(const int64_t after, cursor_.check_token(at(), id, name, what));
    return after - 1;
  }

  void write_twice(int64_t position) {
    writer_.write_line(position, 1);
    writer_.write_line(position, 1);
  }

  VisionRun make_run(const Grid& grid, std::vector<int64_t> frames) const {
    return {.frame_positions = std::move(frames),
            .rows = grid.h / rules_.merge_size,
            .columns = grid.w / rules_.merge_size};
  }

  VisionRun video_run(size_t video) const {
    const Grid& grid = media_.videos[video];
    return make_run(grid, frame_positions(grid.t, media_.video_frame_seconds[video], rules_.clock));
  }

  std::string vision_name(std::string_view kind, const Grid& grid) const {
    return fmt::format("{} of grid {} with merge size {}", kind, to_string(grid), rules_.merge_size);
  }

  const RopeRules& rules_;
  const MediaTokens& ids_;
  std::span<const int64_t> tokens_;
  const SampleMedia& media_;
  MediaCursor cursor_;
  PositionWriter writer_;
};

}  // namespace

Result<RopeIndex> clock_rope_index(const RopeRules& rules, std::span<const int64_t> tokens, const SampleMedia& media) {
  return ClockPositions(rules, tokens, media).find();
}

}  // namespace weft
