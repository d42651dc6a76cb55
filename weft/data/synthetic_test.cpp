#include "weft/data/synthetic.h"

#include <cmath>
#include <map>

#include <gtest/gtest.h>

#include "tests/support/source_tree.h"
#include "weft/spec/scenario.h"

namespace weft {
namespace {

const Scenarios kScenarios(source_tree().string() + "/scenarios");

struct Case {
  Model model;
  Workload workload;
  SampleForm form;
};

Case omni() {
  Case c{*kScenarios.model("qwen2.5-omni-7b"), *kScenarios.workload("omni_short"), {}};
  c.form = {.vocabulary = 1000,
            .image = {.begin = 901, .inside = 902, .end = 903},
            .audio = {.begin = 904, .inside = 905, .end = 906},
            .other_special = 907,
            .merge_size = 2,
            .patch_elements = 6,
            .mel_bins = 4};
  return c;
}

TEST(SyntheticSamples, PartsOfMediaAreThoseOfTheWhole) {
  const Case c = omni();
  const SyntheticSamples samples = *SyntheticSamples::create(c.model, c.workload, c.form, 3);
  for (int64_t i = 0; i < 50; ++i) {
    const Sample whole = samples.make(i);
    SampleContent content{.ranges = MediaRanges()};
    std::vector<float> pixels, features;
    auto patch = whole.pixels.begin();
    for (const ImageGrid& grid : whole.images) {
      const int64_t count = grid.num_patches();
      const Range part = content.ranges->images.emplace_back(Range{count / 3, count - count / 4});
      pixels.insert(pixels.end(), patch + part.begin * 6, patch + part.end * 6);
      patch += count * 6;
    }
    for (const int64_t count : whole.clip_frames) content.ranges->clips.push_back({count / 2, count - 1});
    auto frame = whole.features.begin();
    for (int64_t band = 0; band < 4; ++band) {
      for (size_t clip = 0; clip < whole.clip_frames.size(); ++clip) {
        const Range part = content.ranges->clips[clip];
        features.insert(features.end(), frame + part.begin, frame + part.end);
        frame += whole.clip_frames[clip];
      }
    }
    const Sample own = samples.make(i, content);
    EXPECT_EQ(own.pixels, pixels);
    EXPECT_EQ(own.features, features);
    EXPECT_EQ(own.images, whole.images);
  }
}

TEST(SyntheticSamples, MediaTokensAreAsManyAsTheEncodersGiveRows) {
  const Case c = omni();
  const SyntheticSamples samples = *SyntheticSamples::create(c.model, c.workload, c.form, 3);
  int with_images = 0, with_clips = 0, without = 0;
  for (int64_t i = 0; i < 200; ++i) {
    const Sample sample = samples.make(i);
    std::map<int64_t, int64_t> counts;
    for (const int64_t id : sample.ids) ++counts[id];
    int64_t patches = 0, frames = 0, rows = 0, clip_rows = 0;
    for (const ImageGrid& grid : sample.images) {
      EXPECT_EQ(grid.rows % 2, 0);
      EXPECT_EQ(grid.columns % 2, 0);
      patches += grid.num_patches();
      rows += grid.num_patches() / 4;
    }
    for (const int64_t count : sample.clip_frames) {
      frames += count;
      clip_rows += count / 2 / 2;  // a convolution of stride 2, then pairs are averaged
    }
    EXPECT_EQ(counts[902], rows);
    EXPECT_EQ(counts[901], std::ssize(sample.images));
    EXPECT_EQ(counts[905], clip_rows);
    const Sample heard = samples.make(i, {.pixels = false});
    EXPECT_TRUE(heard.pixels.empty());
    EXPECT_EQ(heard.ids, sample.ids);
    EXPECT_EQ(heard.features, sample.features);
    EXPECT_TRUE(samples.make(i, {.features = false}).features.empty());
    EXPECT_EQ(samples.media_rows(i).image, rows);
    EXPECT_EQ(samples.media_rows(i).audio, clip_rows);
    EXPECT_EQ(counts[906], std::ssize(sample.clip_frames));
    EXPECT_EQ(std::ssize(sample.pixels), patches * 6);
    EXPECT_EQ(std::ssize(sample.features), frames * 4);
    EXPECT_EQ(num_tokens(sample.load.vision), static_cast<double>(patches));
    EXPECT_EQ(num_tokens(sample.load.llm), static_cast<double>(sample.ids.size()));
    ASSERT_EQ(sample.targets.size(), sample.ids.size());
    int64_t num_targets = 0;
    for (size_t t = 0; t < sample.ids.size(); ++t) {
      ASSERT_LT(sample.ids[t], 1000);
      if (sample.targets[t] == kNoTarget) continue;
      ++num_targets;
      ASSERT_EQ(sample.targets[t], sample.ids[t + 1]);
      ASSERT_TRUE(sample.targets[t] != 902 && sample.targets[t] != 905);
    }
    EXPECT_GT(num_targets, 0);
    with_images += sample.images.empty() ? 0 : 1;
    with_clips += sample.clip_frames.empty() ? 0 : 1;
    without += sample.images.empty() && sample.clip_frames.empty() ? 1 : 0;
  }
  EXPECT_GT(with_images, 120);
  EXPECT_GT(with_clips, 120);
  EXPECT_GT(without, 0);
}

TEST(SyntheticSamples, ASampleDependsOnItsSeedAndIndexAlone) {
  const Case c = omni();
  const SyntheticSamples a = *SyntheticSamples::create(c.model, c.workload, c.form, 3);
  const SyntheticSamples b = *SyntheticSamples::create(c.model, c.workload, c.form, 3);
  const SyntheticSamples other = *SyntheticSamples::create(c.model, c.workload, c.form, 4);
  b.make(99);
  EXPECT_EQ(a.make(7).ids, b.make(7).ids);
  EXPECT_EQ(a.make(7).pixels, b.make(7).pixels);
  EXPECT_NE(a.make(7).ids, a.make(8).ids);
  EXPECT_NE(a.make(7).ids, other.make(7).ids);
}

TEST(SyntheticSamples, SequencesAreAsLongAsTheWorkloadSays) {
  const Case c{*kScenarios.model("qwen2-vl-7b"), *kScenarios.workload("vl_sft"), omni().form};
  const SyntheticSamples samples = *SyntheticSamples::create(c.model, c.workload, c.form, 0);
  for (int64_t i = 0; i < 20; ++i) EXPECT_EQ(samples.make(i).ids.size(), 4096u);
}

TEST(SyntheticSamples, TextCanBeLearnt) {
  const Case c{*kScenarios.model("llama3-8b"), *kScenarios.workload("text_4k"), {.vocabulary = 128'256}};
  const SyntheticSamples samples = *SyntheticSamples::create(c.model, c.workload, c.form, 0);
  std::map<int64_t, std::map<int64_t, int64_t>> after;
  const std::vector<int64_t> ids = samples.make(0).ids;
  for (size_t i = 0; i + 1 < ids.size(); ++i) ++after[ids[i]][ids[i + 1]];
  int64_t foreseen = 0;
  for (const auto& [id, next] : after) {
    int64_t most = 0;
    for (const auto& [other, count] : next) most = std::max(most, count);
    foreseen += most;
  }
  EXPECT_GT(static_cast<double>(foreseen), 0.8 * 4095);
  EXPECT_LE(after.size(), 256u);
}

TEST(SyntheticSamples, WhatDoesNotFitTheModelIsNamed) {
  Case c = omni();
  c.form.max_tokens = 100;
  const auto too_long = SyntheticSamples::create(c.model, c.workload, c.form, 0);
  ASSERT_FALSE(too_long.ok());
  EXPECT_NE(too_long.error().message().find("text_tokens"), std::string::npos) << too_long.error().message();
  c.form.max_tokens = 0;
  c.workload.images.size = Distribution::constant(7);
  EXPECT_FALSE(SyntheticSamples::create(c.model, c.workload, c.form, 0).ok()) << "7 patches are not merged by fours";
}

TEST(Grid, IsAsSquareAsItCanBe) {
  EXPECT_EQ(grid_of_patches(2304, 2), (ImageGrid{48, 48}));
  EXPECT_EQ(grid_of_patches(1000, 2), (ImageGrid{20, 50}));
  EXPECT_EQ(grid_of_patches(28, 2), (ImageGrid{2, 14})) << "seven units have no other shape";
  EXPECT_EQ(grid_of_patches(6, 1), (ImageGrid{2, 3}));
}

}  // namespace
}  // namespace weft
