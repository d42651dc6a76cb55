#include "weft/prepare/patches.h"

#include <algorithm>
#include <cmath>
#include <random>

#include <gtest/gtest.h>

#include "tests/support/prepare/drawn_media.h"
#include "weft/prepare/frame_resizer.h"
#include "weft/prepare/orientation.h"

namespace weft {
namespace {

/// Bicubic with antialiasing in double precision, by the definition.
double exact_pixel(const Pixels& picture, PixelSize size, int64_t y, int64_t x, int64_t c) {
  const auto kernel = [](double d) {
    d = std::abs(d);
    if (d < 1) return 1.5 * d * d * d - 2.5 * d * d + 1;
    return d < 2 ? -0.5 * d * d * d + 2.5 * d * d - 4 * d + 2 : 0;
  };
  const auto weights = [&](int64_t old_size, int64_t new_size, int64_t i) {
    const double scale = static_cast<double>(old_size) / static_cast<double>(new_size), wide = std::max(scale, 1.0);
    std::vector<double> all;
    double total = 0;
    for (int64_t j = 0; j < old_size; ++j) {
      all.push_back(kernel((static_cast<double>(j) + 0.5 - (static_cast<double>(i) + 0.5) * scale) / wide));
      total += all.back();
    }
    for (double& weight : all) weight /= total;
    return all;
  };
  const std::vector<double> down = weights(picture.height, size.height, y),
                            across = weights(picture.width, size.width, x);
  double sum = 0;
  for (int64_t j = 0; j < picture.height; ++j) {
    double row = 0;
    for (int64_t i = 0; i < picture.width; ++i) row += across[static_cast<size_t>(i)] * picture.row(j)[3 * i + c];
    sum += down[static_cast<size_t>(j)] * std::clamp(row, 0.0, 255.0);
  }
  return std::clamp(sum, 0.0, 255.0);
}

TEST(FrameResizer, IsWithinTwoOfTheExactPixel) {
  std::mt19937 random(5);
  for (const auto& [from, to] : std::vector<std::pair<PixelSize, PixelSize>>{
           {{20, 33}, {28, 56}}, {{61, 47}, {28, 28}}, {{200, 9}, {56, 28}}, {{1, 1}, {28, 28}}, {{3, 90}, {84, 17}}}) {
    const Pixels picture = drawn_picture(from.height, from.width), small = resized(picture, to);
    for (int sample = 0; sample < 200; ++sample) {
      const int64_t y = random() % to.height, x = random() % to.width, c = random() % 3;
      EXPECT_NEAR(small.row(y)[3 * x + c], exact_pixel(picture, to, y, x, c), 2) << y << " " << x;
    }
  }
}

TEST(FrameResizer, ThePicturesOwnSizeLeavesIt) {
  const Pixels picture = drawn_picture(37, 53);
  EXPECT_EQ(resized(picture, {37, 53}).rgb, picture.rgb);
}

TEST(Patches, AnyPartIsThatPartOfTheWhole) {
  const Pixels a = drawn_picture(100, 150, 1), b = drawn_picture(100, 150, 2), c = drawn_picture(100, 150, 3);
  std::mt19937 random(7);
  for (const PatchRules& rules : {PatchRules{}, PatchRules{.patch = 6, .merge = 3, .temporal_patch = 1},
                                  PatchRules{.patch = 16, .merge = 1, .temporal_patch = 3}}) {
    for (const auto& frames : std::vector<std::vector<const Pixels*>>{{&a}, {&a, &b, &c}}) {
      const PixelSize size{rules.factor() * 5, rules.factor() * 4};
      const PatchGrid grid = patch_grid(rules, size, std::ssize(frames));
      const int64_t per_patch = rules.values_per_patch();
      std::vector<float> whole(static_cast<size_t>(grid.num_patches() * per_patch));
      prepare_patches(frames, rules, size, {0, grid.num_patches()}, whole);
      for (int i = 0; i < 20; ++i) {
        const int64_t begin = random() % (grid.num_patches() + 1),
                      end = begin + random() % (grid.num_patches() - begin + 1);
        std::vector<float> part(static_cast<size_t>((end - begin) * per_patch));
        prepare_patches(frames, rules, size, {begin, end}, part);
        EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + begin * per_patch)) << begin << " to " << end;
      }
    }
  }
}

TEST(Patches, StandInBlocksThatAreMerged) {
  const PatchRules rules{
      .patch = 2, .merge = 2, .temporal_patch = 2, .mean = {0, 0, 0}, .deviation = {1, 1, 1}, .rescale = 1};
  const Pixels first = drawn_picture(8, 12, 1), second = drawn_picture(8, 12, 2);
  const std::vector<const Pixels*> frames{&first, &second};
  std::vector<float> values(static_cast<size_t>(4 * 6 * rules.values_per_patch()));
  prepare_patches(frames, rules, {8, 12}, {0, 24}, values);
  size_t at = 0;
  for (int64_t block_row = 0; block_row < 2; ++block_row)
    for (int64_t block = 0; block < 3; ++block)
      for (int64_t row = 0; row < 2; ++row)
        for (int64_t column = 0; column < 2; ++column)
          for (int64_t c = 0; c < 3; ++c)
            for (int64_t t = 0; t < 2; ++t)
              for (int64_t y = 0; y < 2; ++y)
                for (int64_t x = 0; x < 2; ++x) {
                  const int64_t pixel_row = (block_row * 2 + row) * 2 + y, pixel = (block * 2 + column) * 2 + x;
                  ASSERT_EQ(values[at++], frames[static_cast<size_t>(t)]->row(pixel_row)[pixel * 3 + c]);
                }
}

TEST(Orientation, UndoesItselfOrItsMirror) {
  const Pixels picture = drawn_picture(5, 7);
  for (const auto& [there, back] :
       std::vector<std::pair<int, int>>{{1, 1}, {2, 2}, {3, 3}, {4, 4}, {5, 5}, {6, 8}, {7, 7}, {8, 6}}) {
    const Pixels turned = oriented(picture, there);
    EXPECT_EQ(turned.width, there >= 5 ? 5 : 7);
    EXPECT_EQ(oriented(turned, back).rgb, picture.rgb) << there;
    EXPECT_EQ(turned.rgb == picture.rgb, there == 1);
  }
}

}  // namespace
}  // namespace weft
