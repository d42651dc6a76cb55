#include "weft/families/media/media_cursor.h"

#include <string>

#include <fmt/format.h>

namespace weft {
namespace {

constexpr std::string_view kExpandAdvice =
    "Expand each placeholder to as many tokens as its media give, and keep tokens and media in the same order.";

constexpr std::string_view kEncloseAdvice =
    "Enclose each of the media in its start and end tokens, say whether videos hold their audio, and cut no sample off "
    "inside its media.";

std::string field_of_token(int64_t at) {
  return fmt::format("tokens[{}]", at);
}

template <typename Belongs>
Result<int64_t> check_run_length(std::span<const int64_t> tokens, int64_t at, int64_t expected, std::string_view what,
                                 const Belongs& belongs) {
  int64_t length = 0;
  for (const int64_t token : tokens.subspan(static_cast<size_t>(at))) {
    if (!belongs(token)) break;
    ++length;
  }
  if (length != expected) {
    return Error{.field = field_of_token(at),
                 .problem = fmt::format("a run of {} tokens begins here, and {} gives {}", length, what, expected),
                 .advice = std::string(kExpandAdvice)};
  }
  return expected;
}

/// `taken` + 1 media of a kind are needed, of which the sample gives `given`.
Result<size_t> take_next(size_t& taken, size_t given, int64_t at, std::string_view kind, std::string_view list) {
  if (taken == given) {
    return Error{.field = field_of_token(at),
                 .problem = fmt::format("{} {} of the sample begins here, and {} has {}", kind, taken + 1, list, given),
                 .advice = fmt::format("Give the sample one entry of {} for each {} in its tokens.", list, kind)};
  }
  return taken++;
}

}  // namespace

Result<size_t> MediaCursor::take_image(int64_t at) {
  return take_next(images_taken_, media_.images.size(), at, "image", "image_grids");
}

Result<size_t> MediaCursor::take_video(int64_t at) {
  return take_next(videos_taken_, media_.videos.size(), at, "video", "video_grids");
}

Result<size_t> MediaCursor::take_audio(int64_t at) {
  return take_next(audios_taken_, media_.audio_frames.size(), at, "audio clip", "audio_frames");
}

Result<int64_t> MediaCursor::check_run(int64_t at, int64_t expected, std::string_view what) const {
  const int64_t id = tokens_[static_cast<size_t>(at)];
  return check_run_length(tokens_, at, expected, what, [&](int64_t token) { return token == id; });
}

Result<int64_t> MediaCursor::check_mixed_run(int64_t at, int64_t expected, std::string_view what) const {
  return check_run_length(tokens_, at, expected, what,
                          [&](int64_t token) { return token == rules_.tokens.video || token == rules_.tokens.audio; });
}

Result<int64_t> MediaCursor::check_before(int64_t at, int64_t id, std::string_view name, std::string_view what) const {
  if (at == 0 || tokens_[static_cast<size_t>(at - 1)] != id) {
    return Error{.field = field_of_token(at),
                 .problem = fmt::format("{} begins here after {}, and needs its {} ({}) before it", what,
                                        found_at(at - 1), name, id),
                 .advice = std::string(kEncloseAdvice)};
  }
  return at;
}

Result<int64_t> MediaCursor::check_token(int64_t at, int64_t id, std::string_view name, std::string_view what) const {
  if (at >= static_cast<int64_t>(tokens_.size()) || tokens_[static_cast<size_t>(at)] != id) {
    return Error{.field = field_of_token(at),
                 .problem = fmt::format("{} stands here, and {} needs {} ({})", found_at(at), what, name, id),
                 .advice = std::string(kEncloseAdvice)};
  }
  return at + 1;
}

std::string MediaCursor::found_at(int64_t at) const {
  const bool inside = at >= 0 && at < static_cast<int64_t>(tokens_.size());
  return inside ? fmt::format("token {}", tokens_[static_cast<size_t>(at)]) : "nothing";
}

Result<int64_t> MediaCursor::check_all_taken() const {
  const auto left_over = [&](std::string_view list, size_t given, size_t taken) {
    return Error{
        .field = field_of_token(static_cast<int64_t>(tokens_.size())),
        .problem = fmt::format("the tokens end here and hold {} of the {} entries of {}", taken, given, list),
        .advice = fmt::format("Give the sample only those entries of {} that are in its tokens, and do not cut "
                              "its tokens off before the last.",
                              list)};
  };
  if (images_taken_ < media_.images.size()) {
    return left_over("image_grids", media_.images.size(), images_taken_);
  }
  if (videos_taken_ < media_.videos.size()) {
    return left_over("video_grids", media_.videos.size(), videos_taken_);
  }
  if (rules_.time == TimeRule::kClock && audios_taken_ < media_.audio_frames.size()) {
    return left_over("audio_frames", media_.audio_frames.size(), audios_taken_);
  }
  return static_cast<int64_t>(images_taken_ + videos_taken_ + audios_taken_);
}

}  // namespace weft
