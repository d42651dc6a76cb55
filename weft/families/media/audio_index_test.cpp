#include "weft/families/media/audio_index.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

TEST(AudioIndex, TokensArePairsOfRowsAndRowsPairsOfFrames) {
  // A row is the convolution's window every second frame, starting at the first.
  for (int64_t frames = 1; frames < 50; ++frames) {
    int64_t rows = 0;
    for (int64_t frame = 0; frame < frames; frame += 2) ++rows;
    EXPECT_EQ(num_audio_rows(frames), rows);
    int64_t tokens = 0;
    for (int64_t row = 0; row + 1 < rows; row += 2) ++tokens;
    EXPECT_EQ(num_audio_tokens(frames), tokens);
  }
  EXPECT_EQ(num_audio_tokens(1), 0);
  EXPECT_EQ(num_audio_tokens(2), 0);
  EXPECT_EQ(num_audio_tokens(3), 1);
  EXPECT_EQ(num_audio_tokens(3000), 750);
}

TEST(AudioIndex, ClipsAreCutIntoChunksAndPooledAcrossThem) {
  // Chunks of 6 frames. Clip 0: 6 + 6 + 1 frames, 3 + 3 + 1 rows, 3 tokens and a row left. Clip 1: 4 frames, 2 rows.
  const auto index = audio_index(std::vector<int64_t>{13, 4}, 3);
  ASSERT_TRUE(index) << index.error().message();
  EXPECT_EQ(index->chunk_frames, (std::vector<int64_t>{6, 6, 1, 4}));
  EXPECT_EQ(index->chunk_rows, (std::vector<int64_t>{3, 3, 1, 2}));
  EXPECT_EQ(index->padded_frames, 6);
  EXPECT_EQ(index->padded_rows, 3);
  EXPECT_EQ(index->kept_rows, (std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 9, 10}));
  EXPECT_EQ(index->clip_tokens, (std::vector<int64_t>{3, 1}));
  EXPECT_EQ(index->pool_first_row, (std::vector<int64_t>{0, 2, 4, 7}));
}

TEST(AudioIndex, AClipThatFillsItsChunksHasNoEmptyOne) {
  const auto index = audio_index(std::vector<int64_t>{12}, 3);
  ASSERT_TRUE(index) << index.error().message();
  EXPECT_EQ(index->chunk_frames, (std::vector<int64_t>{6, 6}));
}

TEST(AudioIndex, PaddingReachesOnlyToTheLongestChunk) {
  const auto index = audio_index(std::vector<int64_t>{3, 2}, 100);
  ASSERT_TRUE(index) << index.error().message();
  EXPECT_EQ(index->padded_frames, 3);
  EXPECT_EQ(index->padded_rows, 2);
  EXPECT_EQ(index->kept_rows, (std::vector<int64_t>{0, 1, 2}));
  EXPECT_EQ(index->clip_tokens, (std::vector<int64_t>{1, 0}));
}

TEST(AudioIndex, NoClipsAreNothing) {
  const auto index = audio_index({}, 100);
  ASSERT_TRUE(index) << index.error().message();
  EXPECT_TRUE(index->kept_rows.empty());
  EXPECT_EQ(index->padded_rows, 0);
}

TEST(AudioIndex, AClipWithoutFramesIsNamed) {
  for (const int64_t frames : {int64_t{0}, int64_t{-3}, int64_t{1} << 40}) {
    const auto index = audio_index(std::vector<int64_t>{5, frames}, 100);
    ASSERT_FALSE(index);
    EXPECT_PRED_FORMAT2(testing::IsSubstring, "audio_frames[1]: the clip has " + std::to_string(frames),
                        index.error().message());
  }
}

}  // namespace
}  // namespace weft
