// What headers promise against what is made of the files: all small sizes.
#include <algorithm>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "tests/support/prepare/drawn_media.h"
#include "weft/prepare/log_mel.h"
#include "weft/prepare/patches.h"
#include "weft/prepare/tiles.h"
#include "weft/prepare/waveform.h"

namespace weft::counts_test {
namespace {

std::string little(uint32_t value, int num_bytes) {
  std::string text;
  for (int i = 0; i < num_bytes; ++i) text.push_back(static_cast<char>(value >> (8 * i)));
  return text;
}

/// 16-bit PCM.
std::string wav_bytes(uint32_t rate_hz, uint32_t channels, uint32_t frames) {
  const uint32_t size = frames * channels * 2;
  return "RIFF" + little(36 + size, 4) + "WAVEfmt " + little(16, 4) + little(1, 2) + little(channels, 2) +
         little(rate_hz, 4) + little(rate_hz * channels * 2, 4) + little(channels * 2, 2) + little(16, 2) + "data" +
         little(size, 4) + std::string(size, '\x11');
}

TEST(Counts, ClipsHaveTheSamplesAndMelFramesThatTheirHeadersGive) {
  const MelRules rules{.num_mels = 8, .chunk_seconds = 1};
  const LogMel mel(rules);
  for (const uint32_t rate_hz : {1'000u, 8'000u, 11'025u, 16'000u, 22'050u, 44'100u, 48'000u, 768'000u}) {
    for (uint32_t frames = 1; frames < 2'000; frames += 1 + frames / 300) {
      const std::string text = wav_bytes(rate_hz, 1 + frames % 3, frames);
      const std::span<const uint8_t> bytes(reinterpret_cast<const uint8_t*>(text.data()), text.size());
      HeaderBytes header = HeaderBytes::of(bytes);
      const Result<AudioInfo> clip = probe_audio(header, "clip");
      Result<Waveform> sound = decode_audio(bytes, "clip");
      ASSERT_TRUE(clip.ok() && sound.ok()) << rate_hz << " " << frames;
      ASSERT_EQ(clip->frames, frames);
      ASSERT_EQ(std::ssize(sound->samples), frames);
      const Waveform at_16k = resampled(*std::move(sound), MelRules::kRateHz);
      const int64_t samples = resampled_frames(frames, rate_hz, MelRules::kRateHz);
      ASSERT_EQ(std::ssize(at_16k.samples), samples) << rate_hz << " " << frames;
      ASSERT_EQ(std::ssize(mel.features(at_16k.samples)), rules.num_mels * rules.num_frames(samples))
          << rate_hz << " " << frames;
    }
  }
}

/// Every value of every patch is written: none is as it was.
void expect_filled(const std::vector<const Pixels*>& frames, const PatchRules& rules) {
  const PixelSize old_size{frames[0]->height, frames[0]->width};
  const Result<PixelSize> size = resized_size(rules, old_size, "a picture", std::ssize(frames));
  ASSERT_TRUE(size.ok()) << size.error().message();
  ASSERT_TRUE(size->height % rules.factor() == 0 && size->width % rules.factor() == 0);
  const PatchGrid grid = patch_grid(rules, *size, std::ssize(frames));
  ASSERT_EQ(grid.h * rules.patch, size->height);
  ASSERT_EQ(grid.w * rules.patch, size->width);
  std::vector<float> values(static_cast<size_t>(grid.num_patches() * rules.values_per_patch()),
                            std::numeric_limits<float>::quiet_NaN());
  prepare_patches(frames, rules, *size, {0, grid.num_patches()}, values);
  ASSERT_TRUE(std::none_of(values.begin(), values.end(), [](float x) { return std::isnan(x); }));
}

TEST(Counts, PicturesOfAnySizeFillThePatchesThatTheirHeadersGive) {
  for (const PatchRules& rules :
       {PatchRules{.patch = 2, .merge = 2, .min_pixels = 16, .max_pixels = 256},
        PatchRules{.patch = 3, .merge = 1, .temporal_patch = 1, .min_pixels = 1, .max_pixels = 100},
        PatchRules{.patch = 1, .merge = 3, .temporal_patch = 3, .min_pixels = 200, .max_pixels = 220}}) {
    for (int64_t height = 1; height <= 48; ++height) {
      for (int64_t width = 1; width <= 48; ++width) {
        SCOPED_TRACE(std::to_string(height) + " by " + std::to_string(width));
        const Pixels picture = drawn_picture(height, width);
        ASSERT_NO_FATAL_FAILURE(expect_filled({&picture}, rules));
      }
    }
  }
}

TEST(Counts, VideosOfAnyLengthFillThePatchesThatTheirHeadersGive) {
  const Pixels frame = drawn_picture(9, 14);
  for (const bool limits_all : {false, true}) {
    for (int64_t temporal = 1; temporal <= 5; ++temporal) {
      const PatchRules rules{.patch = 2,
                             .merge = 2,
                             .temporal_patch = temporal,
                             .min_pixels = 64,
                             .max_pixels = 2048,
                             .limits_all_frames = limits_all};
      for (int64_t count = limits_all ? temporal : 1; count <= 24; ++count) {
        SCOPED_TRACE(std::to_string(count) + " frames, " + std::to_string(temporal) + " a patch");
        ASSERT_NO_FATAL_FAILURE(expect_filled(std::vector<const Pixels*>(static_cast<size_t>(count), &frame), rules));
      }
    }
  }
}

TEST(Counts, TilesOfPicturesOfAnySizeAreThoseOfTheirGrid) {
  for (const auto& [fewest, most] : {std::pair(1, 6), {2, 2}, {3, 7}}) {
    const TileRules rules{
        .patches = {.patch = 2, .merge = 2, .temporal_patch = 1}, .side = 8, .min_tiles = fewest, .max_tiles = most};
    for (int64_t height = 1; height <= 40; ++height) {
      for (int64_t width = 1; width <= 40; ++width) {
        const TileGrid grid = tile_grid(rules, {height, width});
        ASSERT_TRUE(grid.rows * grid.columns >= fewest && grid.rows * grid.columns <= most);
        const PixelSize size{grid.rows * rules.side, grid.columns * rules.side};
        const int64_t count = num_patches_of_tiles(rules, size);
        ASSERT_EQ(count, grid.num_tiles() * 16);
        std::vector<float> values;
        prepare_tiles(drawn_picture(height, width), rules, size, {.begin = 0, .end = count}, values);
        ASSERT_EQ(std::ssize(values), count * rules.patches.values_per_patch()) << height << " by " << width;
      }
    }
  }
}

}  // namespace
}  // namespace weft::counts_test
