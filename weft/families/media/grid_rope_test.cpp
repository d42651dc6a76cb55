#include <gtest/gtest.h>

#include "tests/support/families/example_sample.h"
#include "weft/families/media/rope_index.h"

namespace weft {
namespace {

// Two words, an image of 2 x 3 tokens, a word, a video of 4 frames of 1 x 2 tokens, a word.
const std::vector<int64_t> kTokens = make_tokens({{kText, 2},
                                                  {kVisionStart, 1},
                                                  {kImage, 6},
                                                  {kVisionEnd, 1},
                                                  {kText, 1},
                                                  {kVisionStart, 1},
                                                  {kVideo, 8},
                                                  {kVisionEnd, 1},
                                                  {kText, 1}});
const std::vector<Grid> kImages = {{1, 4, 6}};
const std::vector<Grid> kVideos = {{4, 2, 4}};

// The expectations are what Hugging Face transformers 5.17.0 gives for these tokens and grids.

TEST(GridRope, FramesAreOnePositionApart) {
  const auto index = rope_index(example_rules(TimeRule::kFrames), kTokens, {.images = kImages, .videos = kVideos});
  ASSERT_TRUE(index) << index.error().message();
  EXPECT_EQ(values_of(index->temporal()),
            (std::vector<int64_t>{0, 1, 2, 3, 3, 3, 3, 3, 3, 6, 7, 8, 9, 9, 10, 10, 11, 11, 12, 12, 11, 12}));
  EXPECT_EQ(values_of(index->height()),
            (std::vector<int64_t>{0, 1, 2, 3, 3, 3, 4, 4, 4, 6, 7, 8, 9, 9, 9, 9, 9, 9, 9, 9, 11, 12}));
  EXPECT_EQ(values_of(index->width()),
            (std::vector<int64_t>{0, 1, 2, 3, 4, 5, 3, 4, 5, 6, 7, 8, 9, 10, 9, 10, 9, 10, 9, 10, 11, 12}));
  EXPECT_EQ(index->delta, -9);
}

TEST(GridRope, FramesAreWholeSecondsApart) {
  const auto temporal_of_video = [](std::vector<double> seconds) {
    const auto index = rope_index(example_rules(TimeRule::kSeconds), kTokens,
                                  {.images = kImages, .videos = kVideos, .video_frame_seconds = seconds});
    EXPECT_TRUE(index) << index.error().message();
    const auto video = index->temporal().subspan(12, 8);
    return std::vector<int64_t>(video.begin(), video.end());
  };
  EXPECT_EQ(temporal_of_video({}), (std::vector<int64_t>{9, 9, 11, 11, 13, 13, 15, 15}));
  EXPECT_EQ(temporal_of_video({1}), (std::vector<int64_t>{9, 9, 11, 11, 13, 13, 15, 15}));
  EXPECT_EQ(temporal_of_video({2.5}), (std::vector<int64_t>{9, 9, 13, 13, 17, 17, 21, 21}));
  EXPECT_EQ(temporal_of_video({0.5}), (std::vector<int64_t>{9, 9, 9, 9, 9, 9, 9, 9}));
  // In single precision this is 1.
  EXPECT_EQ(temporal_of_video({0.99999999}), (std::vector<int64_t>{9, 9, 11, 11, 13, 13, 15, 15}));
}

// Frames of 2 x 1 tokens with words between them: positions as transformers gives them.
TEST(GridRope, FramesThatStandApartAreImages) {
  const std::vector<int64_t> tokens = make_tokens({{kText, 1},
                                                   {kVisionStart, 1},
                                                   {kVideo, 2},
                                                   {kVisionEnd, 1},
                                                   {kText, 2},
                                                   {kVisionStart, 1},
                                                   {kVideo, 2},
                                                   {kVisionEnd, 1},
                                                   {kVisionStart, 1},
                                                   {kVideo, 1},
                                                   {kVisionEnd, 1}});
  const std::vector<Grid> videos = {{2, 4, 2}, {1, 2, 2}};
  const auto index = rope_index(example_rules(TimeRule::kApart), tokens, {.videos = videos});
  ASSERT_TRUE(index) << index.error().message();
  EXPECT_EQ(values_of(index->temporal()), (std::vector<int64_t>{0, 1, 2, 2, 4, 5, 6, 7, 8, 8, 10, 11, 12, 13}));
  EXPECT_EQ(values_of(index->height()), (std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13}));
  EXPECT_EQ(values_of(index->width()), (std::vector<int64_t>{0, 1, 2, 2, 4, 5, 6, 7, 8, 8, 10, 11, 12, 13}));
}

TEST(GridRope, FramesThatStandApartMustAllBeThereEachByItself) {
  const std::vector<Grid> videos = {{2, 4, 2}};
  const auto error = [&](const std::vector<int64_t>& tokens) {
    const auto index = rope_index(example_rules(TimeRule::kApart), tokens, {.videos = videos});
    return index ? "none" : index.error().message();
  };
  EXPECT_PRED_FORMAT2(testing::IsSubstring, "tokens[3]: the tokens end here, but 1 of the 2 frames of video 1",
                      error(make_tokens({{kText, 1}, {kVideo, 2}})));
  EXPECT_PRED_FORMAT2(testing::IsSubstring, "tokens[0]: a run of 4 tokens begins here, and a video of grid 1 x 4 x 2",
                      error(make_tokens({{kVideo, 4}})));
}

TEST(GridRope, GenerationGoesOnAfterTheLargestPosition) {
  const std::vector<double> seconds = {2.5};
  const auto index = rope_index(example_rules(TimeRule::kSeconds), kTokens,
                                {.images = kImages, .videos = kVideos, .video_frame_seconds = seconds});
  ASSERT_TRUE(index) << index.error().message();
  // The last word is at 12, but the video's last frame is at 21.
  EXPECT_EQ(index->temporal().back(), 12);
  EXPECT_EQ(index->num_tokens + index->delta, 22);
}

TEST(GridRope, TextAloneCountsTokens) {
  for (const TimeRule time : {TimeRule::kFrames, TimeRule::kSeconds, TimeRule::kApart, TimeRule::kClock}) {
    const auto index = rope_index(example_rules(time), make_tokens({{kText, 4}}), {});
    ASSERT_TRUE(index) << index.error().message();
    EXPECT_EQ(index->positions, (std::vector<int64_t>{0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3}));
    EXPECT_EQ(index->delta, 0);
    const auto nothing = rope_index(example_rules(time), {}, {});
    ASSERT_TRUE(nothing) << nothing.error().message();
    EXPECT_TRUE(nothing->positions.empty());
    EXPECT_EQ(nothing->delta, 0);
  }
}

}  // namespace
}  // namespace weft
