#include "weft/families/media/clip_layout.h"

#include <gtest/gtest.h>

#include "weft/base/check.h"

namespace weft {
namespace {

constexpr ClipClock kClock{.positions_per_second = 4, .seconds_per_chunk = 1};

ClipPiece video(int64_t begin, int64_t end) {
  return {.is_audio = false, .begin = begin, .end = end};
}

ClipPiece audio(int64_t begin, int64_t end) {
  return {.is_audio = true, .begin = begin, .end = end};
}

std::vector<bool> kinds_of(const std::vector<ClipPiece>& pieces) {
  std::vector<bool> kinds;
  for (const ClipPiece& piece : pieces) {
    kinds.insert(kinds.end(), static_cast<size_t>(piece.end - piece.begin), piece.is_audio);
  }
  return kinds;
}

TEST(ClipLayout, AlternatesChunkByChunkUntilBothAreAtTheirEnds) {
  // Two tokens a frame, frames at 0, 2 | 4, 6 | 8, audio at 0 … 3 | 4, 5.
  const Clip clip{.video = {5, 2, 4}, .frame_seconds = 0.5, .audio_tokens = 6};
  EXPECT_EQ(clip_layout(clip, kClock),
            (std::vector<ClipPiece>{video(0, 4), audio(0, 4), video(4, 8), audio(4, 6), video(8, 10)}));
}

TEST(ClipLayout, AudioGoesOnWhereTheVideoIsOver) {
  const Clip clip{.video = {1, 2, 4}, .frame_seconds = 0.5, .audio_tokens = 9};
  EXPECT_EQ(clip_layout(clip, kClock), (std::vector<ClipPiece>{video(0, 2), audio(0, 4), audio(4, 8), audio(8, 9)}));
}

TEST(ClipLayout, AfterAGapChunksHoldSingleTokensUntilTheCountHasCaughtUp) {
  // Four tokens a frame, at 0 and 12: the first token at 12 ends chunk 0, the second 1, the third 2.
  const Clip clip{.video = {2, 4, 4}, .frame_seconds = 3, .audio_tokens = 10};
  EXPECT_EQ(clip_layout(clip, kClock), (std::vector<ClipPiece>{video(0, 4), audio(0, 4), video(4, 5), audio(4, 8),
                                                               video(5, 6), audio(8, 10), video(6, 8)}));
}

TEST(ClipLayout, FramesAreRoundedInSinglePrecision) {
  // 41 * 8 / 41 * 25 is 200 in double precision.
  const auto positions = frame_positions(42, 8.0 / 41, {});
  EXPECT_EQ(positions[0], 0);
  EXPECT_EQ(positions[1], 4);
  EXPECT_EQ(positions[41], 199);
}

TEST(ClipLayout, AnyTwoTokensSwappedAreFound) {
  for (const double seconds : {0.3, 0.75, 1.7, 5.0}) {
    const Clip clip{.video = {5, 2, 4}, .frame_seconds = seconds, .audio_tokens = 11};
    const std::vector<bool> kinds = kinds_of(clip_layout(clip, kClock));
    ASSERT_EQ(static_cast<int64_t>(kinds.size()), clip.num_tokens());
    EXPECT_FALSE(find_clip_mismatch(clip, kClock, kinds).has_value());
    for (size_t i = 0; i < kinds.size(); ++i) {
      for (size_t j = i + 1; j < kinds.size(); ++j) {
        if (kinds[i] == kinds[j]) continue;
        std::vector<bool> swapped = kinds;
        swapped[i] = kinds[j];
        swapped[j] = kinds[i];
        const auto mismatch = find_clip_mismatch(clip, kClock, swapped);
        ASSERT_TRUE(mismatch.has_value()) << seconds << " s, tokens " << i << " and " << j;
        EXPECT_EQ(mismatch->offset, static_cast<int64_t>(i));
        EXPECT_EQ(mismatch->expects_audio, kinds[i]);
      }
    }
  }
}

TEST(ClipLayout, AMismatchIsOnlySoughtInAsManyTokensAsTheClipHas) {
  const Clip clip{.video = {1, 2, 4}, .frame_seconds = 1, .audio_tokens = 1};
  EXPECT_THROW(static_cast<void>(find_clip_mismatch(clip, kClock, {false, false})), InternalError);
}

}  // namespace
}  // namespace weft
