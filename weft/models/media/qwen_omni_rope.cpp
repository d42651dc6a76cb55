#include <string>
#include <utility>

#include <fmt/format.h>

#include "weft/models/media/media_cursor.h"
#include "weft/models/media/position_writer.h"
#include "weft/models/media/rope_families.h"

namespace weft {
namespace {

/// Positions of one sample of Qwen2.5-Omni's thinker, part by part. Every part starts after the largest position of the
/// part before it.
class OmniPositions {
 public:
  OmniPositions(const RopeRules& rules, std::span<const int64_t> tokens, const SampleMedia& media)
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
    WEFT_TRY(const Grid grid, cursor_.take_image(at()));
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
    WEFT_TRY(const int64_t expected, cursor_.take_audio(at()));
    const std::string what = fmt::format("an audio clip of {} tokens", expected);
    WEFT_TRY([[maybe_unused]] const int64_t start, cursor_.check_before(at(), ids_.audio_start, "audio start", what));
    WEFT_TRY(const int64_t count, cursor_.check_run(at(), expected, what));
    writer_.write_line(writer_.after_last_piece(), count);
    return check_end(ids_.audio_end, "audio end", what);
  }

  /// A video with its audio: both starts at one position, video and audio from the next one in alternating pieces, and
  /// both ends at the position after the piece that came last, even where an earlier one reached further.
  Result<int64_t> write_clip() {
    WEFT_TRY(const size_t video, cursor_.take_video(at()));
    WEFT_TRY(const int64_t audio_tokens, cursor_.take_audio(at()));
    const std::string what =
        fmt::format("{} with {} audio tokens, in chunks of {} s,", vision_name("a video", media_.videos[video]),
                    audio_tokens, rules_.clock.seconds_per_chunk);
    const int64_t num_tokens = num_merged_tokens(media_.videos[video], rules_.merge_size) + audio_tokens;
    WEFT_TRY([[maybe_unused]] const int64_t count, cursor_.check_mixed_run(at() + 2, num_tokens, what));
    const VisionRun run = video_run(video);
    const auto pieces = clip_layout_at(run.frame_positions, run.tokens_per_frame(), audio_tokens, rules_.clock);
    WEFT_TRY(const int64_t end, check_clip(at() + 2, pieces, video, audio_tokens, what));
    WEFT_TRY(const int64_t last, cursor_.check_token(end, ids_.audio_end, "an audio end", what));
    WEFT_TRY(const int64_t next, cursor_.check_token(last, ids_.vision_end, "a vision end", what));

    write_twice(writer_.after_last_piece());
    const int64_t first = writer_.after_last_piece();
    for (const ClipPiece& piece : pieces) {
      if (piece.is_audio) {
        writer_.write_line(first + piece.begin, piece.end - piece.begin);
      } else {
        writer_.write_vision(run, first, piece.begin, piece.end);
      }
    }
    write_twice(writer_.after_last_piece());
    return next;
  }

  /// The clip's tokens, from `begin`, alternate as they should. Returns the token after them.
  Result<int64_t> check_clip(int64_t begin, const std::vector<ClipPiece>& pieces, size_t video, int64_t audio_tokens,
                             std::string_view what) const {
    // The tokens were laid out in double precision and the positions are in single. Where the two differ, Hugging Face
    // gives the layout of the positions to the tokens as they come, and so does this.
    const auto as_prepared = clip_layout(media_.videos[video], rules_.merge_size, media_.video_frame_seconds[video],
                                         audio_tokens, rules_.clock);
    const int64_t wrong = first_mismatch(begin, as_prepared);
    const int64_t end = begin + num_merged_tokens(media_.videos[video], rules_.merge_size) + audio_tokens;
    if (wrong == end || first_mismatch(begin, pieces) == end) return end;
    const int64_t expected = is_audio_at(wrong - begin, as_prepared) ? ids_.audio : ids_.video;
    return cursor_.check_token(wrong, expected, expected == ids_.audio ? "an audio token" : "a video token", what);
  }

  /// The first token from `begin` that is not of its piece's kind, or the one after all pieces.
  int64_t first_mismatch(int64_t begin, const std::vector<ClipPiece>& pieces) const {
    int64_t index = begin;
    for (const ClipPiece& piece : pieces) {
      for (int64_t i = piece.begin; i < piece.end; ++i, ++index) {
        if (!stands_at(index, piece.is_audio ? ids_.audio : ids_.video)) return index;
      }
    }
    return index;
  }

  static bool is_audio_at(int64_t offset, const std::vector<ClipPiece>& pieces) {
    for (const ClipPiece& piece : pieces) {
      if (offset < piece.end - piece.begin) return piece.is_audio;
      offset -= piece.end - piece.begin;
    }
    WEFT_CHECK(false, "the clip has no token {} past its end", offset);
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

Result<RopeIndex> qwen_omni_rope_index(const RopeRules& rules, std::span<const int64_t> tokens,
                                       const SampleMedia& media) {
  return OmniPositions(rules, tokens, media).find();
}

}  // namespace weft
