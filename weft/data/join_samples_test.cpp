#include "weft/data/join_samples.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

Sample sample_of(int64_t first, int64_t tokens, int64_t images, std::vector<int64_t> clips, int64_t bins) {
  Sample sample;
  for (int64_t i = 0; i < tokens; ++i) {
    sample.ids.push_back(first + i);
    sample.targets.push_back(i + 1 < tokens ? first + i + 1 : kNoTarget);
  }
  for (int64_t i = 0; i < images; ++i) {
    sample.images.push_back({.rows = 1, .columns = i + 1});
    for (int64_t p = 0; p <= i; ++p) sample.pixels.push_back(static_cast<float>(first + i));
    sample.load.vision.push_back({static_cast<double>(i + 1), 1});
  }
  int64_t frames = 0;
  for (const int64_t clip : clips) frames += clip;
  for (int64_t band = 0; band < bins; ++band) {
    for (int64_t frame = 0; frame < frames; ++frame)
      sample.features.push_back(static_cast<float>(1000 * band + first + frame));
  }
  sample.clip_frames = std::move(clips);
  sample.load.llm = {{static_cast<double>(tokens), 1}};
  return sample;
}

TEST(JoinSamples, SegmentsKeepWhatTheyHaveAndNoTargetCrossesABorder) {
  const Sample a = sample_of(10, 3, 2, {2}, 2), b = sample_of(50, 2, 0, {}, 2), c = sample_of(70, 1, 1, {1, 3}, 2);
  const Sample joined = join_samples({a, b, c}, 2);
  EXPECT_EQ(joined.ids, (std::vector<int64_t>{10, 11, 12, 50, 51, 70}));
  EXPECT_EQ(joined.targets, (std::vector<int64_t>{11, 12, kNoTarget, 51, kNoTarget, kNoTarget}));
  EXPECT_EQ(joined.segments, (std::vector<int64_t>{3, 2, 1}));
  EXPECT_EQ(joined.num_segments(), 3);
  EXPECT_EQ(joined.images.size(), 3u);
  EXPECT_EQ(joined.pixels, (std::vector<float>{10, 11, 11, 70}));
  EXPECT_EQ(joined.clip_frames, (std::vector<int64_t>{2, 1, 3}));
  EXPECT_EQ(joined.features, (std::vector<float>{10, 11, 70, 71, 72, 73, 1010, 1011, 1070, 1071, 1072, 1073}))
      << "by band";
  EXPECT_EQ(joined.load.llm, (Segments{{3, 1}, {2, 1}, {1, 1}}));
  EXPECT_EQ(joined.load.vision, (Segments{{1, 1}, {2, 1}, {1, 1}}));
}

TEST(JoinSamples, WhatIsWantedOfTheWholeIsSplitByMedia) {
  const Sample a = sample_of(10, 3, 2, {2}, 2), b = sample_of(50, 2, 0, {}, 2), c = sample_of(70, 1, 1, {1, 3}, 2);
  const auto whole = split_content({.pixels = false}, {&a, &b, &c});
  ASSERT_EQ(whole.size(), 3u);
  for (const SampleContent& content : whole) EXPECT_TRUE(!content.pixels && content.features && !content.ranges);
  MediaRanges ranges{.images = {{0, 1}, {1, 2}, {0, 0}}, .videos = {}, .clips = {{0, 2}, {0, 0}, {1, 3}}};
  const auto parts = split_content({.ranges = ranges}, {&a, &b, &c});
  EXPECT_EQ(parts[0].ranges->images, (std::vector<Range>{{0, 1}, {1, 2}}));
  EXPECT_EQ(parts[0].ranges->clips, (std::vector<Range>{{0, 2}}));
  EXPECT_TRUE(parts[1].ranges->images.empty() && parts[1].ranges->clips.empty());
  EXPECT_EQ(parts[2].ranges->images, (std::vector<Range>{{0, 0}}));
  EXPECT_EQ(parts[2].ranges->clips, (std::vector<Range>{{0, 0}, {1, 3}}));
}

}  // namespace
}  // namespace weft
