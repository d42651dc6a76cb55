#include "weft/families/media/rope_index.h"

#include <cmath>

#include <fmt/format.h>

#include "weft/families/media/audio_index.h"
#include "weft/families/media/rope_rules.h"

namespace weft {
namespace {

/// Beyond this a frame's position would leave what 64 bits, and single precision long before, can tell apart.
constexpr double kMaxFrameSeconds = 86400;

void check_rules(const RopeRules& rules) {
  WEFT_CHECK(rules.merge_size >= 1, "the merge size is {}", rules.merge_size);
  WEFT_CHECK(rules.tokens_per_second >= 1 && rules.tokens_per_second <= 1'000'000, "{} tokens per second",
             rules.tokens_per_second);
  WEFT_CHECK(rules.clock.positions_per_second >= 1 && rules.clock.positions_per_second <= 1'000'000,
             "{} positions per second", rules.clock.positions_per_second);
  WEFT_CHECK(rules.clock.seconds_per_chunk > 0 && rules.clock.seconds_per_chunk <= kMaxFrameSeconds &&
                 rules.clock.positions_per_chunk() >= 1,
             "a chunk of {} s has no positions", rules.clock.seconds_per_chunk);
}

/// Returns how many were given.
Result<size_t> check_frame_seconds(const RopeRules& rules, const SampleMedia& media) {
  const std::span<const double> seconds = media.video_frame_seconds;
  if (rules.time == TimeRule::kFrames || rules.time == TimeRule::kApart) return seconds.size();
  const bool may_be_missing = rules.time == TimeRule::kSeconds;
  if (seconds.size() != media.videos.size() && !(may_be_missing && seconds.empty())) {
    return Error{.field = "video_frame_seconds",
                 .problem = fmt::format("{} numbers for {} videos; one for each is needed{}", seconds.size(),
                                        media.videos.size(), may_be_missing ? ", or none at all" : ""),
                 .advice = "Give the seconds between frames of each video: temporal patch size / frames per second."};
  }
  for (size_t i = 0; i < seconds.size(); ++i) {
    if (!(seconds[i] > 0 && seconds[i] <= kMaxFrameSeconds)) {
      return Error{.field = fmt::format("video_frame_seconds[{}]", i),
                   .problem = fmt::format("{} s between frames; more than 0 and at most {} are allowed", seconds[i],
                                          kMaxFrameSeconds),
                   .advice = "Give temporal patch size / frames per second."};
    }
  }
  return seconds.size();
}

/// Returns how many clips there are.
Result<size_t> check_audio(const RopeRules& rules, const SampleMedia& media) {
  if (rules.time != TimeRule::kClock) {
    if (media.audio_frames.empty() && !media.audio_in_video) return size_t{0};
    return Error{.field = "audio_frames",
                 .problem = fmt::format("{} audio clips for a model that hears nothing", media.audio_frames.size()),
                 .advice = "Leave audio out, or use a model with an audio encoder."};
  }
  for (size_t i = 0; i < media.audio_frames.size(); ++i) {
    if (media.audio_frames[i] < 3 || media.audio_frames[i] > INT32_MAX) {
      return Error{.field = fmt::format("audio_frames[{}]", i),
                   .problem = fmt::format("{} mel frames; from 3, which give one token, to {} are allowed",
                                          media.audio_frames[i], INT32_MAX),
                   .advice = "Leave the clip out of the sample, or give its mel frames without padding."};
    }
  }
  return media.audio_frames.size();
}

}  // namespace

Result<RopeIndex> rope_index(const RopeRules& rules, std::span<const int64_t> tokens, const SampleMedia& media) {
  check_rules(rules);
  WEFT_TRY([[maybe_unused]] const int64_t image_patches, check_grids(media.images, rules.merge_size, "image_grids"));
  WEFT_TRY([[maybe_unused]] const int64_t video_patches, check_grids(media.videos, rules.merge_size, "video_grids"));
  WEFT_TRY([[maybe_unused]] const size_t num_seconds, check_frame_seconds(rules, media));
  WEFT_TRY([[maybe_unused]] const size_t num_clips, check_audio(rules, media));
  if (rules.time == TimeRule::kClock) return clock_rope_index(rules, tokens, media);
  return grid_rope_index(rules, tokens, media);
}

}  // namespace weft
