#include "weft/probe/patch_rules.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "weft/probe/mel_rules.h"
#include "weft/probe/tile_rules.h"
#include "weft/probe/video_frames.h"

namespace weft {
namespace {

Document rules_text(const std::string& text) {
  Result<Document> document = parse_document(text, "preprocessor_config.json", Syntax::kJson);
  EXPECT_TRUE(document.ok());
  return *document;
}

const std::vector<std::string> kProcessors = {"Qwen2VL", "Qwen2_5"};

TEST(PatchRules, LimitsAreReadInAllTheirForms) {
  for (const char* text :
       {R"({"min_pixels": 3136, "max_pixels": 12845056})",
        R"({"size": {"shortest_edge": 3136, "longest_edge": 12845056}})",
        R"({"size": {"min_pixels": 3136, "max_pixels": 12845056}})",
        R"({"size": {"shortest_edge": 1, "longest_edge": 2}, "min_pixels": 3136, "max_pixels": 12845056})",
        R"({"image_processor": {"size": {"shortest_edge": 3136, "longest_edge": 12845056}}, "video_processor": {}})"}) {
    const Result<PatchRules> rules = read_image_rules(rules_text(text), kProcessors);
    ASSERT_TRUE(rules.ok()) << rules.error().message();
    EXPECT_EQ(*rules, (PatchRules{.min_pixels = 3136, .max_pixels = 12845056})) << text;
  }
  EXPECT_EQ(*read_image_rules(rules_text("{}"), kProcessors), PatchRules{});
  EXPECT_EQ(*read_video_rules(rules_text("{}"), video_rules(), kProcessors), video_rules());
}

TEST(PatchRules, WhatCannotBePreparedIsNamed) {
  const auto field = [](const char* text) {
    const Result<PatchRules> rules = read_image_rules(rules_text(text), kProcessors);
    return rules.ok() ? "" : rules.error().field;
  };
  EXPECT_EQ(field(R"({"image_processor_type": "CLIPImageProcessor"})"), "image_processor_type");
  EXPECT_EQ(field(R"({"image_processor_type": "Qwen2VLImageProcessorFast"})"), "");
  EXPECT_EQ(field(R"({"resample": 2})"), "resample");
  EXPECT_EQ(field(R"({"do_resize": false})"), "do_resize");
  EXPECT_EQ(field(R"({"image_std": [0.2, 0, 0.2]})"), "image_std");
  EXPECT_EQ(field(R"({"image_mean": [0.2, 0.1]})"), "image_mean");
  EXPECT_EQ(field(R"({"patch_size": 0})"), "patch_size");
  EXPECT_EQ(field(R"({"min_pixels": 100, "max_pixels": 50})"), "max_pixels");
  EXPECT_EQ(field(R"({"image_processor": {"patch_size": "x"}})"), "image_processor.patch_size");
}

TEST(PatchRules, FramesOfAVideoMayBeLimitedTogether) {
  const std::vector<std::string> processors = {"Qwen3VL"};
  const auto read = [&](const char* text) {
    return read_video_rules(rules_text(text), apart_video_rules(), processors);
  };
  const Result<PatchRules> rules =
      read(R"({"video_processor_type": "Qwen3VLVideoProcessor", "cap_pixels_per_frame": true, "max_video_tokens": 9})");
  ASSERT_TRUE(rules.ok()) << rules.error().message();
  EXPECT_EQ(rules->max_frame_tokens, 9);
  EXPECT_EQ(read(R"({"cap_pixels_per_frame": null})")->max_frame_tokens, 0);
  EXPECT_EQ(read(R"({"video_processor_type": "Qwen2VLVideoProcessor"})").error().field, "video_processor_type");
  EXPECT_EQ(resized_size(*rules, {300, 500}, "a.mp4", 1).error().problem, "is a video of 1 frames, and a patch has 2");
}

TEST(TileRules, AreReadAndFitTheModel) {
  const std::vector<std::string> processors = {"GotOcr2"};
  const TileRules usual{.side = 448};
  const auto read = [&](const char* text) {
    return read_tile_rules(rules_text(text), "image_processor", usual, processors);
  };
  const Result<TileRules> rules = read(
      R"({"image_processor_type": "GotOcr2ImageProcessorFast", "size": {"height": 448, "width": 448}, "max_patches": 6,
          "crop_to_patches": false, "image_mean": [0.5, 0.5, 0.5]})");
  ASSERT_TRUE(rules.ok()) << rules.error().message();
  EXPECT_EQ(rules->max_tiles, 6);
  EXPECT_EQ(rules->patches.mean[2], 0.5);
  EXPECT_EQ(read(R"({"size": {"height": 384, "width": 384}})").error().field, "size.height");
  EXPECT_EQ(read(R"({"min_patches": 7, "max_patches": 6})").error().field, "max_patches");
  EXPECT_EQ(read(R"({"image_processor_type": "CLIPImageProcessor"})").error().field, "image_processor_type");
}

TEST(PatchRules, APictureThatIsTooLongIsAnError) {
  EXPECT_TRUE(resized_size({}, {1, 200}, "strip.png").ok());
  EXPECT_EQ(resized_size({}, {1, 201}, "strip.png").error().message(),
            "strip.png: is 201 by 1 pixels; one side may be at most 200 times the other. Cut it into parts.");
}

TEST(PatchRules, PatchesOfAVideoAreRoundedUpInTime) {
  EXPECT_EQ(patch_grid({}, {56, 84}, 1), (PatchGrid{1, 4, 6}));
  EXPECT_EQ(patch_grid({}, {56, 84}, 5), (PatchGrid{3, 4, 6}));
}

TEST(MelRules, AreReadAndCountFrames) {
  const Result<MelRules> rules = read_mel_rules(rules_text(
      R"({"feature_extractor_type": "WhisperFeatureExtractor", "feature_size": 128, "chunk_length": 300, "n_fft": 400})"));
  ASSERT_TRUE(rules.ok());
  EXPECT_EQ(*rules, MelRules{});
  EXPECT_EQ(rules->num_frames(1), 1);
  EXPECT_EQ(rules->num_frames(160), 1);
  EXPECT_EQ(rules->num_frames(161), 2);
  EXPECT_EQ(rules->num_frames(int64_t{1} << 40), 30'000);
  EXPECT_EQ(read_mel_rules(rules_text(R"({"n_fft": 512})")).error().field, "n_fft");
  EXPECT_EQ(read_mel_rules(rules_text(R"({"dither": 0.5})")).error().field, "dither");
}

TEST(VideoFrames, AskForARateThatIsKnown) {
  EXPECT_FALSE(sampled_frames({.frames_per_second = 2}, 100, std::nullopt, "clip").ok());
  EXPECT_EQ(*sampled_frames({.num_frames = 4}, 10, std::nullopt, "clip"), (std::vector<int64_t>{0, 2, 5, 7}));
  EXPECT_EQ(sampled_frames({.num_frames = 20}, 10, std::nullopt, "clip").error().problem,
            "has 10 frames, of which 20 were to be taken");
}

/// What whole numbers give: the first frame of each of `wanted` equal parts, or the middle one.
bool are_of_equal_parts(const std::vector<int64_t>& frames, FrameSpread spread, int64_t total) {
  const int64_t middle = spread == FrameSpread::kMiddles ? 1 : 0, wanted = std::ssize(frames);
  for (int64_t i = 0; i < wanted; ++i) {
    if (frames[static_cast<size_t>(i)] != (2 * i + middle) * total / (2 * wanted)) return false;
  }
  return true;
}

TEST(VideoFrames, AreAsManyAsWereWantedAndAllInTheVideo) {
  for (const FrameSpread spread : {FrameSpread::kFromFirst, FrameSpread::kToLast, FrameSpread::kMiddles}) {
    // All numbers of all short videos, and some of long ones.
    for (int64_t total = 1; total <= 4000; total += total < 600 ? 1 : 37) {
      for (int64_t wanted = 1; wanted <= total; wanted += total < 600 ? 1 : 29) {
        const auto frames =
            sampled_frames({.spread = spread, .num_frames = wanted, .temporal_patch = 1}, total, std::nullopt, "clip");
        ASSERT_TRUE(frames.ok() && std::ssize(*frames) == wanted) << wanted << " of " << total;
        ASSERT_TRUE(frames->front() >= 0 && frames->back() < total) << wanted << " of " << total;
        if (spread == FrameSpread::kToLast) {
          ASSERT_TRUE(frames->front() == 0 && (wanted == 1 || frames->back() == total - 1))
              << wanted << " of " << total;
          ASSERT_TRUE(std::is_sorted(frames->begin(), frames->end())) << wanted << " of " << total;
        } else {
          ASSERT_TRUE(are_of_equal_parts(*frames, spread, total)) << wanted << " of " << total;
        }
      }
    }
  }
}

// 42 / (42 / 30.0) is a little above 30.
TEST(VideoFrames, AStepThatIsRoundedDownGivesNoFrameTooMany) {
  for (const auto& [wanted, total] : {std::pair(30, 42), {100, 113}, {50, 57}, {60, 65}, {120, 123}, {500, 563}}) {
    const auto frames = sampled_frames({.num_frames = wanted}, total, std::nullopt, "clip");
    ASSERT_TRUE(frames.ok());
    EXPECT_EQ(std::ssize(*frames), wanted);
    EXPECT_LT(frames->back(), total);
    // 24 frames a second, of which as many are taken as make `wanted` of them.
    const double rate = 24.0 * wanted / total;
    const auto by_rate = sampled_frames({.frames_per_second = rate}, total, 24.0, "clip");
    ASSERT_TRUE(by_rate.ok());
    EXPECT_LE(std::ssize(*by_rate), wanted);
    EXPECT_LT(by_rate->back(), total);
  }
}

TEST(VideoFrames, TimeIsCountedByWhatWasSampled) {
  EXPECT_DOUBLE_EQ(sampled_rate(10, 300, 30.0), 1);
  EXPECT_DOUBLE_EQ(sampled_rate(10, 300, std::nullopt), 24);
  EXPECT_DOUBLE_EQ(seconds_per_grid(2, sampled_rate(10, 300, 30.0)), 2);
  EXPECT_DOUBLE_EQ(seconds_per_grid(2, 2), 1);
}

}  // namespace
}  // namespace weft
