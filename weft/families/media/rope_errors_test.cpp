#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "tests/support/families/example_sample.h"
#include "weft/families/media/rope_index.h"

namespace weft {
namespace {

/// A sample that owns its media.
struct Sample {
  TimeRule time = TimeRule::kClock;
  std::vector<int64_t> tokens;
  std::vector<Grid> images = {};
  std::vector<Grid> videos = {};
  std::vector<double> seconds = {};
  std::vector<int64_t> audio = {};
  bool audio_in_video = false;
};

std::string error_of(const Sample& sample, const RopeRules* rules = nullptr) {
  const auto index = rope_index(rules ? *rules : example_rules(sample.time), sample.tokens,
                                {.images = sample.images,
                                 .videos = sample.videos,
                                 .video_frame_seconds = sample.seconds,
                                 .audio_frames = sample.audio,
                                 .audio_in_video = sample.audio_in_video});
  if (index) return "none";
  EXPECT_FALSE(index.error().advice.empty()) << index.error().message();
  return index.error().message();
}

const std::vector<TimeRule> kTimeRules = {TimeRule::kFrames, TimeRule::kSeconds, TimeRule::kClock};

std::vector<int64_t> with_images(size_t first, size_t second) {
  return make_tokens({{kText, 1},
                      {kVisionStart, 1},
                      {kImage, first},
                      {kVisionEnd, 1},
                      {kVisionStart, 1},
                      {kImage, second},
                      {kVisionEnd, 1}});
}

TEST(RopeErrors, ARunOfTheWrongLengthIsNamedWithItsFirstToken) {
  for (const TimeRule time : kTimeRules) {
    const std::vector<Grid> images = {{1, 4, 4}, {1, 2, 6}};
    EXPECT_EQ(error_of({.time = time, .tokens = with_images(4, 3), .images = images}), "none");
    EXPECT_PRED_FORMAT2(testing::IsSubstring,
                        "tokens[2]: a run of 5 tokens begins here, and an image of grid 1 x 4 x 4 with merge size 2 "
                        "gives 4",
                        error_of({.time = time, .tokens = with_images(5, 3), .images = images}));
    EXPECT_PRED_FORMAT2(testing::IsSubstring,
                        "tokens[8]: a run of 2 tokens begins here, and an image of grid 1 x 2 x 6",
                        error_of({.time = time, .tokens = with_images(4, 2), .images = images}));
  }
}

TEST(RopeErrors, VideosAreJudgedLikeImages) {
  const auto tokens = make_tokens({{kVisionStart, 1}, {kVideo, 3}, {kVisionEnd, 1}});
  for (const TimeRule time : kTimeRules) {
    EXPECT_EQ(error_of({.time = time, .tokens = tokens, .videos = {{3, 2, 2}}, .seconds = {1}}), "none");
    EXPECT_PRED_FORMAT2(testing::IsSubstring, "tokens[1]: a run of 3 tokens begins here, and a video of grid 2 x 2 x 2",
                        error_of({.time = time, .tokens = tokens, .videos = {{2, 2, 2}}, .seconds = {1}}));
    EXPECT_PRED_FORMAT2(testing::IsSubstring, "tokens[1]: video 1 of the sample begins here, and video_grids has 0",
                        error_of({.time = time, .tokens = tokens}));
    EXPECT_PRED_FORMAT2(testing::IsSubstring,
                        "tokens[0]: the tokens end here and hold 0 of the 1 entries of video_grids",
                        error_of({.time = time, .tokens = {}, .videos = {{3, 2, 2}}, .seconds = {1}}));
  }
}

TEST(RopeErrors, MoreOrFewerMediaThanGridsAreNamed) {
  for (const TimeRule time : kTimeRules) {
    EXPECT_PRED_FORMAT2(testing::IsSubstring, "tokens[8]: image 2 of the sample begins here, and image_grids has 1",
                        error_of({.time = time, .tokens = with_images(4, 3), .images = {{1, 4, 4}}}));
    EXPECT_PRED_FORMAT2(
        testing::IsSubstring, "tokens[12]: the tokens end here and hold 2 of the 3 entries of image_grids",
        error_of({.time = time, .tokens = with_images(4, 3), .images = {{1, 4, 4}, {1, 2, 6}, {1, 2, 2}}}));
  }
}

TEST(RopeErrors, GridsThatCannotBeAreNamed) {
  for (const TimeRule time : kTimeRules) {
    for (const Grid& grid : {Grid{1, 0, 4}, Grid{1, -4, -4}, Grid{1, 4, 3}, Grid{1, 3, 4}, Grid{0, 4, 4}}) {
      EXPECT_PRED_FORMAT2(testing::IsSubstring, "image_grids[1]: the grid is " + to_string(grid),
                          error_of({.time = time, .tokens = with_images(4, 4), .images = {{1, 4, 4}, grid}}));
      EXPECT_PRED_FORMAT2(testing::IsSubstring, "video_grids[0]: the grid is " + to_string(grid),
                          error_of({.time = time, .tokens = {}, .videos = {grid}, .seconds = {1}}));
    }
  }
}

TEST(RopeErrors, SecondsAreGivenForEachVideo) {
  const auto tokens = make_tokens({{kVisionStart, 1}, {kVideo, 3}, {kVisionEnd, 1}});
  const std::vector<Grid> videos = {{3, 2, 2}};
  EXPECT_PRED_FORMAT2(testing::IsSubstring, "video_frame_seconds: 0 numbers for 1 videos; one for each is needed",
                      error_of({.tokens = tokens, .videos = videos}));
  EXPECT_PRED_FORMAT2(testing::IsNotSubstring, "none at all", error_of({.tokens = tokens, .videos = videos}));
  EXPECT_PRED_FORMAT2(testing::IsSubstring,
                      "video_frame_seconds: 2 numbers for 1 videos; one for each is needed, or none at all",
                      error_of({.time = TimeRule::kSeconds, .tokens = tokens, .videos = videos, .seconds = {1, 1}}));
  for (const double seconds : {0.0, -1.0, std::numeric_limits<double>::infinity(), std::nan(""), 1e9}) {
    EXPECT_PRED_FORMAT2(testing::IsSubstring, "video_frame_seconds[0]: ",
                        error_of({.tokens = tokens, .videos = videos, .seconds = {seconds}}));
  }
}

TEST(RopeErrors, MediaOnAClockStandBetweenTheirStartsAndEnds) {
  const std::vector<Grid> grids = {{2, 2, 2}};
  EXPECT_PRED_FORMAT2(testing::IsSubstring,
                      "tokens[0]: an image of grid 2 x 2 x 2 with merge size 2 begins here after nothing, and needs "
                      "its vision start (904) before it",
                      error_of({.tokens = make_tokens({{kImage, 2}, {kVisionEnd, 1}}), .images = grids}));
  EXPECT_PRED_FORMAT2(
      testing::IsSubstring, "tokens[1]: a video of grid 2 x 2 x 2 with merge size 2 begins here after token 7",
      error_of({.tokens = make_tokens({{kText, 1}, {kVideo, 2}, {kVisionEnd, 1}}), .videos = grids, .seconds = {1}}));
  EXPECT_PRED_FORMAT2(testing::IsSubstring, "tokens[3]: nothing stands here",
                      error_of({.tokens = make_tokens({{kVisionStart, 1}, {kImage, 2}}), .images = grids}));
  EXPECT_PRED_FORMAT2(testing::IsSubstring, "tokens[1]: an audio clip of 12 mel frames begins here after token 7",
                      error_of({.tokens = make_tokens({{kText, 1}, {kAudio, 3}, {kAudioEnd, 1}}), .audio = {12}}));
  EXPECT_PRED_FORMAT2(testing::IsSubstring,
                      "tokens[4]: token 7 stands here, and an audio clip of 12 mel frames needs audio end (907)",
                      error_of({.tokens = make_tokens({{kAudioStart, 1}, {kAudio, 3}, {kText, 1}}), .audio = {12}}));
  EXPECT_PRED_FORMAT2(testing::IsSubstring,
                      "tokens[1]: token 7 stands here, and an audio start outside a video with audio needs an audio "
                      "token (903)",
                      error_of({.tokens = make_tokens({{kAudioStart, 1}, {kText, 1}})}));
}

TEST(RopeErrors, AudioIsCountedAndMeasured) {
  const auto tokens = make_tokens({{kAudioStart, 1}, {kAudio, 3}, {kAudioEnd, 1}});
  EXPECT_EQ(error_of({.tokens = tokens, .audio = {12}}), "none");
  EXPECT_PRED_FORMAT2(testing::IsSubstring,
                      "tokens[1]: a run of 3 tokens begins here, and an audio clip of 16 mel frames gives 4",
                      error_of({.tokens = tokens, .audio = {16}}));
  EXPECT_PRED_FORMAT2(testing::IsSubstring, "tokens[1]: audio clip 1 of the sample begins here, and audio_frames has 0",
                      error_of({.tokens = tokens}));
  EXPECT_PRED_FORMAT2(testing::IsSubstring,
                      "tokens[5]: the tokens end here and hold 1 of the 2 entries of audio_frames",
                      error_of({.tokens = tokens, .audio = {12, 12}}));
  for (const int64_t frames : {int64_t{2}, int64_t{0}, int64_t{-5}, int64_t{1} << 40}) {
    EXPECT_PRED_FORMAT2(testing::IsSubstring, "audio_frames[0]: ", error_of({.tokens = tokens, .audio = {frames}}));
  }
  EXPECT_PRED_FORMAT2(testing::IsSubstring, "audio_frames: 1 audio clips for a model that hears nothing",
                      error_of({.time = TimeRule::kFrames, .tokens = {}, .audio = {12}}));
}

TEST(RopeErrors, AVideoWithAudioAlternatesAsItsTimesSay) {
  // Frames at 0, 2 | 4 of two tokens each, audio at 0 … 3 | 4, 5.
  const RopeRules rules = example_clip_rules();
  Sample sample{.tokens = make_tokens({{kVisionStart, 1},
                                       {kAudioStart, 1},
                                       {kVideo, 4},
                                       {kAudio, 4},
                                       {kVideo, 2},
                                       {kAudio, 2},
                                       {kAudioEnd, 1},
                                       {kVisionEnd, 1}}),
                .videos = {{3, 2, 4}},
                .seconds = {0.5},
                .audio = {24},
                .audio_in_video = true};
  EXPECT_EQ(error_of(sample, &rules), "none");

  Sample apart = sample;
  apart.tokens =
      make_tokens({{kVisionStart, 1}, {kAudioStart, 1}, {kVideo, 6}, {kAudio, 6}, {kAudioEnd, 1}, {kVisionEnd, 1}});
  EXPECT_PRED_FORMAT2(testing::IsSubstring,
                      "tokens[6]: token 902 stands here, and a video of grid 3 x 2 x 4 with merge size 2 with 6 audio "
                      "tokens, 0.5 s from frame to frame, in chunks of 1 s, needs an audio token (903)",
                      error_of(apart, &rules));

  Sample too_long = sample;
  too_long.audio = {28};
  EXPECT_PRED_FORMAT2(testing::IsSubstring, "tokens[2]: a run of 12 tokens begins here", error_of(too_long, &rules));

  Sample not_said = sample;
  not_said.audio_in_video = false;
  EXPECT_PRED_FORMAT2(testing::IsSubstring, "tokens[2]: token 902 stands here, and an audio start",
                      error_of(not_said, &rules));

  Sample without_audio = sample;
  without_audio.tokens = make_tokens({{kVisionStart, 1}, {kVideo, 6}, {kVisionEnd, 1}});
  EXPECT_PRED_FORMAT2(testing::IsSubstring,
                      "tokens[1]: a video of grid 3 x 2 x 4 with merge size 2 begins "
                      "here after token 904, and needs its audio start (906)",
                      error_of(without_audio, &rules));

  Sample cut_off = sample;
  cut_off.tokens.pop_back();
  EXPECT_PRED_FORMAT2(testing::IsSubstring, "tokens[15]: nothing stands here", error_of(cut_off, &rules));
  cut_off.tokens.pop_back();
  EXPECT_PRED_FORMAT2(testing::IsSubstring, "tokens[14]: nothing stands here", error_of(cut_off, &rules));
  Sample no_grid = sample;
  no_grid.videos.clear();
  no_grid.seconds.clear();
  EXPECT_PRED_FORMAT2(testing::IsSubstring, "tokens[0]: video 1 of the sample begins here", error_of(no_grid, &rules));
}

}  // namespace
}  // namespace weft
