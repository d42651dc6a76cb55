#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "weft/models/media/example_sample.h"
#include "weft/models/media/rope_index.h"

namespace weft {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

/// A sample that owns its media.
struct Sample {
  RopeFamily family = RopeFamily::kQwen25Omni;
  std::vector<int64_t> tokens;
  std::vector<Grid> images = {};
  std::vector<Grid> videos = {};
  std::vector<double> seconds = {};
  std::vector<int64_t> audio = {};
  bool audio_in_video = false;
};

std::string error_of(const Sample& sample, const RopeRules* rules = nullptr) {
  const auto index = rope_index(rules ? *rules : example_rules(sample.family), sample.tokens,
                                {.images = sample.images,
                                 .videos = sample.videos,
                                 .video_frame_seconds = sample.seconds,
                                 .audio_frames = sample.audio,
                                 .audio_in_video = sample.audio_in_video});
  if (index) return "none";
  EXPECT_FALSE(index.error().advice.empty()) << index.error().message();
  return index.error().message();
}

const std::vector<RopeFamily> kFamilies = {RopeFamily::kQwen2Vl, RopeFamily::kQwen25Vl, RopeFamily::kQwen25Omni};

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
  for (const RopeFamily family : kFamilies) {
    const std::vector<Grid> images = {{1, 4, 4}, {1, 2, 6}};
    EXPECT_EQ(error_of({.family = family, .tokens = with_images(4, 3), .images = images}), "none");
    EXPECT_THAT(error_of({.family = family, .tokens = with_images(5, 3), .images = images}),
                HasSubstr("tokens[2]: a run of 5 tokens begins here, and an image of grid 1 x 4 x 4 with merge size 2 "
                          "gives 4"));
    EXPECT_THAT(error_of({.family = family, .tokens = with_images(4, 2), .images = images}),
                HasSubstr("tokens[8]: a run of 2 tokens begins here, and an image of grid 1 x 2 x 6"));
  }
}

TEST(RopeErrors, VideosAreJudgedLikeImages) {
  const auto tokens = make_tokens({{kVisionStart, 1}, {kVideo, 3}, {kVisionEnd, 1}});
  for (const RopeFamily family : kFamilies) {
    EXPECT_EQ(error_of({.family = family, .tokens = tokens, .videos = {{3, 2, 2}}, .seconds = {1}}), "none");
    EXPECT_THAT(error_of({.family = family, .tokens = tokens, .videos = {{2, 2, 2}}, .seconds = {1}}),
                HasSubstr("tokens[1]: a run of 3 tokens begins here, and a video of grid 2 x 2 x 2"));
    EXPECT_THAT(error_of({.family = family, .tokens = tokens}),
                HasSubstr("tokens[1]: video 1 of the sample begins here, and video_grids has 0"));
    EXPECT_THAT(error_of({.family = family, .tokens = {}, .videos = {{3, 2, 2}}, .seconds = {1}}),
                HasSubstr("tokens[0]: the tokens end here and hold 0 of the 1 entries of video_grids"));
  }
}

TEST(RopeErrors, MoreOrFewerMediaThanGridsAreNamed) {
  for (const RopeFamily family : kFamilies) {
    EXPECT_THAT(error_of({.family = family, .tokens = with_images(4, 3), .images = {{1, 4, 4}}}),
                HasSubstr("tokens[8]: image 2 of the sample begins here, and image_grids has 1"));
    EXPECT_THAT(error_of({.family = family, .tokens = with_images(4, 3), .images = {{1, 4, 4}, {1, 2, 6}, {1, 2, 2}}}),
                HasSubstr("tokens[12]: the tokens end here and hold 2 of the 3 entries of image_grids"));
  }
}

TEST(RopeErrors, GridsThatCannotBeAreNamed) {
  for (const RopeFamily family : kFamilies) {
    for (const Grid& grid : {Grid{1, 0, 4}, Grid{1, -4, -4}, Grid{1, 4, 3}, Grid{1, 3, 4}, Grid{0, 4, 4}}) {
      EXPECT_THAT(error_of({.family = family, .tokens = with_images(4, 4), .images = {{1, 4, 4}, grid}}),
                  HasSubstr("image_grids[1]: the grid is " + to_string(grid)));
      EXPECT_THAT(error_of({.family = family, .tokens = {}, .videos = {grid}, .seconds = {1}}),
                  HasSubstr("video_grids[0]: the grid is " + to_string(grid)));
    }
  }
}

TEST(RopeErrors, SecondsAreGivenForEachVideo) {
  const auto tokens = make_tokens({{kVisionStart, 1}, {kVideo, 3}, {kVisionEnd, 1}});
  const std::vector<Grid> videos = {{3, 2, 2}};
  EXPECT_THAT(error_of({.tokens = tokens, .videos = videos}),
              AllOf(HasSubstr("video_frame_seconds: 0 numbers for 1 videos; one for each is needed"),
                    Not(HasSubstr("none at all"))));
  EXPECT_THAT(error_of({.family = RopeFamily::kQwen25Vl, .tokens = tokens, .videos = videos, .seconds = {1, 1}}),
              HasSubstr("video_frame_seconds: 2 numbers for 1 videos; one for each is needed, or none at all"));
  for (const double seconds : {0.0, -1.0, std::numeric_limits<double>::infinity(), std::nan(""), 1e9}) {
    EXPECT_THAT(error_of({.tokens = tokens, .videos = videos, .seconds = {seconds}}),
                HasSubstr("video_frame_seconds[0]: "));
  }
}

TEST(RopeErrors, MediaOfOmniStandBetweenTheirStartsAndEnds) {
  const std::vector<Grid> grids = {{2, 2, 2}};
  EXPECT_THAT(error_of({.tokens = make_tokens({{kImage, 2}, {kVisionEnd, 1}}), .images = grids}),
              HasSubstr("tokens[0]: an image of grid 2 x 2 x 2 with merge size 2 begins here after nothing, and needs "
                        "its vision start (904) before it"));
  EXPECT_THAT(
      error_of({.tokens = make_tokens({{kText, 1}, {kVideo, 2}, {kVisionEnd, 1}}), .videos = grids, .seconds = {1}}),
      HasSubstr("tokens[1]: a video of grid 2 x 2 x 2 with merge size 2 begins here after token 7"));
  EXPECT_THAT(error_of({.tokens = make_tokens({{kVisionStart, 1}, {kImage, 2}}), .images = grids}),
              HasSubstr("tokens[3]: nothing stands here"));
  EXPECT_THAT(error_of({.tokens = make_tokens({{kText, 1}, {kAudio, 3}, {kAudioEnd, 1}}), .audio = {12}}),
              HasSubstr("tokens[1]: an audio clip of 12 mel frames begins here after token 7"));
  EXPECT_THAT(error_of({.tokens = make_tokens({{kAudioStart, 1}, {kAudio, 3}, {kText, 1}}), .audio = {12}}),
              HasSubstr("tokens[4]: token 7 stands here, and an audio clip of 12 mel frames needs audio end (907)"));
  EXPECT_THAT(error_of({.tokens = make_tokens({{kAudioStart, 1}, {kText, 1}})}),
              HasSubstr("tokens[1]: token 7 stands here, and an audio start outside a video with audio needs an audio "
                        "token (903)"));
}

TEST(RopeErrors, AudioIsCountedAndMeasured) {
  const auto tokens = make_tokens({{kAudioStart, 1}, {kAudio, 3}, {kAudioEnd, 1}});
  EXPECT_EQ(error_of({.tokens = tokens, .audio = {12}}), "none");
  EXPECT_THAT(error_of({.tokens = tokens, .audio = {16}}),
              HasSubstr("tokens[1]: a run of 3 tokens begins here, and an audio clip of 16 mel frames gives 4"));
  EXPECT_THAT(error_of({.tokens = tokens}),
              HasSubstr("tokens[1]: audio clip 1 of the sample begins here, and audio_frames has 0"));
  EXPECT_THAT(error_of({.tokens = tokens, .audio = {12, 12}}),
              HasSubstr("tokens[5]: the tokens end here and hold 1 of the 2 entries of audio_frames"));
  for (const int64_t frames : {int64_t{2}, int64_t{0}, int64_t{-5}, int64_t{1} << 40}) {
    EXPECT_THAT(error_of({.tokens = tokens, .audio = {frames}}), HasSubstr("audio_frames[0]: "));
  }
  EXPECT_THAT(error_of({.family = RopeFamily::kQwen2Vl, .tokens = {}, .audio = {12}}),
              HasSubstr("audio_frames: 1 audio clips for a model that hears nothing"));
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
  EXPECT_THAT(
      error_of(apart, &rules),
      HasSubstr("tokens[6]: token 902 stands here, and a video of grid 3 x 2 x 4 with merge size 2 with 6 audio "
                "tokens, 0.5 s from frame to frame, in chunks of 1 s, needs an audio token (903)"));

  Sample too_long = sample;
  too_long.audio = {28};
  EXPECT_THAT(error_of(too_long, &rules), HasSubstr("tokens[2]: a run of 12 tokens begins here"));

  Sample not_said = sample;
  not_said.audio_in_video = false;
  EXPECT_THAT(error_of(not_said, &rules), HasSubstr("tokens[2]: token 902 stands here, and an audio start"));

  Sample without_audio = sample;
  without_audio.tokens = make_tokens({{kVisionStart, 1}, {kVideo, 6}, {kVisionEnd, 1}});
  EXPECT_THAT(error_of(without_audio, &rules),
              HasSubstr("tokens[1]: a video of grid 3 x 2 x 4 with merge size 2 begins "
                        "here after token 904, and needs its audio start (906)"));

  Sample cut_off = sample;
  cut_off.tokens.pop_back();
  EXPECT_THAT(error_of(cut_off, &rules), HasSubstr("tokens[15]: nothing stands here"));
  cut_off.tokens.pop_back();
  EXPECT_THAT(error_of(cut_off, &rules), HasSubstr("tokens[14]: nothing stands here"));
  Sample no_grid = sample;
  no_grid.videos.clear();
  no_grid.seconds.clear();
  EXPECT_THAT(error_of(no_grid, &rules), HasSubstr("tokens[0]: video 1 of the sample begins here"));
}

}  // namespace
}  // namespace weft
