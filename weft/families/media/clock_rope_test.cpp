#include <gtest/gtest.h>

#include "tests/support/families/example_sample.h"
#include "weft/families/media/rope_index.h"

namespace weft {
namespace {

// Where a test does not explain its numbers, Hugging Face transformers 5.17.0 gave them.

TEST(ClockRope, EveryPartStartsAfterTheOneBefore) {
  const auto tokens = make_tokens({{kText, 1},
                                   {kVisionStart, 1},
                                   {kImage, 2},
                                   {kVisionEnd, 1},
                                   {kAudioStart, 1},
                                   {kAudio, 3},
                                   {kAudioEnd, 1},
                                   {kText, 1},
                                   {kVisionStart, 1},
                                   {kVideo, 6},
                                   {kVisionEnd, 1},
                                   {kText, 1}});
  const std::vector<Grid> images = {{1, 2, 4}};
  const std::vector<Grid> videos = {{3, 2, 4}};
  const std::vector<double> seconds = {0.5};
  const std::vector<int64_t> audio = {12};
  const auto index =
      rope_index(example_rules(TimeRule::kClock), tokens,
                 {.images = images, .videos = videos, .video_frame_seconds = seconds, .audio_frames = audio});
  ASSERT_TRUE(index) << index.error().message();
  // Frames are 12.5 positions apart, cut off: 0, 12, 25.
  EXPECT_EQ(values_of(index->temporal()),
            (std::vector<int64_t>{0, 1, 2, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12, 12, 24, 24, 37, 37, 38, 39}));
  EXPECT_EQ(values_of(index->height()),
            (std::vector<int64_t>{0, 1, 2, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12, 12, 12, 12, 12, 12, 38, 39}));
  EXPECT_EQ(values_of(index->width()),
            (std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 12, 13, 12, 13, 38, 39}));
  EXPECT_EQ(index->delta, 20);
}

TEST(ClockRope, AVideoAlternatesWithItsAudioChunkByChunk) {
  const auto tokens = make_tokens({{kText, 1},
                                   {kVisionStart, 1},
                                   {kAudioStart, 1},
                                   {kVideo, 4},
                                   {kAudio, 4},
                                   {kVideo, 2},
                                   {kAudio, 1},
                                   {kVideo, 2},
                                   {kAudioEnd, 1},
                                   {kVisionEnd, 1},
                                   {kText, 1}});
  const std::vector<Grid> videos = {{4, 2, 4}};
  const std::vector<double> seconds = {0.75};
  const std::vector<int64_t> audio = {20};
  const auto index =
      rope_index(example_clip_rules(), tokens,
                 {.videos = videos, .video_frame_seconds = seconds, .audio_frames = audio, .audio_in_video = true});
  ASSERT_TRUE(index) << index.error().message();
  EXPECT_EQ(values_of(index->temporal()),
            (std::vector<int64_t>{0, 1, 1, 2, 2, 5, 5, 2, 3, 4, 5, 8, 8, 6, 11, 11, 12, 12, 13}));
  EXPECT_EQ(values_of(index->height()),
            (std::vector<int64_t>{0, 1, 1, 2, 2, 2, 2, 2, 3, 4, 5, 2, 2, 6, 2, 2, 12, 12, 13}));
  EXPECT_EQ(values_of(index->width()),
            (std::vector<int64_t>{0, 1, 1, 2, 3, 2, 3, 2, 3, 4, 5, 2, 3, 6, 2, 3, 12, 12, 13}));
  EXPECT_EQ(index->delta, -5);
}

TEST(ClockRope, AClipEndsAfterItsLastPieceEvenWhereAnEarlierOneReachedFurther) {
  // Frames at 0, 2 | 4, 6 and audio at 0 1 2 3 | 4, counted from 2: the last piece is the audio at 6, the video is
  // at 8.
  const auto tokens = make_tokens({{kText, 1},
                                   {kVisionStart, 1},
                                   {kAudioStart, 1},
                                   {kVideo, 4},
                                   {kAudio, 4},
                                   {kVideo, 4},
                                   {kAudio, 1},
                                   {kAudioEnd, 1},
                                   {kVisionEnd, 1},
                                   {kText, 1}});
  const std::vector<Grid> videos = {{4, 2, 4}};
  const std::vector<double> seconds = {0.5};
  const std::vector<int64_t> audio = {20};
  const auto index =
      rope_index(example_clip_rules(), tokens,
                 {.videos = videos, .video_frame_seconds = seconds, .audio_frames = audio, .audio_in_video = true});
  ASSERT_TRUE(index) << index.error().message();
  EXPECT_EQ(values_of(index->temporal()),
            (std::vector<int64_t>{0, 1, 1, 2, 2, 4, 4, 2, 3, 4, 5, 6, 6, 8, 8, 6, 7, 7, 8}));
  EXPECT_EQ(index->num_tokens + index->delta, 9);
}

TEST(ClockRope, AFrameOnAChunksBorderMayStandOnEitherSideOfIt) {
  // 41 frames of 8 / 41 s are 8 s: in double precision frame 41 opens the chunk at 200, in single it is at 199.
  const Clip clip{.video = {42, 2, 2}, .frame_seconds = 8.0 / 41, .audio_tokens = 210};
  const ClipClock clock;
  const auto in_double = clip_layout(clip, clock);
  const auto in_single = clip_layout_of_positions(clip, clock);
  ASSERT_NE(in_double, in_single);
  const std::vector<Grid> videos = {clip.video};
  const std::vector<int64_t> audio = {840};
  std::vector<RopeIndex> found;
  for (const auto& layout : {in_double, in_single}) {
    std::vector<int64_t> tokens = {kVisionStart, kAudioStart};
    for (const ClipPiece& piece : layout) {
      tokens.insert(tokens.end(), static_cast<size_t>(piece.end - piece.begin), piece.is_audio ? kAudio : kVideo);
    }
    tokens.insert(tokens.end(), {kAudioEnd, kVisionEnd});
    for (const double seconds : {8.0 / 41, static_cast<double>(8.0F / 41)}) {
      const auto index = rope_index(example_rules(TimeRule::kClock), tokens,
                                    {.videos = videos,
                                     .video_frame_seconds = std::span(&seconds, 1),
                                     .audio_frames = audio,
                                     .audio_in_video = true});
      ASSERT_TRUE(index) << index.error().message();
      found.push_back(*index);
    }
  }
  for (const RopeIndex& index : found) EXPECT_EQ(index.positions, found.front().positions);
}

}  // namespace
}  // namespace weft
